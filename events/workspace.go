package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
)

// This file is about harnesses that run elsewhere and work in a sandbox of Rondo's. Their calls are
// facts on the chain of the rollout, one after the other, each answered by a tool runner.

// What WorkspaceCalled.Op may be.
const (
	WorkspaceExec  = "exec"
	WorkspaceRead  = "read"
	WorkspaceWrite = "write"
	// WorkspaceAgent starts the run's agent. The generator states it, once in a
	// rollout; no outsider may.
	WorkspaceAgent = "agent"
)

// AgentCall is the ordinal of the call that starts a rollout's agent.
const AgentCall = "agent"

// Bounds of a harness's calls. Contents are bytes of a file, or a command's input.
const (
	MaxWorkspaceCalls   = 4096
	MaxWorkspaceContent = 4 << 20
	inlineContent       = 2 << 10 // beyond it a content is an object, so that folds of many calls stay small
)

// WorkspaceCalled asks for something to be done in the workspace of a harness's rollout. The
// ordinal of the event is the key by which the harness knows the call.
type WorkspaceCalled struct {
	Op string `json:"op" jsonschema:"enum=exec,enum=read,enum=write,enum=agent"`
	// Command runs with Env beside the sandbox's own environment, in Dir, with Stdin as its input,
	// for at most TimeoutMS; 0 is the sandbox's limit.
	Command   []string          `json:"command,omitempty" jsonschema:"maxItems=1024"`
	Dir       string            `json:"dir,omitempty" jsonschema:"maxLength=4096"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"maxProperties=256"`
	Stdin     *Content          `json:"stdin,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" jsonschema:"minimum=0,maximum=86400000"`
	// Path is the file to read from Offset on, at most Limit bytes, or the one to replace by
	// Content; Mode 0 keeps that of a file that is there.
	Path    string   `json:"path,omitempty" jsonschema:"maxLength=4096"`
	Offset  int64    `json:"offset,omitempty" jsonschema:"minimum=0"`
	Limit   int64    `json:"limit,omitempty" jsonschema:"minimum=0,maximum=4194304"`
	Content *Content `json:"content,omitempty"`
	Mode    uint32   `json:"mode,omitempty" jsonschema:"maximum=511"`
}

// WorkspaceAnswered is what a call came to. Its ordinal is that of the call.
type WorkspaceAnswered struct {
	// Refused says why nothing was done, in words for the harness: there is
	// no such file, for example.
	Refused string `json:"refused,omitempty"`
	// Output is what the command wrote to its standard output, or the bytes of the file, of which
	// there are Size. Errors is the standard error.
	Output *Content `json:"output,omitempty"`
	Errors *Content `json:"errors,omitempty"`
	Size   *int64   `json:"size,omitempty" jsonschema:"minimum=0"`
	// ExitCode is set for commands.
	ExitCode     *int      `json:"exit_code,omitempty"`
	TimedOut     bool      `json:"timed_out,omitempty"`
	DroppedBytes int64     `json:"dropped_bytes,omitempty" jsonschema:"minimum=0"`
	StartedAt    time.Time `json:"started_at"`
	DurationMS   float64   `json:"duration_ms"`
	// Runner, Workspace, Isolation, Filesystem, Redacted, Lost and Network
	// are as in ToolsCompleted.
	Runner     string         `json:"runner"`
	Workspace  *storage.Ref   `json:"workspace,omitempty"`
	Isolation  string         `json:"isolation"`
	Filesystem string         `json:"filesystem"`
	Redacted   map[string]int `json:"redacted,omitempty"`
	Lost       string         `json:"lost,omitempty"`
	Network    *netaccess.Use `json:"network,omitempty"`
	// Agent is how the run's agent ended.
	Agent *AgentEnded `json:"agent,omitempty"`
}

// AgentEnded is how an agent's program ended, and what follows from it.
type AgentEnded struct {
	// StopReason is why the episode ended; "" where the rollout has failed, for Why, with Class.
	StopReason string `json:"stop_reason,omitempty"`
	Class      string `json:"class,omitempty"`
	Why        string `json:"why,omitempty"`
	// Requests are those that it made of its model, Refused those of them that were refused, the
	// last one with LastRefusal.
	Requests    int    `json:"requests"`
	Refused     int    `json:"refused,omitempty"`
	LastRefusal string `json:"last_refusal,omitempty"`
	// WaitedMS is how long it waited for answers, in milliseconds. While several are waited for
	// beside each other the time counts once.
	WaitedMS float64 `json:"waited_ms,omitempty"`
	// Leftovers are the processes that it left running, which were killed.
	Leftovers int `json:"leftovers,omitempty"`
	// OutOfMemory: a process of its sandbox was killed for want of memory, or
	// the sandbox ended with it.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
	// Recalled counts the turns that were sampled for the agent before it was started anew, and
	// that it has asked for again. Left are those that it has not: they are no part of the episode,
	// and nothing is trained on them.
	Recalled int   `json:"recalled,omitempty" jsonschema:"minimum=0"`
	Left     []int `json:"left,omitempty" jsonschema:"maxItems=1000000"`
}

// ErrElsewhere says that the log has turns of a rollout which this agent of it has not asked for.
var ErrElsewhere = errors.New("its rollout has turns of an agent on another tool runner")

// Content is some bytes: a short text, or an object.
type Content struct {
	Text string       `json:"text,omitempty" jsonschema:"maxLength=2048"`
	Blob *storage.Ref `json:"blob,omitempty"`
}

// PutContent stores bytes; nil stands for none.
func PutContent(ctx context.Context, store storage.Store, data []byte) (*Content, error) {
	switch {
	case len(data) == 0:
		return nil, nil
	case len(data) <= inlineContent && utf8.Valid(data):
		return &Content{Text: string(data)}, nil
	}
	ref, err := storage.PutBlob(ctx, store, data)
	return &Content{Blob: &ref}, err
}

// Get is the bytes.
func (c *Content) Get(ctx context.Context, store storage.Store) ([]byte, error) {
	switch {
	case c == nil:
		return nil, nil
	case c.Blob == nil:
		return []byte(c.Text), nil
	}
	return storage.GetBlob(ctx, store, *c.Blob)
}

// Size is how many bytes they are.
func (c *Content) Size() int64 {
	switch {
	case c == nil:
		return 0
	case c.Blob == nil:
		return int64(len(c.Text))
	}
	return c.Blob.Size
}

// Call is a call of a harness as it is on the chain of its rollout.
type Call struct {
	WorkspaceCalled
	Key string
	Seq uint64
}

// callKey is the ordinal of a call's fact. It is what the harness says, so it may be any text.
func callKey(e Event) string { return strings.TrimPrefix(e.ID, ID(e.Run, e.Type, e.Entity, "")) }

// CallUnderWay is the last call where it is not answered, else nil. There is at most one.
func (r *Rollout) CallUnderWay() *Call {
	if len(r.Calls) == len(r.Answers) {
		return nil
	}
	return &r.Calls[len(r.Calls)-1]
}

// CallRoute says who works on a harness's next call: the runner that holds
// the sandbox, or the pool.
func (r *Rollout) CallRoute(pool string, needs runfile.Needs) string {
	if n := len(r.Answers); n > 0 {
		return runfile.RunnerRoute(r.Answers[n-1].Runner, needs)
	}
	return runfile.PoolRoute(pool, needs)
}

// AgentEnded is how the rollout's agent ended, nil before that and of rollouts without one.
func (r *Rollout) AgentEnded() *AgentEnded {
	if len(r.Answers) == 0 {
		return nil
	}
	return r.Answers[len(r.Answers)-1].Agent
}

// Left reports whether an agent that was started anew did not come to a turn: the turn is no part
// of the episode. It follows from how the agent ended.
func (r *Rollout) Left(turn int) bool {
	ended := r.AgentEnded()
	return ended != nil && slices.Contains(ended.Left, turn)
}

// Taken are the turns of the episode: all but those that are left behind.
func (r *Rollout) Taken() []TurnSampled {
	ended := r.AgentEnded()
	if ended == nil || len(ended.Left) == 0 {
		return r.Turns
	}
	return slices.DeleteFunc(slices.Clone(r.Turns), func(t TurnSampled) bool { return r.Left(t.Turn) })
}

func (r *Rollout) called(e Event) error {
	call, err := Data[WorkspaceCalled](e)
	r.Calls = append(r.Calls, Call{call, callKey(e), e.Seq})
	return err
}

func (r *Rollout) callAnswered(e Event) error {
	answer, err := Data[WorkspaceAnswered](e)
	r.Answers = append(r.Answers, answer)
	r.toolTime += answer.RunningTime()
	return err
}
