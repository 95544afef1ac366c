package gateway

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// TestExtraBodyBehindTheGateway: what the run says of further fields and of seeds is so,
// whatever the client wishes.
func TestExtraBodyBehindTheGateway(t *testing.T) {
	a := &ask{Request: &dialects.Request{Forward: map[string]json.RawMessage{"seed": json.RawMessage("3"),
		"priority": json.RawMessage("9"), "user": json.RawMessage(`"u"`)}}}
	if body := request(a, "m", 7, 1); body["seed"] != int64(7) || string(body["priority"].(json.RawMessage)) != "9" {
		t.Errorf("a run that says nothing asks %v", body)
	}
	a.sampling = runfile.Sampling{Seed: runfile.SeedNone, ExtraBody: map[string]any{"priority": 5}}
	body := request(a, "m", 7, 1)
	if _, seeded := body["seed"]; seeded || body["priority"] != 5 || body["user"] == nil {
		t.Errorf("a run that says so asks %v", body)
	}
}
