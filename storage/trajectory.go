package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Message is one row of a trajectory file: one message of the conversation, with the
// tokens that it added. Prompts are never repeated from turn to turn, so a file grows
// linearly with the conversation.
type Message struct {
	Index int32 // position in the trajectory
	Turn  int32 // model generation the message belongs to
	// a new one starts where the prompt stopped extending the last one exactly (a
	// summary, an edited history)
	Segment int32

	Role       string // system, user, assistant, tool; prompt: only the tokens of a prompt that begins a new segment
	Content    string // text; bytes that are not UTF-8 become U+FFFD in the file
	Name       string // the tool's name
	ToolCallID string
	ToolCalls  string // JSON array of what the model asked for, or ""
	// Images are those that Content names. A row that begins a segment with the tokens of its
	// prompt has all of the prompt's.
	Images    []Image
	Reasoning string // what the model thought, where the server took it out of the text; ""

	TokenIDs []int32   // what this message added; all rows of a segment concatenated are the whole sample
	Logprobs []float32 // sampler's natural log-probabilities, one per token; 0 where not sampled
	LossMask []bool    // one per token; true where the model sampled it, false in all of Trajectory.Masked

	// version that sampled the message; -1 where nothing was sampled, or
	// nobody reported the version
	PolicyVersion int64
	// Versions are those of the message's tokens where they are several; PolicyVersion is the
	// oldest of them then. Stale is not kept.
	Versions []VersionSegment
	// Columns are further numbers of tokens up to the end of the message. Positions are those
	// of the segment's sample.
	Columns []TokenColumn
	// Constrained: the message was sampled from another distribution than the
	// policy's, as under a grammar.
	Constrained  bool
	FinishReason string
	Workspace    string    // key of the workspace's changes after the turn, or ""
	StartedAt    time.Time // zero when unknown; nanoseconds are kept
	Duration     time.Duration
}

// rolePrompt is the role of a row that holds nothing but a prompt's tokens.
const rolePrompt = "prompt"

// Trajectory is one recorded rollout.
type Trajectory struct {
	Run, Group, Rollout, Task string
	StopReason                string
	DispatchVersion           int64 // policy version when the rollout was started
	TextOnly                  bool  // the sampler gave no token ids: no message has any
	// Masked are the segments that the run does not train on, each with the name
	// of its rule that says so.
	Masked   map[int32]string
	Messages []Message
}

// validate checks what every trajectory file promises; the error names the message.
func (t *Trajectory) validate() error {
	if t.DispatchVersion < -1 {
		return fmt.Errorf("dispatch version %d is negative", t.DispatchVersion)
	}
	for i := range t.Messages {
		if err := t.Messages[i].validate(t.TextOnly); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m := &t.Messages[i]; t.Masked[m.Segment] != "" && slices.Contains(m.LossMask, true) {
			return fmt.Errorf("message %d: its loss mask trains on segment %d, which rule %.80q masks", i,
				m.Segment, t.Masked[m.Segment])
		}
	}
	if err := t.validateImages(); err != nil {
		return err
	}
	return t.validateColumns()
}

func (m *Message) validate(textOnly bool) error {
	n := len(m.TokenIDs)
	switch {
	case len(m.Logprobs) != n || len(m.LossMask) != n:
		return fmt.Errorf("%d token ids, %d logprobs and %d entries of the loss mask; all must be as many", n,
			len(m.Logprobs), len(m.LossMask))
	case textOnly && n > 0:
		return fmt.Errorf("%d tokens in a trajectory marked text only", n)
	case m.Index < 0 || m.Turn < 0 || m.Segment < 0:
		return fmt.Errorf("negative index %d, turn %d or segment %d", m.Index, m.Turn, m.Segment)
	case m.PolicyVersion < -1:
		return fmt.Errorf("policy version %d is negative", m.PolicyVersion)
	case !m.versionsFit():
		return fmt.Errorf("%d versions of %d tokens do not follow each other from the first token to the last, or policy version %d is not the oldest of them",
			len(m.Versions), n, m.PolicyVersion)
	case m.ToolCalls != "" && !isArray([]byte(m.ToolCalls)):
		return fmt.Errorf("tool calls are not a JSON array: %.80q", m.ToolCalls)
	}
	if err := m.checkImages(); err != nil {
		return err
	}
	if err := tokencheck.IDs(m.TokenIDs); err != nil {
		return err
	}
	return checkFinite("logprobs", m.Logprobs)
}

// validateImages bounds those of each sample.
func (t *Trajectory) validateImages() error {
	images, tokens := map[int32]int{}, map[int32]int{}
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.Role == rolePrompt && tokens[m.Segment] == 0 {
			images[m.Segment] = 0
		}
		tokens[m.Segment] += len(m.TokenIDs)
		if images[m.Segment] += len(m.Images); images[m.Segment] > MaxImages {
			return fmt.Errorf("message %d: the prompts of segment %d have %d images (limit %d)", i, m.Segment,
				images[m.Segment], MaxImages)
		}
	}
	return nil
}

func (m *Message) checkImages() error {
	if m.Role == rolePrompt {
		return checkImages(m.Images)
	}
	return CheckImages(m.Images, m.Content)
}

// ConstrainedTokens counts the message's tokens that were sampled under a constraint.
func (m *Message) ConstrainedTokens() int {
	if !m.Constrained {
		return 0
	}
	return countTrue(m.LossMask)
}

func isArray(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) && json.Valid(text)
}
