package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
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

// request is that of a client that says a conversation, bound to a rollout's turns.
func (c talk) request(t testing.TB, turns []events.TurnSampled) *ask {
	t.Helper()
	a := &ask{Request: &dialects.Request{Forward: map[string]json.RawMessage{}, Conversation: slices.Clone(c)}}
	for _, m := range c {
		said := inference.Recorded(&events.TurnSampled{Content: m.Content, ToolCalls: m.ToolCalls})
		said.Role, said.ToolCallID = m.Role, m.ToolCallID
		text, err := inference.Encode(said)
		if err != nil {
			t.Fatal(err)
		}
		a.Messages = append(a.Messages, text)
	}
	if err := a.bind(turns); err != nil {
		t.Fatal(err)
	}
	return a
}

// place puts a turn where it belongs.
func (c talk) place(t testing.TB, turns []events.TurnSampled, tokens []int32, turn *events.TurnSampled) {
	newTree(turns).place(c.request(t, turns), tokens, turn)
}

// TestSamplesAreWhatWasAsked drives harnesses that go on, try again, go back, forget and
// edit, at random: every turn stands in exactly one sample, behind exactly the prompt
// that it was sampled with.
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
				conversation = talk{{Role: "system", Content: fmt.Sprint("forget ", i)},
					{Role: "user", Content: "a summary"}}
			default:
				conversation = slices.Clone(asked[len(asked)-1])
			}
			if conversation[len(conversation)-1].Role == "assistant" {
				conversation = append(conversation, events.PromptMessage{Role: "user",
					Content: fmt.Sprint("go on ", rng.IntN(3))})
			}
			said := fmt.Sprint("said ", rng.IntN(4)) // the same may be said twice
			turn := events.TurnSampled{Turn: i, Content: said, TokenIDs: []int32{code(said)},
				Logprobs: []float32{-1}, FinishReason: "stop"}
			before, a := newTree(r.Turns), conversation.request(t, r.Turns)
			before.place(a, conversation.tokens(), &turn)
			for k := range before.segments {
				tip := before.tip(k)
				if before.lengths[tip] < a.held {
					continue // the request goes on behind it, in another segment
				}
				whole := append(slices.Clone(prompts[tip]), r.Turns[tip].TokenIDs...)
				if asked := conversation.tokens(); turn.NewSegment && len(asked) >= len(whole) &&
					slices.Equal(asked[:len(whole)], whole) {
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
				if !slices.Equal(s.Tokens[:span.Start], prompts[span.Turn]) ||
					!slices.Equal(s.Tokens[span.Start:span.Start+span.Length], r.Turns[span.Turn].TokenIDs) {
					t.Fatalf("seed %d: turn %d was asked with %v, its sample says %v", seed, span.Turn,
						prompts[span.Turn], s.Tokens[:span.Start])
				}
			}
		}
		if len(seen) != len(r.Turns) {
			t.Fatalf("seed %d: %d of %d turns are in samples", seed, len(seen), len(r.Turns))
		}
		if f := events.NewRolloutFinished(tr); f.Turns != len(r.Turns) || f.Sampled != len(r.Turns) ||
			f.Samples != len(tr.Samples()) {
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
		conversation.place(t, turns, []int32{int32(i), 5}, &turn) // tokens never go on
		if !turn.NewSegment || i > 0 && (turn.After == nil || *turn.After != i-1 || len(turn.Prompt) != 1) {
			t.Errorf("turn %d is %+v", i, turn)
		}
		turns = append(turns, turn)
		conversation = append(conversation, events.PromptMessage{Role: "assistant", Content: "thought"},
			events.PromptMessage{Role: "user", Content: "more"})
	}
}

// TestTokensCountMoreThanText: what the tokens prove goes on, however the harness spells it.
func TestTokensCountMoreThanText(t *testing.T) {
	first := events.TurnSampled{Content: "<think>so</think>a", TokenIDs: []int32{3}, Logprobs: []float32{-1},
		PromptDelta: []int32{1, 2}, NewSegment: true, Prompt: talk{{Role: "user", Content: "q"}}}
	turn := events.TurnSampled{Turn: 1}
	asked := talk{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a"}, {Role: "user", Content: "more"}}
	asked.place(t, []events.TurnSampled{first}, []int32{1, 2, 3, 4}, &turn)
	if turn.NewSegment || !slices.Equal(turn.PromptDelta, []int32{4}) || len(turn.Prompt) != 1 ||
		turn.Prompt[0].Content != "more" {
		t.Errorf("placed as %+v", turn)
	}
}

// TestWhyASampleBegins: the books say what a harness's prompt did not repeat.
func TestWhyASampleBegins(t *testing.T) {
	asked := talk{{Role: "user", Content: "q"}}
	answered := append(slices.Clone(asked), events.PromptMessage{Role: "assistant", Content: "a"})
	more := append(slices.Clone(answered), events.PromptMessage{Role: "user", Content: "more"})
	first := events.TurnSampled{Content: "a", TokenIDs: []int32{3, 4, 5}, PromptDelta: []int32{1, 2},
		Prompt: asked, NewSegment: true}
	thinks := first
	thinks.Reasoning = &events.Reasoning{Text: "hm"}
	second := events.TurnSampled{Turn: 1, Content: "b", TokenIDs: []int32{7}, PromptDelta: []int32{6},
		Prompt: more[2:], After: new(int)}
	for name, c := range map[string]struct {
		turns  []events.TurnSampled
		asked  talk
		tokens []int32
		want   string
	}{
		"the first":         {nil, asked, []int32{1, 2}, ""},
		"goes on":           {[]events.TurnSampled{first}, more, []int32{1, 2, 3, 4, 5, 6}, ""},
		"thoughts left out": {[]events.TurnSampled{thinks}, more, []int32{1, 2, 5, 6}, events.CauseThoughts},
		"other tokens":      {[]events.TurnSampled{first}, more, []int32{1, 2, 9, 5, 6}, events.CauseDrift},
		"another prompt":    {[]events.TurnSampled{first}, more, []int32{9, 2, 3, 4, 5, 6}, events.CauseHistory},
		"back over a turn": {[]events.TurnSampled{first, second}, more,
			[]int32{1, 2, 3, 4, 5, 8}, events.CauseSibling},
		"by text alone": {[]events.TurnSampled{first}, more, nil, ""},
		"another talk": {[]events.TurnSampled{first},
			talk{{Role: "system", Content: "s"}, {Role: "user", Content: "x"}}, []int32{9}, events.CauseUnrelated},
		"a shorter talk": {[]events.TurnSampled{first, second},
			talk{{Role: "user", Content: "x"}, {Role: "user", Content: "y"}, {Role: "user", Content: "z"}},
			[]int32{9}, events.CauseCompacted},
	} {
		t.Run(name, func(t *testing.T) {
			var turn events.TurnSampled
			c.asked.place(t, c.turns, c.tokens, &turn)
			if turn.SegmentCause != c.want {
				t.Errorf("%q, want %q", turn.SegmentCause, c.want)
			}
		})
	}
}

// TestResultsAnswerCalls: ids of calls are the client's own, and say no more than which call a
// result is of. A request goes on with the turn that has most of its ids.
func TestResultsAnswerCalls(t *testing.T) {
	calls := func(ids ...string) (list []events.ToolCall) {
		for i, id := range ids {
			list = append(list, events.ToolCall{ID: id, Name: "f", Arguments: fmt.Sprintf(`{"n": %d}`, i)})
		}
		return list
	}
	answers := func(ids ...string) (list talk) {
		for i, id := range ids {
			list = append(list, events.PromptMessage{Role: "tool", ToolCallID: id, Content: fmt.Sprint("result ", i)})
		}
		return list
	}
	zero := 0
	first := events.TurnSampled{ToolCalls: calls("a", "b"), TokenIDs: []int32{1}, PromptDelta: []int32{1},
		NewSegment: true, Prompt: talk{{Role: "user", Content: "q"}}}
	twin := first
	twin.Turn, twin.ToolCalls = 2, calls("x", "y")
	turns := []events.TurnSampled{first, {Turn: 1, Content: "Done.", TokenIDs: []int32{2}, PromptDelta: []int32{2},
		After: &zero, Prompt: answers("a", "b")}, twin}
	for name, c := range map[string]struct {
		calls, answers []string
		more           bool
		after          int
		now            []string // the ids for the server
	}{
		"as they were":       {[]string{"a", "b"}, []string{"a", "b"}, true, 1, []string{"a", "b"}},
		"renamed":            {[]string{"c", "d"}, []string{"c", "d"}, true, 1, []string{"a", "b"}},
		"swapped, both":      {[]string{"b", "a"}, []string{"b", "a"}, true, 1, []string{"a", "b"}},
		"swapped, the calls": {[]string{"b", "a"}, []string{"a", "b"}, true, 2, nil},
		"of none":            {[]string{"a", "b"}, []string{"a", "c"}, true, 0, nil},
		"a twin's":           {[]string{"x", "y"}, []string{"x", "y"}, false, 2, []string{"x", "y"}},
		"of one of twins":    {[]string{"a", "y"}, []string{"a", "y"}, false, 2, []string{"x", "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := append(talk{{Role: "user", Content: "q"}, {Role: "assistant", ToolCalls: calls(c.calls...)}},
				answers(c.answers...)...)
			if c.more {
				asked = append(asked, events.PromptMessage{Role: "assistant", Content: "Done."},
					events.PromptMessage{Role: "user", Content: "more"})
			}
			a := asked.request(t, turns)
			var now []string
			for _, m := range a.Conversation[2:4] {
				now = append(now, m.ToolCallID)
			}
			if a.after != c.after || c.now != nil && !slices.Equal(now, c.now) {
				t.Errorf("goes on with turn %d, its results answer %q", a.after, now)
			}
		})
	}
}
