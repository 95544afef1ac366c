package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
)

// narrow is a server with a context of 100 tokens. Every answer has ten tokens that no other one
// has, every other text has ten or, of a tool, two.
func narrow(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	known, answers := map[string][]int{}, 0
	tokens := func(text string, n int) []int {
		if known[text] == nil {
			for range n {
				known[text] = append(known[text], 1000+len(known)*16+len(known[text]))
			}
		}
		return known[text]
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"small","object":"model","owned_by":"vllm","max_model_len":100}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in inference.Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		var prompt []int
		for _, m := range in.Messages {
			n := 10
			if m.Role == "tool" {
				n = 2
			}
			prompt = append(prompt, tokens(m.Role+m.Content, n)...)
		}
		answers++
		said := inference.Message{Role: "assistant", Content: fmt.Sprintf("Answer %d.", answers)}
		// behind the summary, two turns are enough
		summed := len(in.Messages) >= 6 && strings.Contains(in.Messages[1].Content, "\n\nAnswer ")
		if in.Messages[len(in.Messages)-1].Content != "Sum up." && !summed {
			said.ToolCalls = []inference.ToolCall{{ID: "c", Type: "function",
				Function: inference.Function{Name: "list_dir", Arguments: "{}"}}}
		}
		ids := tokens("assistant"+said.Content, 10)
		logprobs := make([]any, len(ids))
		for i := range logprobs {
			logprobs[i] = map[string]any{"logprob": -1}
		}
		json.NewEncoder(w).Encode(map[string]any{
			"prompt_token_ids": prompt,
			"choices": []any{map[string]any{"finish_reason": "stop", "message": said, "token_ids": ids,
				"logprobs": map[string]any{"content": logprobs}}},
			"usage": map[string]any{"prompt_tokens": len(prompt), "completion_tokens": len(ids)},
		})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// TestSummariesInABatch: rollouts that sum their work up come to a batch with all of their
// segments, one reward and one count of tokens, and each token that was sampled once.
func TestSummariesInABatch(t *testing.T) {
	t.Parallel()
	s := narrow(t)
	p := newPlaneOf(t, func(c *runfile.RunConfig) {
		c.Endpoint, c.GroupSize, c.Feeds, c.Staleness.Max = s.URL+"/v1", 2,
			[]runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}, 0
		c.Limits.ContextFull, c.SummaryPrompt, c.Sampling.MaxTokens = runfile.ContextSummarise, "Sum up.", 10
	})
	env := servicetest.Env(t, p.log)
	servicetest.Start(t, func(ctx context.Context) error { return trainerfeeder.Run(ctx, env) })
	ready := servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	var samples []storage.Sample
	for _, ref := range ready.Files {
		data, err := storage.GetBlob(t.Context(), p.log.Store(), ref)
		if err != nil {
			t.Fatal(err)
		}
		file, err := storage.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, file.Samples...)
	}
	for _, id := range ready.Rollouts {
		r, err := p.log.Rollout(t.Context(), "r", id)
		if err != nil {
			t.Fatal(err)
		}
		var trained, sampled []int32
		segments, summaries := 0, 0
		for _, turn := range r.Turns {
			sampled = append(sampled, turn.TokenIDs...)
			if turn.Summary != nil {
				summaries++
			}
		}
		for _, s := range samples {
			if s.Rollout != id {
				continue
			}
			segments++
			for i, yes := range s.LossMask {
				if yes {
					trained = append(trained, s.Tokens[i])
				}
			}
			if s.Reward != 1 || int(s.RolloutSampled) != len(sampled) || int(s.SamplesInRollout) != summaries+1 {
				t.Errorf("%s: sample %d has reward %g, is one of %d, and counts %d tokens of %d", id, s.SampleIndex,
					s.Reward, s.SamplesInRollout, s.RolloutSampled, len(sampled))
			}
		}
		if summaries == 0 || segments != summaries+1 || !slices.Equal(trained, sampled) ||
			len(sampled) != 10*len(r.Turns) {
			t.Errorf("%s: %d turns with %d summaries, %d samples, %d tokens trained on, %d sampled", id, len(r.Turns),
				summaries, segments, len(trained), len(sampled))
		}
	}
	if found, err := audit.Check(t.Context(), p.log.Reader, "r"); err != nil || len(found.Findings) > 0 ||
		len(ready.Rollouts) != 2 {
		t.Errorf("%d rollouts, %v, %v", len(ready.Rollouts), found.Findings, err)
	}
}
