package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
)

// A harness works in the workspace of its rollout's task by calls. Each is a fact on the rollout's
// chain, which a tool runner answers by another one. So a call that was taken in is answered
// whatever process dies, and who asks again with its key gets that answer.

// execAsk is the body of POST /rollouts/{id}/exec.
type execAsk struct {
	// Command is run as it is; a line for a shell is ["sh", "-c", LINE].
	Command []string          `json:"command" jsonschema:"minItems=1,maxItems=1024"`
	Dir     string            `json:"dir,omitempty" jsonschema:"description=the working directory; the workspace when left out"`
	Env     map[string]string `json:"env,omitempty"`
	Stdin   string            `json:"stdin,omitempty"`
	// TimeoutS bounds the command; 0 is a minute.
	TimeoutS float64 `json:"timeout_s,omitempty" jsonschema:"minimum=0,maximum=86400,description=a minute when left out; the run's time for tools bounds it too"`
}

// execAnswer is what a command came to.
type execAnswer struct {
	ExitCode     int     `json:"exit_code"`
	Stdout       string  `json:"stdout"`
	Stderr       string  `json:"stderr"`
	TimedOut     bool    `json:"timed_out"`
	DroppedBytes int64   `json:"dropped_bytes" jsonschema:"description=of the output's middle; write it into a file and read that in parts to have all of it"`
	DurationMS   float64 `json:"duration_ms"`
}

// readAsk is the body of POST /rollouts/{id}/read.
type readAsk struct {
	Path   string `json:"path" jsonschema:"maxLength=4096"`
	Offset int64  `json:"offset,omitempty" jsonschema:"minimum=0"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"minimum=0,maximum=4194304,description=of bytes; 4 MiB when left out"`
}

// readAnswer is a part of a file.
type readAnswer struct {
	// Content is there of bytes that are text, and Base64 of others.
	Content string `json:"content,omitempty"`
	Base64  string `json:"base64,omitempty"`
	Size    int64  `json:"size" jsonschema:"description=of the whole file"`
}

// writeAsk is the body of POST /rollouts/{id}/write.
type writeAsk struct {
	Path    string `json:"path" jsonschema:"maxLength=4096"`
	Content string `json:"content,omitempty"`
	Base64  string `json:"base64,omitempty" jsonschema:"description=the content where that is no text"`
	// Mode are the file's permissions.
	Mode uint32 `json:"mode,omitempty" jsonschema:"maximum=511,description=permissions; those of the file that is there when left out"`
}

// writeAnswer says that the file is there.
type writeAnswer struct {
	Size int64 `json:"size"`
}

// work is one call as it was asked for: what the log has of it, and the contents that go with it.
type work struct {
	called         events.WorkspaceCalled
	stdin, content []byte
}

const (
	// maxCall is the size of a call's body: a content of MaxWorkspaceContent as
	// base64, and room for the rest.
	maxCall     = 6 << 20
	maxTimeoutS = 86400
	// keyHeader names a call, so that it may be repeated.
	keyHeader = "Idempotency-Key"
)

func (a execAsk) work() (work, error) {
	switch {
	case len(a.Command) == 0 || a.Command[0] == "":
		return work{}, problem(http.StatusBadRequest, "invalid_request_error", "command: it is empty")
	case a.TimeoutS < 0 || a.TimeoutS > maxTimeoutS:
		return work{}, problem(http.StatusBadRequest, "invalid_request_error",
			"timeout_s %g: must be 0 to %d", a.TimeoutS, maxTimeoutS)
	}
	return work{stdin: []byte(a.Stdin), called: events.WorkspaceCalled{
		Op: events.WorkspaceExec, Command: a.Command, Dir: a.Dir, Env: a.Env,
		TimeoutMS: int64(float64(a.TimeoutS * 1000)),
	}}, nil
}

func (a readAsk) work() (work, error) {
	if a.Path == "" || a.Offset < 0 || a.Limit < 0 || a.Limit > events.MaxWorkspaceContent {
		return work{}, problem(http.StatusBadRequest, "invalid_request_error",
			"path %.100q, offset %d, limit %d: name a file, and at most %d bytes of it",
			a.Path, a.Offset, a.Limit, events.MaxWorkspaceContent)
	}
	return work{called: events.WorkspaceCalled{Op: events.WorkspaceRead, Path: a.Path,
		Offset: a.Offset, Limit: a.Limit}}, nil
}

func (a writeAsk) work() (work, error) {
	if a.Path == "" || a.Mode > 0o777 {
		return work{}, problem(http.StatusBadRequest, "invalid_request_error",
			"path %.100q, mode %o: name a file, and permissions", a.Path, a.Mode)
	}
	content := []byte(a.Content)
	if a.Base64 != "" {
		decoded, err := base64.StdEncoding.DecodeString(a.Base64)
		if err != nil || a.Content != "" {
			return work{}, problem(http.StatusBadRequest, "invalid_request_error",
				"base64: give the content in one way, and in the standard alphabet")
		}
		content = decoded
	}
	return work{content: content, called: events.WorkspaceCalled{Op: events.WorkspaceWrite,
		Path: a.Path, Mode: a.Mode}}, nil
}

// asked is a body of a call.
type asked interface{ work() (work, error) }

// onWorkspace serves the calls that a kind of body asks for.
func onWorkspace[A asked](g *Gateway) func(w *stream, r *http.Request, t *tenant) error {
	return func(w *stream, r *http.Request, t *tenant) error {
		if err := g.exists(r, t); err != nil {
			return err
		}
		if err := t.may(time.Now(), false); err != nil {
			return err
		}
		key := r.Header.Get(keyHeader)
		if key == "" {
			key = rand.Text()
		}
		if !runfile.ValidToken(key) {
			return problem(http.StatusBadRequest, "invalid_request_error",
				"%s %.80q: use letters, digits, - and _, at most 64", keyHeader, key)
		}
		if err := t.begin(time.Now(), false); err != nil {
			return err
		}
		defer t.end()
		ro, called, err := takeIn[A](g, w, r, t, key)
		if err != nil {
			return err
		}
		share := g.memory.Share(t.Name)
		defer share.End()
		answer, err := g.callWorkspace(r.Context(), share, t, ro, key, called)
		if err != nil {
			return err
		}
		return reply(w, http.StatusOK, answer)
	}
}

// takeIn reads a call and stores its contents. It holds memory until then: the wait
// for the answer holds none.
func takeIn[A asked](g *Gateway, w *stream, r *http.Request, t *tenant,
	key string) (ro *rollout, called events.WorkspaceCalled, err error) {
	share := g.memory.Share(t.Name)
	defer share.End()
	var a A
	if err := readStrictly(w, r, share, maxCall, &a); err != nil {
		return nil, called, err
	}
	todo, err := a.work()
	if err != nil {
		return nil, called, err
	}
	if n := max(len(todo.stdin), len(todo.content)); n > events.MaxWorkspaceContent {
		return nil, called, problem(http.StatusRequestEntityTooLarge, "too_large", "%d bytes, at most %d", n,
			events.MaxWorkspaceContent)
	}
	if ro, err = g.find(r, t); err != nil {
		return nil, called, err
	}
	if ro.call(key) < 0 {
		if err := g.takesCalls(r.Context(), ro); err != nil {
			return nil, called, err
		}
	}
	if todo.called.Stdin, err = events.PutContent(r.Context(), g.log.Store(), todo.stdin); err != nil {
		return nil, called, err
	}
	todo.called.Content, err = events.PutContent(r.Context(), g.log.Store(), todo.content)
	return ro, todo.called, err
}

// callWorkspace states a call, unless its key is known, and awaits its answer. The calls of a
// rollout come one after the other.
func (g *Gateway) callWorkspace(ctx context.Context, share *memory.Share, t *tenant, ro *rollout, key string,
	called events.WorkspaceCalled) (any, error) {
	release, err := g.locks.wait(ctx, name(ro.Run, ro.ID)+"/workspace", 1)
	if err != nil {
		return nil, err
	}
	defer release()
	var refusedBy error
	for {
		before := ro.Tail
		if ro, err = g.newest(ctx, ro); err != nil {
			return nil, err
		}
		// else another gateway was faster, with a call or with the rollout's end
		if refusedBy != nil && ro.Tail == before {
			return nil, refused(refusedBy)
		}
		i := ro.call(key)
		switch {
		case i >= 0 && !sameCall(ro.Calls[i].WorkspaceCalled, called):
			return nil, problem(http.StatusConflict, "key_used",
				"%s %s was used for another call of rollout %s", keyHeader, key, ro.ID)
		case i >= 0 && i < len(ro.Answers):
			return g.answerOf(ctx, share, ro.Calls[i], ro.Answers[i])
		}
		if err := ro.open(); err != nil {
			return nil, err
		}
		refusedBy = nil
		if ro.CallUnderWay() != nil {
			err = g.await(ctx, ro)
		} else if err = g.state(ctx, t, ro.Run, events.WorkspaceCalledType, ro.ID, key,
			called); errors.Is(err, eventlog.ErrRefused) {
			refusedBy, err = err, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// sameCall reports whether two calls ask for the same, as the log has them.
func sameCall(a, b events.WorkspaceCalled) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// newest is a rollout as it is now.
func (g *Gateway) newest(ctx context.Context, ro *rollout) (*rollout, error) {
	folded, err := g.log.Rollout(ctx, ro.Run, ro.ID)
	return &rollout{Rollout: folded, cfg: ro.cfg}, err
}

// call is the index of the call with a key, -1 for none.
func (r *rollout) call(key string) int {
	return slices.IndexFunc(r.Calls, func(c events.Call) bool { return c.Key == key })
}

// takesCalls refuses a new call where the rollout is over or has no workspace.
func (g *Gateway) takesCalls(ctx context.Context, ro *rollout) error {
	if err := ro.open(); err != nil {
		return err
	}
	task, err := g.log.Task(ctx, ro.Run, ro.Started.Task)
	switch {
	case errors.Is(err, runfile.ErrNoTask) || err == nil && task.Snapshot.Key == "":
		return problem(http.StatusConflict, "no_workspace",
			"run %s has no task %q with files, so rollout %s has no workspace", ro.Run, ro.Started.Task, ro.ID)
	case err != nil:
		return err
	case len(task.Steps) > 0:
		return problem(http.StatusConflict, "no_workspace",
			"task %s has stages, which Rondo's own rollouts alone can have", task.Name)
	case len(ro.Calls) >= events.MaxWorkspaceCalls:
		return problem(http.StatusConflict, "too_many_calls",
			"rollout %s has had %d calls, as many as there may be: finish it", ro.ID, len(ro.Calls))
	}
	return nil
}

// answerOf is what the harness is told of an answered call.
func (g *Gateway) answerOf(ctx context.Context, share *memory.Share, call events.Call,
	a events.WorkspaceAnswered) (any, error) {
	for _, c := range []*events.Content{a.Output, a.Errors} {
		if c == nil || c.Blob == nil {
			continue
		}
		const copies = 4 // as bytes, as text, as base64, as JSON
		if err := share.Grow(ctx, copies*c.Blob.Size); err != nil {
			return nil, unread(err)
		}
	}
	switch {
	case a.Lost != "":
		return nil, problem(http.StatusUnprocessableEntity, "lost",
			"nothing that the call did is kept, and the workspace is as it was before it: %s", a.Lost)
	case a.Refused != "":
		return nil, problem(http.StatusUnprocessableEntity, "not_done", "%s %.200s: %s", call.Op, call.Path, a.Refused)
	}
	output, err := a.Output.Get(ctx, g.log.Store())
	if err != nil {
		return nil, err
	}
	switch call.Op {
	case events.WorkspaceExec:
		stderr, err := a.Errors.Get(ctx, g.log.Store())
		if err != nil || a.ExitCode == nil {
			return nil, errors.Join(err, events.ErrMalformed)
		}
		return execAnswer{*a.ExitCode, readable(output), readable(stderr), a.TimedOut,
			a.DroppedBytes, a.DurationMS}, nil
	case events.WorkspaceRead:
		if a.Size == nil {
			return nil, events.ErrMalformed
		}
		if utf8.Valid(output) {
			return readAnswer{Content: string(output), Size: *a.Size}, nil
		}
		return readAnswer{Base64: base64.StdEncoding.EncodeToString(output), Size: *a.Size}, nil
	}
	return writeAnswer{call.Content.Size()}, nil
}

// readable is output as JSON can have it.
func readable(output []byte) string { return strings.ToValidUTF8(string(output), "\uFFFD") }

// overEvery is how often somebody who awaits an answer looks whether the rollout is over.
const overEvery = time.Second

// errAnswered ends a wait.
var errAnswered = errors.New("answered")

// await waits until the call that is under way has its answer, or the rollout is over.
func (g *Gateway) await(ctx context.Context, ro *rollout) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	filter := events.Event{Run: ro.Run, Type: events.WorkspaceAnsweredType, Entity: ro.ID}.Subject()
	go func() {
		done <- g.log.Follow(ctx, ro.Run, ro.CallUnderWay().Seq+1, filter,
			func(events.Event) error { return errAnswered })
	}()
	look := time.NewTicker(overEvery)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			if errors.Is(err, errAnswered) {
				return nil
			}
			return err
		case <-look.C:
			now, err := g.newest(ctx, ro)
			if err != nil || now.Over() || now.CallUnderWay() == nil {
				return err
			}
		}
	}
}

// answered waits until no call is under way, so that the workspace is known. Who states
// a failure need not wait.
func (g *Gateway) answered(ctx context.Context, ro *rollout, failure bool) (err error) {
	for !failure && !ro.Over() && ro.CallUnderWay() != nil {
		if err := g.await(ctx, ro); err != nil {
			return err
		}
		if ro, err = g.newest(ctx, ro); err != nil {
			return err
		}
	}
	return nil
}
