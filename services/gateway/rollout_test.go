package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestLoadReadsNoTurnTwice: to look a rollout up again takes as much behind
// many turns as behind few.
func TestLoadReadsNoTurnTwice(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("theirs"))
	servicetest.StartRollout(t, log, "r", "xtheirs-0", "theirs")
	g, turns := &Gateway{log: log.Reader}, 0
	allocated := func(upTo int) float64 {
		for ; turns < upTo; turns++ {
			turn := events.TurnSampled{Turn: turns, FinishReason: "stop", Content: "words", TokenIDs: make([]int32, 64),
				Logprobs: make([]float32, 64), NewSegment: true}
			servicetest.Append(t, log, servicetest.Event(t, "r", events.TurnSampledType,
				"xtheirs-0", events.Ordinal(turns), turn))
		}
		return testing.AllocsPerRun(20, func() {
			ro, err := g.load(context.Background(), "r", "xtheirs-0", newTenant(Tenant{Name: "default"}))
			if err != nil || len(ro.Turns) != turns {
				t.Fatal(err)
			}
		})
	}
	few, many := allocated(2), allocated(60)
	if many > 1.5*few {
		t.Errorf("%.0f allocations behind 2 turns, %.0f behind 60", few, many)
	}
}

// TestRequestsOfAnAgentsTurn: a turn asks the log for the rollout's last link, for the one before
// that, and to put the turn behind them.
func TestRequestsOfAnAgentsTurn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}]}`)
	}))
	defer server.Close()
	log := natstest.Log(t)
	cfg := servicetest.Config("theirs")
	cfg.Endpoint, cfg.InFlight, cfg.Agent = server.URL+"/v1", 1, &runfile.Agent{Command: []string{"x"}}
	servicetest.OpenRun(t, log, "r", cfg)
	servicetest.StartRollout(t, log, "r", "g000001-0", "theirs")
	env := servicetest.Env(t, log)
	g, err := New(env, servicetest.Fleet(t, env, nil), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	agent := g.Agent("r", "g000001-0")
	ask := func(text string) uint64 {
		t.Helper()
		before, w := log.Conn().Stats().OutMsgs, httptest.NewRecorder()
		agent.ServeHTTP(w, httptest.NewRequest(http.MethodPost,
			"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}]}`)))
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return log.Conn().Stats().OutMsgs - before
	}
	ask("one") // looks up what is looked up once
	if asked := ask("two"); asked != 3 {
		t.Errorf("a turn took %d requests of the log, want 3", asked)
	}
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutAnnotatedType, "g000001-0",
		"a", events.RolloutAnnotated{Text: "a remark"}))
	ask("three")
	if turns := servicetest.All(t, log, "r", events.TurnSampledType); len(turns) != 3 {
		t.Errorf("%d turns", len(turns))
	}
}
