package export

import (
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// TestReasoningIsExported: thoughts that the server took out of the text are thoughts in every
// export, like those that stand in the text.
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

// TestUnknownVersionIsNoCopy: a turn of a server that names no version was sampled here, unlike one
// that a fork has of its origin.
func TestUnknownVersionIsNoCopy(t *testing.T) {
	for name, c := range map[string]struct {
		loss   []bool
		copied bool
	}{"sampled": {[]bool{true}, false}, "copied": {[]bool{false}, true}} {
		t.Run(name, func(t *testing.T) {
			step := agentStep(storage.Message{Role: "assistant", PolicyVersion: -1, TokenIDs: []int32{1},
				LossMask: c.loss}, nil, "m")
			if step.Copied != c.copied || (step.LLMCalls == nil) != c.copied {
				t.Errorf("copied %t", step.Copied)
			}
		})
	}
}

// TestTokenColumnsOfSteps: a step of ATIF says where the numbers beside its tokens are, and has
// none where there are none.
func TestTokenColumnsOfSteps(t *testing.T) {
	columns := []storage.TokenColumn{{Name: "routed_experts", Length: 3}}
	for _, m := range []storage.Message{{Role: "assistant", Columns: columns}, {Role: "assistant"}} {
		if said, there := agentStep(m, nil, "m").Extra["token_columns"]; there != (m.Columns != nil) ||
			there && len(said.([]storage.TokenColumn)) != 1 {
			t.Errorf("%v became %v", m.Columns, said)
		}
	}
}
