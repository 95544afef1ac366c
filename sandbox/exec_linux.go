package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// base environment of every command: no pager, no colours, no locale of the host.
var baseEnv = map[string]string{
	"PATH": DefaultPath, "HOME": "/root", "USER": "root", "LOGNAME": "root",
	"SHELL": "/bin/sh", "LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp", "PAGER": "cat",
	"GIT_PAGER": "cat", "MANPAGER": "cat",
	"PYTHONDONTWRITEBYTECODE": "1",
}

// Exec runs a command and waits for it. How it ended, also by a limit, is the Result; an error is
// of the sandbox or of ctx. When a command is over, everything that it left behind is killed,
// unless it was started with Background.
func (s *Sandbox) Exec(ctx context.Context, c Command) (Result, error) {
	request, wall, err := s.request(c)
	if err != nil {
		return Result{}, err
	}
	request.Op = wire.OpExec
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var output sink
	if f := newFollower(c, request.Output, end); f != nil {
		request.Stream, output = true, f.take
	}
	if c.Stop != nil {
		go func() {
			select {
			case <-c.Stop:
				end(errStopped)
			case <-ctx.Done():
			}
		}()
	}
	return s.exec(ctx, request, c.Stdin, wall, output)
}

// errStopped ends a command by Command.Stop.
var errStopped = errors.New("stopped")

// Bounds of a channel. A greeting must fit into an empty socket.
const (
	maxGreeting = 64 << 10
	maxReport   = 64 << 20
)

// request describes a command with the sandbox's own environment and limits, and
// says how long it may take.
func (s *Sandbox) request(c Command) (wire.Request, time.Duration, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return wire.Request{}, 0, fmt.Errorf("run in sandbox %s: %w: no command", s.spec.Name, ErrInvalid)
	}
	for _, text := range append(c.Argv, c.Dir) {
		if strings.ContainsRune(text, 0) {
			return wire.Request{}, 0, fmt.Errorf("run in sandbox %s: %w: a zero byte in the command", s.spec.Name,
				ErrInvalid)
		}
	}
	env := s.Env()
	maps.Copy(env, c.Env)
	wall := s.spec.Limits.Wall
	if c.Wall > 0 {
		wall = c.Wall
	}
	dir := c.Dir
	if !path.IsAbs(dir) {
		dir = path.Join(s.spec.Workdir, dir)
	}
	request := wire.Request{
		Path: dir, Argv: c.Argv, Env: env, WallMillis: wall.Milliseconds(), Output: s.spec.Limits.OutputBytes,
		Background: c.Background,
	}
	if r := c.Channel; r != nil {
		if len(r.Greeting) > maxGreeting || r.MaxBytes < 2 || r.MaxBytes > maxReport || c.Background {
			return wire.Request{}, 0, fmt.Errorf("run in sandbox %s: %w: a channel of %d bytes with a greeting of %d",
				s.spec.Name, ErrInvalid, r.MaxBytes, len(r.Greeting))
		}
		request.Report, request.Greeting = r.MaxBytes, r.Greeting
	}
	return request, wall, nil
}

func (s *Sandbox) exec(ctx context.Context, request wire.Request, stdin []byte, wall time.Duration,
	output sink) (Result, error) {
	kills, begin := s.group.oomKills(), time.Now()
	deadline, cancel := context.WithTimeout(ctx, (1+wire.MostStarved)*wall+answerGrace)
	defer cancel()
	const markers = 256 // lines that say what is missing
	response, body, err := s.conn.follow(deadline, request, 2*int64(request.Output)+int64(request.Report)+markers,
		stdin, output)
	stopped := errors.Is(err, errStopped) && !errors.Is(err, ErrClosed) && response.Exec != nil && response.Error == nil
	if err != nil && !stopped {
		return Result{}, s.failed("run "+request.Argv[0], err, kills)
	}
	e := response.Exec
	if e == nil || e.StdoutBytes < 0 || e.ReportBytes < 0 || e.StdoutBytes+e.ReportBytes > len(body) {
		return Result{}, s.failed("run "+request.Argv[0], wire.ErrProtocol, kills)
	}
	result := Result{
		ExitCode: e.ExitCode, Stdout: body[:e.StdoutBytes:e.StdoutBytes],
		Stderr: body[e.StdoutBytes : len(body)-e.ReportBytes], DroppedBytes: e.Dropped,
		Sent: body[len(body)-e.ReportBytes:], SentDropped: e.ReportDropped,
		Signaled: e.Signaled, TimedOut: e.TimedOut, Stopped: stopped, OutOfMemory: e.OutOfMemory ||
			s.group.oomKills() > kills, OutputExceeded: e.OutputExceeded,
		Duration: time.Since(begin), Starved: time.Duration(e.StarvedMillis) * time.Millisecond,
		Leftovers: e.Leftovers, PID: e.PID, Log: e.Log,
	}
	if e.Detached != 0 {
		result.Detached = time.Unix(0, e.Detached)
	}
	return result, nil
}

// failed says where an error happened, and when the sandbox died of hunger for memory, that.
func (s *Sandbox) failed(what string, err error, kills int64) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrClosed) && s.group.oomKills() > kills {
		err = fmt.Errorf("%w (limit %d MiB): %w", ErrOutOfMemory, s.spec.Limits.MemoryBytes>>20, err)
	}
	if errors.Is(err, ErrClosed) {
		err = errors.Join(err, s.process.lastWords())
	}
	return fmt.Errorf("%s in sandbox %s: %w", what, s.spec.Name, err)
}
