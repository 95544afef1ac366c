package service

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/demo/policy/endpoint"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// TestBuiltinPolicyReadsDeltas: the built-in policy takes a version up by its delta alone where it
// has the version before, and says that it serves it.
func TestBuiltinPolicyReadsDeltas(t *testing.T) {
	log := natstest.Log(t)
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	held, err := lru.New[string, *weights.HeldVersion](heldVersions)
	if err != nil {
		t.Fatal(err)
	}
	server := endpoint.NewServer(nil)
	values, facts := make([]float32, policy.Dimension), []events.WeightsPublished{}
	var files []string
	for version := int64(1); version <= 3; version++ {
		values[version] = 1
		var file bytes.Buffer
		if err := safetensors.Write(&file, []safetensors.Data{safetensors.NewF32("policy.weights",
			[]int64{policy.Dimension}, values)}, nil); err != nil {
			t.Fatal(err)
		}
		published, err := weights.Publish(t.Context(), log.Store(), "p", version,
			weights.Content{Name: "model.safetensors", Data: file.Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		fact := events.WeightsPublished{Policy: "p", Version: version, Run: "r", Manifest: published.Ref}
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
			"p", events.Ordinal(version), fact))
		facts, files = append(facts, fact), append(files, published.Manifest.Files[0].Key)
	}
	for _, key := range files[1:] {
		if err := log.Store().Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, fact := range facts {
		if err := activate(t.Context(), env, server, held, fact); err != nil {
			t.Fatalf("version %d: %v", fact.Version, err)
		}
		if now, _ := held.Get("p"); now.ByDelta != (fact.Version > 1) {
			t.Errorf("version %d came by a delta: %v", fact.Version, now.ByDelta)
		}
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if !strings.Contains(w.Body.String(), `"weight_version":3`) {
		t.Errorf("it serves %s", w.Body)
	}
	if all := servicetest.All(t, log, events.Catalogue, events.WeightsActivatedType); len(all) != 3 {
		t.Errorf("%v were stated", servicetest.IDs(all))
	}
}
