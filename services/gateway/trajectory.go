package gateway

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// trajectory lays a rollout out as one row per message: for each turn what it was asked with, and
// what it said. Turns that an agent has left behind have none.
func trajectory(r *events.Rollout, stopReason string) (*storage.Trajectory, error) {
	t := &storage.Trajectory{
		Run: r.Run, Group: r.Started.Group, Rollout: r.ID, Task: r.Started.Task,
		StopReason: stopReason, DispatchVersion: r.Started.PolicyVersion,
	}
	// A text in a masked conversation keeps the others trained on.
	for _, turn := range unmasked(r.Taken()) {
		t.TextOnly = t.TextOnly || turn.TextOnly
	}
	turns := withoutLeft(r)
	segments := newTree(turns).of
	for i, turn := range turns {
		if r.Left(i) {
			continue
		}
		if rule := turn.MaskedBy(); rule != "" {
			if t.Masked == nil {
				t.Masked = map[int32]string{}
			}
			t.Masked[int32(segments[i])] = rule
		}
		var before []storage.Image // in its prompt, of the turns that it goes on with
		if turn.NewSegment && turn.After != nil {
			before = imagesUpTo(turns, *turn.After)
		}
		rows, err := turnRows(turn, int32(i), int32(segments[i]), before, t.TextOnly)
		if err != nil {
			return nil, err
		}
		t.Messages = append(t.Messages, rows...)
	}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	return t, nil
}

// unmasked are the turns that the run's rules do not mask; if they mask all, those of the policy,
// and if it has none, all.
func unmasked(turns []events.TurnSampled) (trained []events.TurnSampled) {
	for _, turn := range turns {
		if turn.MaskedBy() == "" {
			trained = append(trained, turn)
		}
	}
	if trained == nil {
		trained = slices.DeleteFunc(slices.Clone(turns),
			func(t events.TurnSampled) bool { return t.AnsweredBy() != "" })
	}
	if len(trained) == 0 {
		return turns
	}
	return trained
}

// imagesUpTo are the images of a conversation that ended with a turn.
func imagesUpTo(turns []events.TurnSampled, turn int) (images []storage.Image) {
	for at := &turn; at != nil; at = turns[*at].After {
		images = slices.Concat(imagesOf(turns[*at].Prompt), images)
	}
	return images
}

func imagesOf(prompt []events.PromptMessage) (images []storage.Image) {
	for _, m := range prompt {
		images = append(images, m.Images...)
	}
	return images
}

// turnRows are the rows of one turn, whose segment's prompt has the images before, too.
func turnRows(turn events.TurnSampled, index, segment int32, before []storage.Image,
	textOnly bool) ([]storage.Message, error) {
	var rows []storage.Message
	for _, m := range turn.Prompt {
		calls, err := events.CallsText(m.ToolCalls)
		if err != nil {
			return nil, err
		}
		row := storage.Message{Role: m.Role, Content: m.Content, Images: m.Images, Name: m.Name,
			ToolCallID: m.ToolCallID, ToolCalls: calls, Turn: index, Segment: segment, PolicyVersion: -1}
		if m.Role == "tool" && turn.After != nil {
			row.Turn = int32(*turn.After) // it answers that turn
		}
		rows = append(rows, row)
	}
	textOnly = textOnly || turn.TextOnly
	if textOnly {
		turn.TokenIDs, turn.Logprobs, turn.VersionSpans, turn.Columns = nil, nil, nil, nil
	}
	answer, err := turn.Row(segment)
	if err != nil || textOnly {
		return append(rows, answer), err
	}
	if len(rows) == 0 || turn.NewSegment && turn.After != nil {
		// The tokens are those of messages that are elsewhere already.
		rows = append(rows, storage.Message{Role: events.RolePrompt, Turn: index, Segment: segment, PolicyVersion: -1,
			Images: slices.Concat(before, imagesOf(turn.Prompt))})
	}
	events.PromptTokens(&rows[len(rows)-1], turn.PromptDelta)
	return append(rows, answer), nil
}
