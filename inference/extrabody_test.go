package inference

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestOwnFieldsAreRefused: no field that a request has can be set by a run's extra_body, neither in the run file nor in the request.
func TestOwnFieldsAreRefused(t *testing.T) {
	s := runfile.NeutralSampling()
	s.Stop, s.ChatTemplateKwargs = []string{"end"}, map[string]any{"a": 1}
	whole := Request{Model: "m", Messages: []Message{}, Tools: []Tool{{}}, Sample: NewSample(s), Seed: NewSeed(s, 7), ToolChoice: "auto"}
	body, err := Encode(whole)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	if len(fields) < 18 {
		t.Fatalf("only %d fields", len(fields))
	}
	for name, value := range fields {
		s := runfile.NeutralSampling()
		s.ExtraBody = map[string]any{name: "other"}
		if s.Validate() == nil {
			t.Errorf("a run file may set %s", name)
		}
		whole.Extra = map[string]any{name: "other", "priority": 5}
		body, err := Encode(whole)
		var now map[string]json.RawMessage
		if err != nil || json.Unmarshal(body, &now) != nil || string(now[name]) != string(value) || string(now["priority"]) != "5" {
			t.Errorf("%s is %s, was %s: %v", name, now[name], value, err)
		}
	}
}
