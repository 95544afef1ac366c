package probe_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/probe"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestTokens: one finding says whether turns can be asked for by tokens, and with what they cannot.
func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tokenstest.Server)
		level  string
		says   string
	}{
		"whole": {func(*tokenstest.Server) {}, probe.OK, "tokens of new messages"},
		"refused": {func(s *tokenstest.Server) { s.Refuse = http.StatusForbidden },
			probe.Trouble, "--enable-scale-out"},
		"not there": {func(s *tokenstest.Server) { s.Refuse = http.StatusNotFound },
			probe.Trouble, "--enable-scale-out"},
		"another history": {rewrites, probe.Warning, "a rendering of all messages"},
		"no log-probabilities": {func(s *tokenstest.Server) {
			s.Change = func(_ string, answer map[string]any) {
				if choices, is := answer["choices"].([]any); is {
					delete(choices[0].(map[string]any), "logprobs")
				}
			}
		}, probe.Trouble, "[logprobs]"},
	} {
		s := tokenstest.New(t, "Qwen3", nil)
		s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "I read.", "a"), "" }
		c.change(s)
		client := &inference.Client{HTTP: http.DefaultClient}
		found := probe.Tokens(t.Context(), func(ctx context.Context, conv inference.Conversation,
			fit func(int) (int, *inference.Failure)) (*inference.Response, error) {
			answer, err := client.CompleteTokens(ctx, s.URL+"/v1", conv, fit)
			answer.Done()
			return answer, err
		}, "m", runfile.NeutralSampling())
		if len(found) != 1 || found[0].Level != c.level || !strings.Contains(found[0].Found, c.says) ||
			(found[0].Do == "") != (c.level == probe.OK) {
			t.Errorf("%s: found %+v", name, found)
		}
	}
}

// rewrites has a server put another beginning before the second prompt.
func rewrites(s *tokenstest.Server) {
	s.Change = func(_ string, answer map[string]any) {
		if ids, renders := answer["token_ids"].([]int32); renders &&
			strings.Contains(s.Tokenizer.Decode(ids), "README") {
			answer["token_ids"] = slices.Concat(s.Tokenizer.Encode("A new day.", false), ids)
		}
	}
}
