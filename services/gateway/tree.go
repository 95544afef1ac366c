package gateway

import (
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// tree is a rollout's turns. Each continues the conversation of an earlier one or begins anew, since a harness may go back, try
// twice, or work on several things at once. Segments are the paths in it whose tokens are one training sample: a turn stays in its
// predecessor's where its prompt extends that one's tokens exactly, else it begins another.
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

// place says where a new turn belongs that was asked with a conversation: which turn it continues, with what behind it, which
// tokens its prompt adds, and whether a segment begins. tokens are the whole prompt's, nil for a turn that is text only.
func (t *tree) place(conversation []events.PromptMessage, tokens []int32, turn *events.TurnSampled) {
	ends := t.ends(conversation)
	after := continued(ends)
	turn.NewSegment = after < 0 || t.tip(t.of[after]) != after
	if tokens != nil {
		turn.PromptDelta, turn.NewSegment = tokens, true
		if segment, known := t.extended(tokens); segment >= 0 {
			// Tokens are exact; how a harness spells what was said does not matter then.
			after = t.tip(segment)
			turn.PromptDelta, turn.NewSegment = tokens[known:], false
		} else if after >= 0 {
			turn.SegmentCause = events.SegmentCause(t.upTo(after), tokens)
		}
	}
	if after < 0 {
		turn.Prompt = conversation
		return
	}
	end := ends[after]
	if end < 0 {
		end = min(t.lengths[after], len(conversation))
	}
	turn.After, turn.Prompt = &after, conversation[end:]
}

// upTo are the turns of a turn's segment up to itself: those behind it are of another course that the harness took.
func (t *tree) upTo(turn int) []events.TurnSampled {
	var path []events.TurnSampled
	for _, i := range t.segments[t.of[turn]] {
		if i <= turn {
			path = append(path, t.turns[i])
		}
	}
	return path
}

// continued is the turn that a conversation goes along with the farthest, of several the last; -1 for none.
func continued(ends []int) int {
	after := -1
	for i, end := range ends {
		if end >= 0 && (after < 0 || end >= ends[after]) {
			after = i
		}
	}
	return after
}

// ends says for each turn up to where a conversation goes along with it; -1 where it does not.
func (t *tree) ends(conversation []events.PromptMessage) []int {
	ends := make([]int, len(t.turns))
	for i, turn := range t.turns {
		at := 0
		if turn.After != nil {
			at = ends[*turn.After]
		}
		ends[i] = -1
		end := at + len(turn.Prompt)
		if at < 0 || end >= len(conversation) || !slices.EqualFunc(conversation[at:end], turn.Prompt, same) || !same(conversation[end], messageOf(turn)) {
			continue
		}
		ends[i] = end + 1
	}
	return ends
}

// extended is the segment whose tokens a prompt extends, of several the longest, and how many they are; -1 for none.
func (t *tree) extended(prompt []int32) (segment, known int) {
	segment = -1
	for s, turns := range t.segments {
		if n, ok := t.begins(prompt, turns); ok && n > known {
			segment, known = s, n
		}
	}
	return segment, known
}

// begins reports whether a prompt begins with the tokens of some turns, and how many they are.
func (t *tree) begins(prompt []int32, turns []int) (n int, ok bool) {
	for _, i := range turns {
		for _, part := range [][]int32{t.turns[i].PromptDelta, t.turns[i].TokenIDs} {
			if t.turns[i].TextOnly || len(prompt)-n < len(part) || !slices.Equal(prompt[n:n+len(part)], part) {
				return 0, false
			}
			n += len(part)
		}
	}
	return n, true
}

// messageOf is a turn as a message of the prompts after it.
func messageOf(t events.TurnSampled) events.PromptMessage {
	return events.PromptMessage{Role: "assistant", Content: t.Content, ToolCalls: t.ToolCalls}
}

// same compares messages as far as every harness repeats them: arguments are spelled anew, and space is lost.
func same(a, b events.PromptMessage) bool {
	return a.Role == b.Role && a.ToolCallID == b.ToolCallID && strings.TrimSpace(a.Content) == strings.TrimSpace(b.Content) &&
		slices.EqualFunc(a.ToolCalls, b.ToolCalls, func(x, y events.ToolCall) bool { return x.ID == y.ID && x.Name == y.Name })
}
