package inference_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestScore: each server's log-probabilities come to the tokens that they are of. An answer that is
// one place off, lacks a token or holds no log-probability is refused for good.
func TestScore(t *testing.T) {
	tokens := []int32{11, 5, 902, 5, 44}
	for api, path := range map[string]string{runfile.TeacherVLLM: "/v1", runfile.TeacherSGLang: ""} {
		value := func(entry any, v any) any { // an entry of another value
			switch e := entry.(type) {
			case map[string]any:
				for id := range e {
					return map[string]any{id: map[string]any{"logprob": v}}
				}
			case []any:
				return []any{v, e[1], nil}
			}
			return nil
		}
		for name, c := range map[string]struct {
			entries func([]any) []any
			want    string
		}{
			"as it is": {nil, ""},
			"off by one": {func(l []any) []any { return append(append([]any{l[0]}, l[2:]...), l[1]) },
				"entry 1 is of token 902, the token there is 5"},
			"one too few":  {func(l []any) []any { return l[1:] }, "4 entries for 5 tokens"},
			"one too many": {func(l []any) []any { return append(l, l[1]) }, "6 entries for 5 tokens"},
			"no probability": {func(l []any) []any { l[2] = value(l[2], nil); return l },
				"entry 2 has no log-probability of token 902"},
			"minus infinity": {func(l []any) []any { l[2] = value(l[2], -9999.0); return l }, "token 2 has -9999"},
			"above 0":        {func(l []any) []any { l[4] = value(l[4], 0.5); return l }, "token 4 has 0.5"},
			"nothing":        {func(l []any) []any { return nil }, "0 entries for 5 tokens"},
		} {
			t.Run(api+" "+name, func(t *testing.T) {
				server := tokenstest.NewTeacher(t)
				server.Entries = c.entries
				client := inference.Client{HTTP: server.Client(), APIKey: "secret-key"}
				score, err := client.Score(t.Context(), runfile.Teacher{URL: server.URL + path, API: api, Model: "big"},
					tokens)
				if c.want != "" {
					var failed *inference.Failure
					if !errors.As(err, &failed) || !failed.Permanent ||
						!strings.Contains(err.Error(), c.want) || score.Logprobs != nil {
						t.Errorf("got %v, %v, want a failure that says %q", score, err, c.want)
					}
					return
				}
				if err != nil || len(score.Logprobs) != len(tokens) || score.Logprobs[0] != 0 ||
					score.Model+score.Version != map[string]string{"vllm": "big", "sglang": "v7"}[api] {
					t.Fatalf("got %+v, %v", score, err)
				}
				for i, got := range score.Logprobs[1:] {
					if want := tokenstest.TeacherLogprob(tokens, i+1); got != want {
						t.Errorf("token %d has %g, want %g", i+1, got, want)
					}
				}
				if keys := server.Keys(); len(keys) != 1 || keys[0] != "secret-key" {
					t.Errorf("the server was shown %q", keys)
				}
			})
		}
	}
}
