package inference_test

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestTextEndsBeforeTheStopToken: by tokens an answer says what it says in a chat, without the
// token that ended it, and ends for the same reason.
func TestTextEndsBeforeTheStopToken(t *testing.T) {
	for template := range tokenstest.Templates {
		for name, change := range map[string]func(*tokenstest.Server){
			"vllm": func(*tokenstest.Server) {}, "older vllm": func(s *tokenstest.Server) { s.Older = true },
			"oldest vllm": func(s *tokenstest.Server) { s.Older, s.Oldest = true, true },
			"sglang":      func(s *tokenstest.Server) { s.SGLang() },
			"llama.cpp":   func(s *tokenstest.Server) { s.LlamaCPP() },
		} {
			if name == "sglang" && template != "Qwen3" && template != "GLM" {
				continue
			}
			s := tokenstest.New(t, template, nil)
			change(s)
			for path, want := range map[string]string{"": events.FinishStop, "a": events.FinishToolCalls} {
				s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "Done.", path), "" }
				k := newTalk(t, s)
				k.turn()
				if k.last.Content != "Done." || k.last.FinishReason != want || k.last.FinishWord != "" ||
					(len(k.last.ToolCalls) == 1) != (path != "") {
					t.Errorf("%s, %s: it says %q and ends with %q %q, want %q", template, name, k.last.Content,
						k.last.FinishReason, k.last.FinishWord, want)
				}
			}
		}
	}
}
