package export

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/whole"
)

// chatLine is one conversation.
type chatLine struct {
	Messages []chatMessage `json:"messages"`
	Rollout  string        `json:"rollout"`
	Group    string        `json:"group"`
	Task     string        `json:"task"`
	Reward   float64       `json:"reward"`
	// Turn is the last one of the conversation, Branches how many conversations of the rollout are
	// not masked; both only where these are several.
	Turn     *int `json:"turn,omitempty"`
	Branches int  `json:"branches,omitempty"`
}

// pairLine is the best and the worst rollout of a group.
type pairLine struct {
	Prompt          []chatMessage `json:"prompt"`
	Chosen          []chatMessage `json:"chosen"`
	Rejected        []chatMessage `json:"rejected"`
	Task            string        `json:"task"`
	Group           string        `json:"group"`
	ChosenRollout   string        `json:"chosen_rollout"`
	RejectedRollout string        `json:"rejected_rollout"`
	ChosenReward    float64       `json:"chosen_reward"`
	RejectedReward  float64       `json:"rejected_reward"`
}

// chatMessage is a message as OpenAI's chat completions have it.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"` // a text, or parts where there are images
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Name       string     `json:"name,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func exportChat(ctx context.Context, x *Exporter, lines []Rollout) (int, error) {
	return writeLines(x.Out, func(write func(any) error) error {
		for _, t := range lines {
			branches, err := x.trained(ctx, t)
			if err != nil {
				return err
			}
			for _, b := range branches {
				line := chatLine{Rollout: t.Rollout, Group: events.GroupOf(t.Rollout), Task: t.Task, Reward: *t.Reward}
				if line.Messages, err = x.conversation(ctx, t.Rollout, b.messages); err != nil {
					return err
				}
				if len(branches) > 1 {
					line.Turn, line.Branches = &b.leaf, len(branches)
				}
				if err := write(line); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func exportPairs(ctx context.Context, x *Exporter, lines []Rollout) (int, error) {
	return writeLines(x.Out, func(write func(any) error) error {
		for _, pair := range extremes(lines) {
			chosen, err := x.onlyConversation(ctx, pair[0])
			if err != nil {
				return err
			}
			rejected, err := x.onlyConversation(ctx, pair[1])
			if err != nil {
				return err
			}
			if chosen == nil || rejected == nil {
				x.Branching++
				continue
			}
			prompt := commonPrompt(chosen, rejected)
			if err := write(pairLine{
				Prompt: chosen[:prompt], Chosen: chosen[prompt:], Rejected: rejected[prompt:], Task: pair[0].Task,
				Group:         events.GroupOf(pair[0].Rollout),
				ChosenRollout: pair[0].Rollout, RejectedRollout: pair[1].Rollout, ChosenReward: *pair[0].Reward,
				RejectedReward: *pair[1].Reward,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeLines writes a file of JSON lines, which is there whole or not at all.
func writeLines(path string, fill func(write func(any) error) error) (n int, err error) {
	err = whole.File(path, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		encoder := json.NewEncoder(buffered)
		encoder.SetEscapeHTML(false)
		return errors.Join(fill(func(line any) error { n++; return encoder.Encode(line) }), buffered.Flush())
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// trained are the conversations of a rollout that its run does not mask.
func (x *Exporter) trained(ctx context.Context, t Rollout) ([]branch, error) {
	trajectory, found, err := x.branches(ctx, t)
	return slices.DeleteFunc(found, func(b branch) bool {
		return len(b.messages) > 0 && trajectory.Masked[b.messages[len(b.messages)-1].Segment] != ""
	}), err
}

// onlyConversation is what was said in a rollout of one conversation that is not masked; nil for
// one of several, or none.
func (x *Exporter) onlyConversation(ctx context.Context, t Rollout) ([]chatMessage, error) {
	branches, err := x.trained(ctx, t)
	if err != nil || len(branches) != 1 {
		return nil, err
	}
	return x.conversation(ctx, t.Rollout, branches[0].messages)
}

// conversation is what was said in messages, with the images that they show.
func (x *Exporter) conversation(ctx context.Context, rollout string, rows []storage.Message) ([]chatMessage, error) {
	messages, err := conversation(rollout, rows)
	if err != nil {
		return nil, err
	}
	said := slices.DeleteFunc(slices.Clone(rows), func(m storage.Message) bool { return m.Role == events.RolePrompt })
	for i, m := range said {
		if len(m.Images) == 0 {
			continue
		}
		if messages[i].Content, err = x.parts(ctx, m); err != nil {
			return nil, fmt.Errorf("message %d of %s: %w", m.Index, rollout, err)
		}
	}
	return messages, nil
}

// parts are a message's text and images, as chat completions have them.
func (x *Exporter) parts(ctx context.Context, m storage.Message) (parts []any, err error) {
	say := func(text string) {
		if text != "" {
			parts = append(parts, map[string]any{"type": "text", "text": text})
		}
	}
	at := 0
	for _, i := range m.Images {
		data, err := storage.GetBlob(ctx, x.Store, i.Ref)
		if err != nil {
			return nil, err
		}
		say(m.Content[at:i.At])
		url := "data:" + i.MediaType + ";base64," + base64.StdEncoding.EncodeToString(data)
		parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
		at = i.At + len(i.Name())
	}
	say(m.Content[at:])
	return parts, nil
}

// conversation is what was said in messages. Rows that only carry the tokens
// of a prompt say nothing.
func conversation(rollout string, rows []storage.Message) ([]chatMessage, error) {
	var messages []chatMessage
	for _, m := range rows {
		if m.Role == events.RolePrompt {
			continue
		}
		message := chatMessage{Role: m.Role, Content: m.Content, Reasoning: m.Reasoning,
			ToolCallID: m.ToolCallID, Name: m.Name}
		if m.ToolCalls != "" {
			var calls []events.ToolCall
			if err := json.Unmarshal([]byte(m.ToolCalls), &calls); err != nil {
				return nil, fmt.Errorf("tool calls of message %d of %s: %w", m.Index, rollout, err)
			}
			for _, c := range calls {
				message.ToolCalls = append(message.ToolCalls,
					chatCall{ID: c.ID, Type: "function", Function: chatFunction{Name: c.Name, Arguments: c.Arguments}})
			}
		}
		messages = append(messages, message)
	}
	return messages, nil
}

// commonPrompt is how many messages two conversations begin with before the model says anything.
func commonPrompt(a, b []chatMessage) int {
	n := 0
	for n < len(a) && n < len(b) && a[n].Role != "assistant" && reflect.DeepEqual(a[n], b[n]) {
		n++
	}
	return n
}

// extremes gives the best and the worst rollout of each group whose rewards differ,
// of equal ones the first.
func extremes(lines []Rollout) (pairs [][2]Rollout) {
	var order []string
	groups := map[string][2]Rollout{}
	for _, t := range lines {
		group := t.Run + "/" + events.GroupOf(t.Rollout)
		pair, known := groups[group]
		if !known {
			order = append(order, group)
			pair = [2]Rollout{t, t}
		}
		if *t.Reward > *pair[0].Reward {
			pair[0] = t
		}
		if *t.Reward < *pair[1].Reward {
			pair[1] = t
		}
		groups[group] = pair
	}
	for _, group := range order {
		if pair := groups[group]; *pair[0].Reward > *pair[1].Reward {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}
