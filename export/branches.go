package export

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// turnShape is what a turn of a harness's rollout says about its place in the conversation: it was
// asked with so many messages behind the conversation that ended with turn after, or with nothing
// before them where after is -1.
type turnShape struct{ after, prompt int }

// leftBehind is the prompt of a turn that an agent has left behind when it was started anew:
// it is in no conversation.
const leftBehind = -1

// leave takes turns out that an agent has left behind. A turn that went on behind one of them
// takes its messages over.
func leave(turns []turnShape, left []int) []turnShape {
	if len(left) == 0 {
		return turns
	}
	kept := slices.Clone(turns)
	for _, i := range left {
		if i >= 0 && i < len(kept) {
			kept[i] = turnShape{-1, leftBehind}
		}
	}
	for i := range kept {
		at := &kept[i]
		for at.prompt != leftBehind && at.after >= 0 && at.after < i && kept[at.after].prompt == leftBehind {
			at.prompt, at.after = at.prompt+1+turns[at.after].prompt, turns[at.after].after
		}
	}
	return kept
}

func shapeOf(turn events.TurnSampled) turnShape {
	s := turnShape{after: -1, prompt: len(turn.Prompt)}
	if turn.After != nil {
		s.after = *turn.After
	}
	return s
}

// branch is one conversation of a rollout, from its first message to a turn that nothing continues.
type branch struct {
	leaf     int // the turn at its end
	messages []storage.Message
	copied   int // how many of the messages stand in an earlier branch, too
}

// branches are the conversations of a rollout. A harness may go back, try twice or rewrite the
// history: its turns are a tree, and only a path through it was ever a conversation. Other rollouts
// are one conversation, and one more behind each summary.
func branches(t *storage.Trajectory, turns []turnShape) ([]branch, error) {
	if len(turns) == 0 {
		return segmentBranches(t)
	}
	blocks, err := blocksOf(t, turns)
	if err != nil {
		return nil, fmt.Errorf("rollout %s: %w", t.Rollout, err)
	}
	continued := make([]bool, len(turns))
	for _, turn := range turns {
		if turn.after >= 0 {
			continued[turn.after] = true
		}
	}
	var all []branch
	written := make([]bool, len(turns))
	for leaf := range turns {
		if continued[leaf] || turns[leaf].prompt == leftBehind {
			continue
		}
		var path []int
		for at := leaf; at >= 0; at = turns[at].after {
			path = append(path, at)
		}
		b := branch{leaf: leaf}
		for _, at := range slices.Backward(path) {
			if written[at] {
				b.copied += len(blocks[at])
			}
			written[at] = true
			b.messages = append(b.messages, blocks[at]...)
		}
		all = append(all, b)
	}
	return all, nil
}

// blocksOf are the rows of each turn: the messages that it was asked with, its tokens where they
// are a row of their own, and its answer.
func blocksOf(t *storage.Trajectory, turns []turnShape) ([][]storage.Message, error) {
	var blocks [][]storage.Message
	rest := t.Messages
	for i, turn := range turns {
		n := turn.prompt
		if n == leftBehind {
			blocks = append(blocks, nil)
			continue
		}
		if n < len(rest) && rest[n].Role == events.RolePrompt {
			n++
		}
		if turn.after >= i || n >= len(rest) || rest[n].Role != "assistant" || int(rest[n].Turn) != i {
			return nil, fmt.Errorf("its file and its log disagree about turn %d", i)
		}
		blocks, rest = append(blocks, rest[:n+1]), rest[n+1:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("its file has %d messages behind its last turn", len(rest))
	}
	return blocks, nil
}

// segmentBranches are the conversations of a rollout of which the log has no tree: one for each
// segment of a file that somebody handed in, if each says all of its conversation.
func segmentBranches(t *storage.Trajectory) ([]branch, error) {
	if !events.External(t.Rollout) {
		return summedBranches(t), nil
	}
	var all []branch
	at := map[int32]int{}
	for _, m := range t.Messages {
		i, known := at[m.Segment]
		if !known {
			if i = len(all); i > 0 && m.Role == events.RolePrompt {
				return nil,
					fmt.Errorf("rollout %s: segment %d of its file has the tokens of its prompt, and not the messages: no conversation follows from it",
						t.Rollout, m.Segment)
			}
			at[m.Segment] = i
			all = append(all, branch{})
		}
		all[i].leaf, all[i].messages = int(m.Turn), append(all[i].messages, m)
	}
	return all, nil
}

// summedBranches are the conversations of one of Rondo's own rollouts: behind a summary a new one
// begins, with messages of its own. Where only tokens came back in another way, it goes on.
func summedBranches(t *storage.Trajectory) []branch {
	var all []branch
	begin := 0
	for i, m := range t.Messages {
		if i+1 < len(t.Messages) && (t.Messages[i+1].Segment == m.Segment ||
			t.Messages[i+1].Role == events.RolePrompt) {
			continue
		}
		all = append(all, branch{leaf: int(m.Turn), messages: t.Messages[begin : i+1]})
		begin = i + 1
	}
	if len(all) == 0 {
		all = []branch{{}}
	}
	return all
}
