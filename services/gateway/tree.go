package gateway

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// tree is a rollout's turns. Each continues the conversation of an earlier one or begins anew,
// since a harness may go back, try twice, or work on several things at once. Segments are the paths
// in it whose tokens are one training sample: a turn stays in its predecessor's where its prompt
// extends that one's tokens exactly, else it begins another.
type tree struct {
	turns    []events.TurnSampled
	segments [][]int // the turns of each
	of       []int   // turn → segment
	lengths  []int   // turn → messages of its conversation, with its own
}

func newTree(turns []events.TurnSampled) *tree {
	t := &tree{turns: turns}
	for i, turn := range turns {
		length, segment := len(turn.Prompt)+1, len(t.segments)
		if turn.After != nil {
			length += t.lengths[*turn.After]
		}
		if turn.NewSegment {
			t.segments = append(t.segments, nil)
		} else {
			segment = t.of[*turn.After]
		}
		t.segments[segment] = append(t.segments[segment], i)
		t.of, t.lengths = append(t.of, segment), append(t.lengths, length)
	}
	return t
}

// tip is the last turn of a segment.
func (t *tree) tip(segment int) int { return t.segments[segment][len(t.segments[segment])-1] }

// bind finds the turn with which a request goes on, and puts the rollout's own answers back into
// it. That turn stays the request's, whatever is recorded meanwhile.
func (a *ask) bind(turns []events.TurnSampled) (err error) {
	if a.base, err = a.root(); err != nil {
		return err
	}
	a.defaults = defaultsOf(a.Forward["tools"])
	t := newTree(turns)
	a.after, a.ends = t.continued(a)
	if a.after < 0 {
		return nil
	}
	a.held = a.ends[a.after]
	return a.restore(t, a.after, a.ends)
}

// place says where a turn belongs that answers a request: which turn it continues, with what
// behind it, which tokens its prompt adds, and whether and why a segment begins. tokens are the
// whole prompt's, nil for a turn that is text only. It continues the segment of the turn before it
// where its prompt extends that one's tokens exactly, and no other turn has done so before.
func (t *tree) place(a *ask, tokens []int32, turn *events.TurnSampled) {
	turn.Root, turn.Prompt = a.base, a.Conversation
	tip := false
	if a.after >= 0 {
		after := a.after
		turn.After, turn.Prompt = &after, a.Conversation[a.held:]
		tip = t.tip(t.of[after]) == after
	}
	if turn.NewSegment = !tip; tokens == nil {
		return
	}
	if a.after < 0 {
		turn.PromptDelta = tokens
		turn.SegmentCause, _ = t.beginning(a)
		return
	}
	known, extends := t.begins(tokens, a.after)
	if turn.NewSegment = !tip || !extends; !turn.NewSegment {
		turn.PromptDelta = tokens[known:]
		return
	}
	turn.PromptDelta = tokens
	switch {
	case t.turns[a.after].Root != a.base:
		turn.SegmentCause = events.CauseTools
	case !extends:
		turn.SegmentCause = events.SegmentCause(t.upTo(a.after), tokens)
	case slices.ContainsFunc(turn.Prompt, func(m events.PromptMessage) bool { return m.Role == roleAssistant }):
		turn.SegmentCause = events.CauseRewritten
	default:
		turn.SegmentCause = events.CauseSibling
	}
}

// beginning is why a segment begins with a request that goes on with no turn, "" for the first one,
// and which earlier conversation's first turn says so, -1 for none: the one that is most like it.
func (t *tree) beginning(a *ask) (cause string, of int) {
	likeness := []string{"", events.CauseSystem, events.CauseTools, events.CauseRewritten, events.CauseCompacted}
	asked, longest, most := lead(a.Conversation), t.longest(), 0
	of = -1
	for i, turn := range t.turns {
		if turn.After != nil {
			continue
		}
		own := lead(turn.Prompt)
		words := slices.EqualFunc(asked, own, a.defaults.same)
		first := len(a.Conversation) > len(asked) && len(turn.Prompt) > len(own) &&
			a.defaults.same(a.Conversation[len(asked)], turn.Prompt[len(own)])
		like := ""
		switch tools := turn.Root != a.base; {
		case !tools && len(a.Conversation) == len(turn.Prompt) &&
			slices.EqualFunc(a.Conversation, turn.Prompt, a.defaults.same):
			return events.CauseSibling, i
		case words && !tools && longest[i] > len(a.Conversation):
			like = events.CauseCompacted
		case words && !tools && first:
			like = events.CauseRewritten
		case words && first:
			like = events.CauseTools
		case first:
			like = events.CauseSystem
		}
		if n := slices.Index(likeness, like); n > most {
			most, of = n, i
		}
	}
	if most == 0 && len(t.turns) > 0 {
		return events.CauseUnrelated, -1
	}
	return likeness[most], of
}

// lead are the words of the system that a conversation begins with.
func lead(conversation []events.PromptMessage) []events.PromptMessage {
	n := slices.IndexFunc(conversation, func(m events.PromptMessage) bool {
		return m.Role != "system" && m.Role != "developer"
	})
	if n < 0 {
		n = len(conversation)
	}
	return conversation[:n]
}

// longest is for each turn how many messages the longest conversation has that goes on with it.
func (t *tree) longest() []int {
	longest := slices.Clone(t.lengths)
	for i, turn := range slices.Backward(t.turns) {
		if turn.After != nil {
			longest[*turn.After] = max(longest[*turn.After], longest[i])
		}
	}
	return longest
}

// upTo are the turns of a turn's segment up to itself: those behind it are of another
// course that the harness took.
func (t *tree) upTo(turn int) []events.TurnSampled {
	var path []events.TurnSampled
	for _, i := range t.segments[t.of[turn]] {
		if i <= turn {
			path = append(path, t.turns[i])
		}
	}
	return path
}

// known are the tokens of a turn's segment up to the turn's own end, and its samples; none where
// one has no tokens. ends are where in a request the conversations of turns end.
func (t *tree) known(turn int, ends []int) (ids []int32, samples []inference.Sampled) {
	for _, i := range t.segments[t.of[turn]] {
		u := &t.turns[i]
		switch {
		case i > turn:
			return ids, samples
		case u.TextOnly:
			return nil, nil
		}
		sample := inference.SampledOf(u, len(ids))
		sample.Message = ends[i] - 1
		ids, samples = append(append(ids, u.PromptDelta...), u.TokenIDs...), append(samples, sample)
	}
	return ids, samples
}

// begins reports whether a prompt begins with what is known up to a turn's end, and how many
// tokens these are.
func (t *tree) begins(prompt []int32, turn int) (n int, ok bool) {
	for _, u := range t.upTo(turn) {
		for _, part := range [][]int32{u.PromptDelta, u.TokenIDs} {
			if u.TextOnly || len(prompt)-n < len(part) || !slices.Equal(prompt[n:n+len(part)], part) {
				return 0, false
			}
			n += len(part)
		}
	}
	return n, true
}

// continued is the turn with which a request goes on, -1 for none, and where in the request each
// turn's conversation ends. It is one with the same tools, if there is one; of these the one that
// goes along the farthest, then with the most of the same ids of calls, of calls without a default
// filled in, with its thoughts, the end of its segment, and the last one.
func (t *tree) continued(a *ask) (after int, ends []int) {
	ends, after = make([]int, len(t.turns)), -1
	var best [6]int
	for i := range t.turns {
		end, thinks := t.end(a, i, ends)
		if ends[i] = end; end < 0 {
			continue
		}
		ids, whole := sameCalls(a.Conversation[ends[i]-1], &t.turns[i])
		rank := [6]int{one(t.turns[i].Root == a.base), ends[i], ids, whole, one(thinks), one(t.tip(t.of[i]) == i)}
		if after < 0 || slices.Compare(rank[:], best[:]) >= 0 {
			after, best = i, rank
		}
	}
	return after, ends
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// sameCalls is how many calls of an answer have their own ids, and how many have their own
// arguments, with no default filled in.
func sameCalls(m events.PromptMessage, turn *events.TurnSampled) (ids, whole int) {
	for i, c := range turn.ToolCalls {
		ids += one(m.ToolCalls[i].ID == c.ID)
		whole += one(defaults{}.sameToolCall(m.ToolCalls[i], c))
	}
	return ids, whole
}

// end is where in a request a turn's conversation ends, its own answer included; -1 where the
// request is another one. thinks: the answer is there with its thoughts.
func (t *tree) end(a *ask, i int, ends []int) (end int, thinks bool) {
	turn, at := &t.turns[i], 0
	var calls, own []events.ToolCall // of the answer before, there and here
	if turn.After != nil {
		if at = ends[*turn.After]; at < 0 {
			return -1, false
		}
		calls, own = a.Conversation[at-1].ToolCalls, t.turns[*turn.After].ToolCalls
	}
	end = at + len(turn.Prompt)
	if end >= len(a.Conversation) {
		return -1, false
	}
	for k, m := range turn.Prompt {
		said := a.Conversation[at+k]
		if !a.defaults.same(said, m) || m.Role == "tool" && !sameResult(said, m, calls, own) {
			return -1, false
		}
		if m.Role == roleAssistant {
			calls, own = said.ToolCalls, m.ToolCalls
		}
	}
	ok, thinks := a.defaults.repeats(a.Conversation[end], a.message(end), turn)
	if !ok {
		return -1, false
	}
	return end + 1, thinks
}

// message is one as its client sent it.
func (a *ask) message(i int) []byte {
	if i < len(a.Messages) {
		return a.Messages[i]
	}
	return nil
}
