package gateway

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// talk is what a harness says, and the tokens that a template makes of it: two for each message.
type talk []events.PromptMessage

func (c talk) tokens() []int32 {
	var ids []int32
	for _, m := range c {
		ids = append(ids, int32(len(m.Role)), code(m.Content))
	}
	return append(ids, int32(len("assistant")))
}

// code is one token for a text.
func code(text string) int32 {
	n := int32(7)
	for _, b := range []byte(text) {
		n = n*31%1_000_003 + int32(b)
	}
	return 100 + n
}

// TestSamplesAreWhatWasAsked drives harnesses that go on, try again, go back, forget and edit, at random: every turn stands in
// exactly one sample, behind exactly the prompt that it was sampled with.
func TestSamplesAreWhatWasAsked(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := &events.Rollout{Run: "r", ID: "x1-0", Started: events.RolloutStarted{Group: "x1", Task: "a"}}
		asked := []talk{{{Role: "user", Content: "begin"}}}
		var prompts [][]int32
		for i := range 1 + rng.IntN(15) {
			conversation := slices.Clone(asked[rng.IntN(len(asked))])
			switch rng.IntN(6) {
			case 0: // once more, or back
			case 1:
				conversation[rng.IntN(len(conversation))].Content += "!"
			case 2:
				conversation = talk{{Role: "system", Content: fmt.Sprint("forget ", i)}, {Role: "user", Content: "a summary"}}
			default:
				conversation = slices.Clone(asked[len(asked)-1])
			}
			if conversation[len(conversation)-1].Role == "assistant" {
				conversation = append(conversation, events.PromptMessage{Role: "user", Content: fmt.Sprint("go on ", rng.IntN(3))})
			}
			said := fmt.Sprint("said ", rng.IntN(4)) // the same may be said twice
			turn := events.TurnSampled{Turn: i, Content: said, TokenIDs: []int32{code(said)}, Logprobs: []float32{-1}, FinishReason: "stop"}
			before := newTree(r.Turns)
			before.place(conversation, conversation.tokens(), &turn)
			for k := range before.segments {
				tip := before.tip(k)
				whole := append(slices.Clone(prompts[tip]), r.Turns[tip].TokenIDs...)
				if asked := conversation.tokens(); turn.NewSegment && len(asked) >= len(whole) && slices.Equal(asked[:len(whole)], whole) {
					t.Fatalf("seed %d: turn %d extends turn %d, and begins a segment", seed, i, tip)
				}
			}
			r.Turns = append(r.Turns, turn)
			prompts = append(prompts, conversation.tokens())
			asked = append(asked, append(conversation, events.PromptMessage{Role: "assistant", Content: said}))
		}
		tr, err := trajectory(r, events.StopFinished)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := storage.EncodeTrajectory(tr); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		seen := map[int32]bool{}
		for _, s := range tr.Samples() {
			for _, span := range s.Turns {
				if seen[span.Turn] {
					t.Fatalf("seed %d: turn %d is trained twice", seed, span.Turn)
				}
				seen[span.Turn] = true
				if !slices.Equal(s.Tokens[:span.Start], prompts[span.Turn]) || !slices.Equal(s.Tokens[span.Start:span.Start+span.Length], r.Turns[span.Turn].TokenIDs) {
					t.Fatalf("seed %d: turn %d was asked with %v, its sample says %v", seed, span.Turn, prompts[span.Turn], s.Tokens[:span.Start])
				}
			}
		}
		if len(seen) != len(r.Turns) {
			t.Fatalf("seed %d: %d of %d turns are in samples", seed, len(seen), len(r.Turns))
		}
		if f := events.NewRolloutFinished(tr); f.Turns != len(r.Turns) || f.Sampled != len(r.Turns) || f.Samples != len(tr.Samples()) {
			t.Fatalf("seed %d: figures %+v", seed, f)
		}
	}
}

// TestTextIsNotRepeated: a template that changes the history costs new tokens, and no text.
func TestTextIsNotRepeated(t *testing.T) {
	var turns []events.TurnSampled
	conversation := talk{{Role: "user", Content: "begin"}}
	for i := range 4 {
		turn := events.TurnSampled{Turn: i, Content: " thought ", TokenIDs: []int32{1}, Logprobs: []float32{-1}}
		newTree(turns).place(conversation, []int32{int32(i), 5}, &turn) // tokens never go on
		if !turn.NewSegment || i > 0 && (turn.After == nil || *turn.After != i-1 || len(turn.Prompt) != 1) {
			t.Errorf("turn %d is %+v", i, turn)
		}
		turns = append(turns, turn)
		conversation = append(conversation, events.PromptMessage{Role: "assistant", Content: "thought"}, events.PromptMessage{Role: "user", Content: "more"})
	}
}

// TestTokensCountMoreThanText: what the tokens prove goes on, however the harness spells it.
func TestTokensCountMoreThanText(t *testing.T) {
	first := events.TurnSampled{Content: "<think>so</think>a", TokenIDs: []int32{3}, Logprobs: []float32{-1}, PromptDelta: []int32{1, 2}, NewSegment: true, Prompt: talk{{Role: "user", Content: "q"}}}
	turn := events.TurnSampled{Turn: 1}
	newTree([]events.TurnSampled{first}).place(talk{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a"}, {Role: "user", Content: "more"}}, []int32{1, 2, 3, 4}, &turn)
	if turn.NewSegment || !slices.Equal(turn.PromptDelta, []int32{4}) || len(turn.Prompt) != 1 || turn.Prompt[0].Content != "more" {
		t.Errorf("placed as %+v", turn)
	}
}
