package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/wording"
)

const (
	// MaxCalls bounds the calls of one turn that are run; the rest is answered by an error.
	MaxCalls = 64
	// MaxArguments bounds one call's arguments.
	MaxArguments = 1 << 20
	// MaxContent bounds one observation.
	MaxContent = 160 << 10
	// maxParallel is how many read-only calls run at a time.
	maxParallel = 8
)

// Call is one tool call of a model. Arguments is the JSON text exactly as the model wrote
// it, which may be malformed.
type Call struct {
	ID, Name, Arguments string

	refused string // why the arguments are none of the tool's
}

// Result is the observation that answers a call.
type Result struct {
	CallID, Name, Content string
	Error                 bool // the call could not be done; Content says why
	ExitCode              *int // of run_terminal_cmd
	DroppedBytes          int64
	// StartedAt and Duration are of the tool's own work. What was waited for is not in them: a look
	// into the cache, an index that was made, a server that was started, a processor.
	StartedAt time.Time
	Duration  time.Duration
	// Cache is one of toolset.CacheHit and so on, "" where nothing was looked up; Original is how
	// long a hit took when it was run.
	Cache    string
	Original time.Duration
	// Key is set of a miss whose answer may be kept.
	Key *Key
}

// observation is what a tool answers.
type observation struct {
	content  string
	failed   bool
	exitCode *int
	dropped  int64
	hurried  bool          // a limit has cut it short: another time it may be longer
	waited   time.Duration // of the time that it took, what was not the tool's own work
}

// refusal is an observation that says why a call could not be done.
func refusal(format string, arguments ...any) observation {
	return observation{content: "error: " + fmt.Sprintf(format, arguments...), failed: true}
}

// Work is what the calls of a turn share.
type Work struct {
	Sandbox *sandbox.Sandbox
	// Search is needed where codebase_search is offered.
	Search Search
	// Servers is needed where tools of servers are offered.
	Servers Servers
	// State is what the turn before left, and becomes what this one leaves.
	State *toolset.State
	// Known answers calls that were made before; nil runs all of them.
	Known *Cache
	// Left is how long the calls may run, in all: behind it none is begun
	// any more. nil is no limit.
	Left *time.Duration
}

// work is Work under way.
type work struct {
	sb      *sandbox.Sandbox
	search  Search
	servers Servers
	state   *toolset.State
	memory  memory
	left    *time.Duration
	ran     time.Duration // by the calls so far
	wall    time.Duration
}

// runner executes a call; its error is of the infrastructure.
type runner func(ctx context.Context, w *work, arguments string) (observation, error)

// decoded lets a tool take its arguments as a type of Go.
func decoded[T any](run func(context.Context, *sandbox.Sandbox, T) (observation, error)) runner {
	return decodedWork(func(ctx context.Context, w *work, a T) (observation, error) { return run(ctx, w.sb, a) })
}

// decodedWork is decoded for a tool that wants more than the sandbox. Unknown arguments are
// refused, as they were meant to do something.
func decodedWork[T any](run func(context.Context, *work, T) (observation, error)) runner {
	return func(ctx context.Context, w *work, arguments string) (observation, error) {
		parsed, refused := parse[T](arguments)
		if refused != nil {
			return *refused, nil
		}
		return run(ctx, w, parsed)
	}
}

// parse reads the arguments of a call, or says why they are none of the tool's.
func parse[T any](arguments string) (parsed T, refused *observation) {
	decoder := json.NewDecoder(strings.NewReader(orEmpty(arguments)))
	decoder.DisallowUnknownFields()
	var why observation
	if err := decoder.Decode(&parsed); err != nil {
		why = refusal("the arguments are not the JSON object that this tool takes: %v", wording.Plain(err))
		return parsed, &why
	}
	if _, err := decoder.Token(); err != io.EOF {
		why = refusal("the arguments go on after the end of the JSON object")
		return parsed, &why
	}
	return parsed, nil
}

// orEmpty is what a model means that writes no arguments at all.
func orEmpty(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}

// Run runs the calls of one turn: read-only ones that follow one another at the same time, the
// others alone and in order. Results are in the order of the calls. An error is of the
// infrastructure, and results and state are then void.
func (s *Set) Run(ctx context.Context, shared Work, calls []Call) ([]Result, error) {
	w := &work{sb: shared.Sandbox, search: shared.Search, servers: shared.Servers, state: shared.State,
		memory: newMemory(shared.Known), left: shared.Left, wall: s.wall}
	calls, results := s.repairCalls(calls), make([]Result, len(calls))
	for start := 0; start < len(calls); {
		end := start + 1
		for s.readOnly(calls[start]) && end < len(calls) && s.readOnly(calls[end]) && end-start < maxParallel {
			end++
		}
		if err := s.together(ctx, w, calls[start:end], results[start:end], start); err != nil {
			return nil, err
		}
		w.ran += longest(results[start:end])
		start = end
	}
	return results, nil
}

// longest is how long calls beside each other ran.
func longest(beside []Result) (took time.Duration) {
	for _, r := range beside {
		if r.Cache != toolset.CacheHit {
			took = max(took, r.Duration)
		}
	}
	return took
}

func (s *Set) together(ctx context.Context, w *work, calls []Call, results []Result, first int) error {
	for _, call := range calls {
		w.begins(s.lookup(call.Name))
	}
	var group sync.WaitGroup
	failures := make([]error, len(calls))
	for i, call := range calls {
		group.Go(func() { results[i], failures[i] = s.one(ctx, w, call, first+i) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func (s *Set) one(ctx context.Context, w *work, call Call, index int) (Result, error) {
	begin := time.Now()
	t := s.lookup(call.Name)
	key, status := w.lookUp(t, call, index)
	if key != nil {
		if r, ok := w.memory.known.Answer(ctx, *key); ok {
			r.CallID, r.Name, r.StartedAt, r.Cache = call.ID, call.Name, begin, toolset.CacheHit
			r.Original, r.Duration = r.Duration, time.Since(begin)
			w.remembered(t)
			return r, nil
		}
	}
	var took time.Duration
	run := func() (seen observation, err error) {
		begin = time.Now()
		seen, err = s.execute(ctx, w, t, call, index)
		took = max(0, time.Since(begin)-seen.waited)
		return seen, err
	}
	seen, quiet, err := w.watch(ctx, t, key, run)
	if err != nil {
		return Result{}, fmt.Errorf("run tool %s: %w", call.Name, err)
	}
	if quiet {
		w.remembered(t)
	} else {
		w.changed(t, call, seen.failed)
	}
	if !quiet || seen.failed || seen.hurried {
		key = nil
	}
	content, dropped := Bounded(seen.content)
	return Result{
		CallID: call.ID, Name: call.Name, Content: content, Error: seen.failed, ExitCode: seen.exitCode,
		DroppedBytes: seen.dropped + dropped,
		StartedAt:    begin.Add(seen.waited), Duration: took, Cache: status, Key: key,
	}, nil
}

func (s *Set) execute(ctx context.Context, w *work, t *tool, call Call, index int) (observation, error) {
	switch {
	case index >= MaxCalls:
		return refusal("more than %d calls in one turn", MaxCalls), nil
	case w.left != nil && w.ran >= *w.left:
		return refusal("the time that tools may take in a rollout is over"), nil
	case t == nil:
		return refusal("there is no tool %.100q; the tools are %s", call.Name, s.names()), nil
	case len(call.Arguments) > MaxArguments:
		return refusal("arguments of %d bytes (limit %d)", len(call.Arguments), MaxArguments), nil
	case call.refused != "":
		return refusal("%s", call.refused), nil
	}
	seen, err := t.run(ctx, w, call.Arguments)
	if err == nil {
		return seen, nil
	}
	if why := InsideFault(err); why != "" && ctx.Err() == nil {
		return refusal("%s", why), nil
	}
	return observation{}, err
}

// InsideFault reports whether an error is the doing of what runs in the sandbox, and says
// it in the model's words.
func InsideFault(err error) string {
	var errno syscall.Errno
	switch {
	case fault.ClassOf(fault.Mark(err)) == "":
		return "" // the machine's, or the sandbox is gone
	case errors.Is(err, sandbox.ErrTooLarge):
		return "too large"
	case errors.Is(err, sandbox.ErrInvalid):
		return "not a regular file, or an invalid path"
	case errors.As(err, &errno):
		return errno.Error() // of a file operation inside: "no such file or directory"
	}
	return ""
}

// Bounded makes an observation text, and cuts what is too much out of its middle; a line there
// says how much, in bytes.
func Bounded(content string) (text string, dropped int64) {
	content = strings.ToValidUTF8(content, "\uFFFD")
	if len(content) <= MaxContent {
		return content, 0
	}
	head := strings.ToValidUTF8(content[:MaxContent/2], "")
	tail := strings.ToValidUTF8(content[len(content)-MaxContent/2:], "")
	over := len(content) - len(head) - len(tail)
	return fmt.Sprintf("%s\n[... %d bytes dropped ...]\n%s", head, over, tail), int64(over)
}
