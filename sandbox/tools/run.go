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

// Call is one tool call of a model. Arguments is the JSON text exactly as the model wrote it, which may be malformed.
type Call struct {
	ID, Name, Arguments string
}

// Result is the observation that answers a call.
type Result struct {
	CallID, Name, Content string
	Error                 bool // the call could not be done; Content says why
	ExitCode              *int // of run_terminal_cmd
	DroppedBytes          int64
	StartedAt             time.Time
	Duration              time.Duration
}

// observation is what a tool answers.
type observation struct {
	content  string
	failed   bool
	exitCode *int
	dropped  int64
}

// refusal is an observation that says why a call could not be done.
func refusal(format string, arguments ...any) observation {
	return observation{content: "error: " + fmt.Sprintf(format, arguments...), failed: true}
}

// runner executes a call; its error is of the infrastructure.
type runner func(ctx context.Context, sb *sandbox.Sandbox, arguments string) (observation, error)

// decoded lets a tool take its arguments as a type of Go. Unknown arguments are refused, as they were meant to do something.
func decoded[T any](run func(context.Context, *sandbox.Sandbox, T) (observation, error)) runner {
	return func(ctx context.Context, sb *sandbox.Sandbox, arguments string) (observation, error) {
		if len(arguments) > MaxArguments {
			return refusal("arguments of %d bytes (limit %d)", len(arguments), MaxArguments), nil
		}
		if strings.TrimSpace(arguments) == "" {
			arguments = "{}"
		}
		var parsed T
		decoder := json.NewDecoder(strings.NewReader(arguments))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&parsed); err != nil {
			return refusal("the arguments are not the JSON object that this tool takes: %v", err), nil
		}
		if _, err := decoder.Token(); err != io.EOF {
			return refusal("the arguments go on after the end of the JSON object"), nil
		}
		return run(ctx, sb, parsed)
	}
}

// Run runs the calls of one turn: read-only ones that follow one another at the same time, the others alone and in order. Results
// stand in the order of the calls. Without search there is no codebase_search. An error is of the infrastructure, and the results are
// then void.
func Run(ctx context.Context, sb *sandbox.Sandbox, search Search, calls []Call) ([]Result, error) {
	s := set(offered(search != nil))
	if search != nil {
		s[len(s)-1].run = search.runner()
	}
	results := make([]Result, len(calls))
	for start := 0; start < len(calls); {
		end := start + 1
		for s.readOnly(calls[start]) && end < len(calls) && s.readOnly(calls[end]) && end-start < maxParallel {
			end++
		}
		if err := s.together(ctx, sb, calls[start:end], results[start:end], start); err != nil {
			return nil, err
		}
		start = end
	}
	return results, nil
}

// set is the tools of a run.
type set []tool

func (s set) readOnly(call Call) bool {
	t := s.lookup(call.Name)
	return t == nil || t.readOnly
}

func (s set) lookup(name string) *tool {
	for i := range s {
		if s[i].name == name {
			return &s[i]
		}
	}
	return nil
}

func (s set) together(ctx context.Context, sb *sandbox.Sandbox, calls []Call, results []Result, first int) error {
	var group sync.WaitGroup
	failures := make([]error, len(calls))
	for i, call := range calls {
		group.Go(func() { results[i], failures[i] = s.one(ctx, sb, call, first+i) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func (s set) one(ctx context.Context, sb *sandbox.Sandbox, call Call, index int) (Result, error) {
	begin := time.Now()
	seen, err := s.execute(ctx, sb, call, index)
	if err != nil {
		return Result{}, fmt.Errorf("run tool %s: %w", call.Name, err)
	}
	seen.content = Bounded(seen.content)
	return Result{
		CallID: call.ID, Name: call.Name, Content: seen.content, Error: seen.failed, ExitCode: seen.exitCode, DroppedBytes: seen.dropped,
		StartedAt: begin, Duration: time.Since(begin),
	}, nil
}

func (s set) execute(ctx context.Context, sb *sandbox.Sandbox, call Call, index int) (observation, error) {
	if index >= MaxCalls {
		return refusal("more than %d calls in one turn", MaxCalls), nil
	}
	t := s.lookup(call.Name)
	if t == nil {
		return refusal("there is no tool %.100q; the tools are %s", call.Name, s.names()), nil
	}
	seen, err := t.run(ctx, sb, call.Arguments)
	if err == nil {
		return seen, nil
	}
	if why := insideFault(err); why != "" && ctx.Err() == nil {
		return refusal("%s", why), nil
	}
	return observation{}, err
}

func (s set) names() string {
	var list []string
	for _, t := range s {
		list = append(list, t.name)
	}
	return strings.Join(list, ", ")
}

// insideFault tells whether an error is the doing of what runs in the sandbox, and says it in the model's words.
func insideFault(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, sandbox.ErrClosed):
		return ""
	case errors.Is(err, sandbox.ErrTooLarge):
		return "too large"
	case errors.Is(err, sandbox.ErrInvalid):
		return "not a regular file, or an invalid path"
	case errors.As(err, &errno):
		return errno.Error() // of a file operation inside: "no such file or directory"
	}
	return ""
}

// Bounded cuts an observation, and makes it text.
func Bounded(content string) string {
	if len(content) > MaxContent {
		content = content[:MaxContent] + "\n[... cut ...]"
	}
	return strings.ToValidUTF8(content, "\uFFFD")
}
