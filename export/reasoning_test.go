package export

import (
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestReasoningIsExported: thoughts that the server took out of the text are thoughts in every export, like those that stand in the text.
func TestReasoningIsExported(t *testing.T) {
	m := storage.Message{Role: "assistant", Content: "Done.", Reasoning: "hm"}
	chat, err := conversation("g1-0", []storage.Message{m})
	if err != nil || len(chat) != 1 || chat[0].Reasoning != "hm" || chat[0].Content != "Done." {
		t.Errorf("chat: %+v: %v", chat, err)
	}
	if step := agentStep(m, nil, "m"); step.Reasoning != "hm" || step.Message != "Done." {
		t.Errorf("ATIF: %+v", step)
	}
}
