package inference_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// aborting is a server that gives an answer in so many parts, each of another version of the
// weights, and takes no request behind the first.
func aborting(t *testing.T, engine string, whole string, parts int) *tokenstest.Server {
	s := engines[engine](tokenstest.New(t, "Qwen3", nil))
	asked, paused := 0, false
	size := (len(whole) + parts - 1) / parts
	s.Say = func(string) (string, string) {
		if asked == 1 && !paused {
			paused = true
			return "", "paused"
		}
		part := whole[min(len(whole), asked*size):min(len(whole), (asked+1)*size)]
		if asked++; asked < parts {
			return part, "abort"
		}
		return part, ""
	}
	s.Change = func(path string, answer map[string]any) {
		spans := func(of map[string]any, tokens int) {
			of["weight_versions"] = []any{map[string]any{"version": strconv.Itoa(asked), "start": 0, "end": tokens}}
		}
		if list, is := answer["choices"].([]any); is && strings.HasSuffix(path, "generate") {
			choice := list[0].(map[string]any)
			spans(choice, len(choice["token_ids"].([]int32)))
		}
		if meta, is := answer["meta_info"].(map[string]any); is {
			spans(meta, meta["completion_tokens"].(int))
		}
	}
	return s
}

// TestAbortedTurns: a turn that the server aborts goes on from its tokens. Every token is there
// once, with its log-probability and its version, and the message is that of all.
func TestAbortedTurns(t *testing.T) {
	for _, engine := range []string{"vLLM", "SGLang"} {
		t.Run(engine, func(t *testing.T) {
			text := tokenstest.Templates["Qwen3"].Answer("I think of it.", "I read it now.", "a")
			s := aborting(t, engine, text, 3)
			k := newTalk(t, s)
			answer, err := k.ask()
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Done()
			turn, prompt, err := answer.Turn(0, 7, time.Now())
			if err != nil || turn.TextOnly || len(turn.Lacks) > 0 {
				t.Fatalf("the turn is %+v: %v", turn, err)
			}
			var ids []int32
			var logprobs []float32
			var spans []events.VersionSpan
			for i, asked := range s.Turns() {
				if !slices.Equal(asked.Prompt, slices.Concat(prompt, ids)) {
					t.Errorf("part %d was asked behind another prompt", i)
				}
				spans = append(spans, events.VersionSpan{Version: int64(i + 1), Start: len(ids),
					End: len(ids) + len(asked.Sampled)})
				ids = append(ids, asked.Sampled...)
				for n := range asked.Sampled {
					logprobs = append(logprobs, tokenstest.Logprob(n))
				}
			}
			if len(spans) != 3 || !slices.Equal(turn.TokenIDs, ids) || !slices.Equal(turn.Logprobs, logprobs) ||
				!slices.Equal(turn.VersionSpans, spans) || turn.PolicyVersion != 1 {
				t.Errorf("the turn is %+v, want spans %+v", turn, spans)
			}
			if turn.Content != "I read it now." || turn.Reasoning == nil || turn.Reasoning.Text != "I think of it." ||
				len(turn.ToolCalls) != 1 || turn.FinishReason != "tool_calls" {
				t.Errorf("the message is %q with %+v and %+v, %s", turn.Content, turn.Reasoning,
					turn.ToolCalls, turn.FinishReason)
			}
		})
	}
}

// TestAbortsAreBounded: an answer of all parts has no more tokens than one, and a server that
// only aborts is given up.
func TestAbortsAreBounded(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", func(string) (string, string) { return "so we go ", "abort" })
	k := newTalk(t, s)
	k.most = 10
	answer, err := k.ask()
	if err != nil || len(answer.Choices[0].TokenIDs) != k.most || answer.Choices[0].FinishReason != "length" {
		t.Fatalf("%+v: %v", answer, err)
	}
	answer.Done()
	s = tokenstest.New(t, "Qwen3", func(string) (string, string) { return "", "abort" })
	if answer, err = newTalk(t, s).ask(); err != nil || !answer.Aborted() || len(s.Turns()) != 1 {
		t.Fatalf("nothing was sampled, and the answer is %+v: %v", answer, err)
	}
	answer.Done()
	s = tokenstest.New(t, "Qwen3", nil)
	s.Say = func(prompt string) (string, string) { return "so we go ", "abort" }
	s.Change = func(path string, answer map[string]any) {
		if list, is := answer["choices"].([]any); is && strings.HasSuffix(path, "generate") {
			delete(list[0].(map[string]any), "logprobs")
		}
	}
	if _, err := newTalk(t, s).ask(); err == nil || !strings.Contains(err.Error(), inference.ErrTokens.Error()) {
		t.Errorf("parts without log-probabilities: %v", err)
	}
}
