package fleet

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestFullPromptsAreNoFailures: prompts that are counted and do not fit say nothing of their server, however many there are.
func TestFullPromptsAreNoFailures(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", nil)
	s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "Done.", ""), "" }
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(context int) (*Answer, error) {
		cfg := runfile.DefaultRunConfig()
		cfg.Policy, cfg.Endpoint, cfg.EndpointAPI, cfg.Limits.Context = "m", s.URL+"/v1", runfile.APITokens, context
		return f.Complete(t.Context(), Call{
			Run: "r", Config: &cfg, Affinity: "a", Fit: true, Sampling: cfg.Sampling, Until: time.Now(),
			Tokens: func(model string) inference.Conversation {
				return inference.Conversation{Request: inference.Request{
					Model: model, Messages: []inference.Message{{Role: "user", Content: "Mend it."}}, Sample: inference.NewSample(cfg.Sampling), Logprobs: true,
				}}
			},
		})
	}
	for range 2 * tripAfter {
		var full *inference.Failure
		if _, err := ask(5); !errors.As(err, &full) || full.Overflow == nil || full.Overflow.Limit != 5 || full.Overflow.Prompt < 5 || !full.Permanent {
			t.Fatalf("a prompt that does not fit: %v", err)
		}
	}
	answer, err := ask(0)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	if turn := s.Turns(); len(turn) != 1 || answer.Turn.PromptTokens != len(turn[0].Prompt) || answer.ContextLimit != 0 {
		t.Errorf("the server sampled %d turns, and the last is %+v", len(turn), answer.Turn)
	}
}
