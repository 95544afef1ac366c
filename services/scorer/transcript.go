package scorer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of a transcript, in bytes.
const (
	maxTranscript = 4 << 20
	maxSaid       = 64 << 10 // of one text
)

// transcript is what tests and judges may read of a rollout.
type transcript struct {
	Rollout    string `json:"rollout"`
	Task       string `json:"task"`
	StopReason string `json:"stop_reason"`
	// LeftOut is how many messages are left out behind the first ones, as there is no room for all.
	LeftOut  int             `json:"left_out"`
	Messages []spokenMessage `json:"messages"`
}

// spokenMessage is a message of the conversation.
type spokenMessage struct {
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	Reasoning  string          `json:"reasoning,omitempty"`
	Name       string          `json:"name,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	Turn       int32           `json:"turn"`
}

// transcript reads a finished rollout's conversation.
func (s *Service) transcript(ctx context.Context, r *events.Rollout) ([]byte, error) {
	file, err := storage.GetBlob(ctx, s.store, r.Finished.Trajectory)
	if err != nil {
		return nil, fmt.Errorf("trajectory of rollout %s: %w", r.ID, err)
	}
	t, err := storage.DecodeTrajectory(file)
	if err != nil {
		return nil, fmt.Errorf("trajectory of rollout %s: %w", r.ID, err)
	}
	return writeTranscript(t, maxTranscript)
}

// opening is how many messages at the beginning are never left out: the system's and the task.
const opening = 2

// writeTranscript writes the conversation, with the middle of long texts and, beyond most bytes, of
// the conversation left out.
func writeTranscript(t *storage.Trajectory, most int) ([]byte, error) {
	doc := transcript{Rollout: t.Rollout, Task: t.Task, StopReason: t.StopReason, Messages: []spokenMessage{}}
	var sizes []int
	total := 1024 // what stands around the messages
	for _, m := range t.Messages {
		if m.Role == "prompt" { // holds tokens alone
			continue
		}
		one := spokenMessage{
			Role: m.Role, Content: shortened(m.Content, maxSaid), Reasoning: shortened(m.Reasoning, maxSaid),
			Name: m.Name, ToolCallID: m.ToolCallID, Turn: m.Turn,
		}
		if one.ToolCalls = json.RawMessage(m.ToolCalls); len(m.ToolCalls) > maxSaid {
			cut, err := json.Marshal([]string{shortened(m.ToolCalls, maxSaid)})
			if err != nil {
				return nil, err
			}
			one.ToolCalls = cut
		}
		text, err := plainJSON(one)
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", m.Turn, err)
		}
		doc.Messages, sizes, total = append(doc.Messages, one), append(sizes, len(text)+1), total+len(text)+1
	}
	for total > most && opening+doc.LeftOut < len(sizes)-1 {
		total -= sizes[opening+doc.LeftOut]
		doc.LeftOut++
	}
	if doc.LeftOut > 0 {
		doc.Messages = append(doc.Messages[:opening:opening], doc.Messages[opening+doc.LeftOut:]...)
	}
	return plainJSON(doc)
}

// plainJSON leaves <, > and & as they were said, which tests may look for.
func plainJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}
