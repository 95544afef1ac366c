package events

import (
	"errors"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestAdvanced: an answer that goes on by some tokens between two failed tries has advanced, and
// begins its tries anew. One that goes on by a token in each try does not.
func TestAdvanced(t *testing.T) {
	var r Rollout
	happen := func(e Event, err error) {
		t.Helper()
		e.Seq = r.Tail + 1
		if err == nil {
			err = r.apply(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	happen(New("r", RolloutStartedType, "g000001-0", "0", RolloutStarted{}))
	recorded := 0
	for i, step := range []struct {
		tokens   int // 0 is a try that fails
		tries    int
		advanced bool
	}{
		{0, 1, false}, {progressTokens - 1, 1, false}, {1, 0, true}, {0, 1, false}, {1, 1, false}, {0, 2, false},
		{1, 2, false}, {0, 3, false}, {progressTokens, 0, true}, {1, 0, true},
	} {
		if n := step.tokens; n > 0 {
			happen(r.Piece(PieceSampled{Prompt: "p", Offset: recorded, TokenIDs: make([]int32, n),
				Logprobs: slices.Repeat([]float32{-1}, n), VersionSpans: []VersionSpan{{End: n}}}))
			recorded += n
		} else {
			e, _, err := r.Retry(runfile.Limits{Tries: 9}, StageGenerator, ClassEndpoint, errors.New("died"))
			happen(e, err)
		}
		if r.Tries != step.tries || r.Advanced() != step.advanced {
			t.Errorf("step %d: %d tries, advanced is %v", i, r.Tries, r.Advanced())
		}
	}
	happen(New("r", TurnSampledType, "g000001-0", "0", TurnSampled{}))
	if r.Advanced() {
		t.Error("a new turn has advanced before it began")
	}
}
