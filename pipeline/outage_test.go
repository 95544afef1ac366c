package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// TestOutageOf is the line between the plane's faults and those of models, tasks, sandboxes and inference servers.
func TestOutageOf(t *testing.T) {
	odd := errors.New("odd")
	down := storage.Unavailable(t.Context(), odd)
	full := storage.Unavailable(t.Context(), syscall.ENOSPC)
	host := func(errno syscall.Errno) error {
		return fmt.Errorf("make sandbox: %w", &os.PathError{Op: "mkdir", Path: "/x", Err: errno})
	}
	server := func(err error) error { return &inference.Failure{Class: events.ClassEndpoint, Err: err} }
	tests := func(class string, err error) error { return &verifier.Error{Class: class, Err: err} }
	js := func(code jetstream.ErrorCode, status int, text string) error {
		return fmt.Errorf("append: %w", &jetstream.APIError{Code: status, ErrorCode: code, Description: text})
	}
	for name, c := range map[string]struct {
		err  error
		want health.Kind
	}{
		"nothing":  {nil, ""},
		"anything": {odd, ""},
		"a time":   {context.DeadlineExceeded, ""},
		"a stop":   {context.Canceled, ""},

		"store":                           {fmt.Errorf("trajectory: %w", down), health.StoreUnreachable},
		"store on a full disk":            {full, health.StoreUnreachable},
		"store below a sandbox":           {fault.In(fmt.Errorf("workspace: %w: %w", sandbox.ErrSource, full)), health.StoreUnreachable},
		"store below tests":               {tests(verifier.ClassSandbox, fmt.Errorf("%w: %w", sandbox.ErrSource, down)), health.StoreUnreachable},
		"object that is lost":             {storage.ErrNotFound, ""},
		"object that is damaged":          {storage.ErrCorrupt, ""},
		"object that is lost below tests": {tests(verifier.ClassSandbox, fmt.Errorf("%w: %w", sandbox.ErrSource, storage.ErrNotFound)), ""},

		"stream at its limit":   {fmt.Errorf("append: %w", eventlog.ErrStreamFull), health.LogRefusesWrites},
		"maximum bytes":         {js(10077, 503, "maximum bytes exceeded"), health.LogRefusesWrites},
		"insufficient":          {js(10023, 503, "insufficient resources"), health.LogRefusesWrites},
		"no storage":            {js(10047, 500, "insufficient storage resources available"), health.LogRefusesWrites},
		"no memory":             {js(10028, 500, "insufficient memory resources available"), health.LogRefusesWrites},
		"account at its limit":  {js(10002, 400, "resource limits exceeded for account"), health.LogRefusesWrites},
		"no peers":              {js(10005, 400, "no suitable peers for placement"), health.LogRefusesWrites},
		"message too large":     {js(10077, 400, "message size exceeds maximum allowed"), ""},
		"no responders":         {nats.ErrNoResponders, health.LogUnreachable},
		"no stream response":    {jetstream.ErrNoStreamResponse, health.LogUnreachable},
		"no answer":             {fmt.Errorf("read: %w", nats.ErrTimeout), health.LogUnreachable},
		"line is down":          {nats.ErrDisconnected, health.LogUnreachable},
		"connection is closed":  {nats.ErrConnectionClosed, health.LogUnreachable},
		"no leader":             {js(10008, 503, "JetStream system temporarily unavailable"), health.LogUnreachable},
		"server that starts":    {jetstream.ErrJetStreamNotEnabled, health.LogUnreachable},
		"another 503":           {js(10999, 503, "soon"), health.LogUnreachable},
		"wrong sequence":        {js(10071, 400, "wrong last sequence: 7"), ""},
		"no such event":         {eventlog.ErrNotFound, ""},
		"rights":                {js(10140, 403, "not permitted"), ""},
		"no link of this chain": {eventlog.ErrNoLink, ""},

		"full disk":                    {host(syscall.ENOSPC), health.DiskFull},
		"quota":                        {host(syscall.EDQUOT), health.DiskFull},
		"no room for a sandbox's disk": {fmt.Errorf("sandbox: %w", sandbox.ErrNoRoom), health.DiskFull},
		"tests on a full disk":         {tests(verifier.ClassSandbox, host(syscall.ENOSPC)), health.DiskFull},
		"broken disk":                  {host(syscall.EIO), health.DiskFails},
		"read-only disk":               {host(syscall.EROFS), health.DiskFails},
		"descriptors":                  {host(syscall.EMFILE), health.Exhausted},
		"descriptors of the machine":   {host(syscall.ENFILE), health.Exhausted},
		"memory":                       {host(syscall.ENOMEM), health.Exhausted},
		"processes":                    {host(syscall.EAGAIN), health.Exhausted},
		"descriptors for a request":    {server(host(syscall.EMFILE)), health.Exhausted},
		"no such program":              {host(syscall.ENOENT), ""},

		"full disk in a sandbox":     {fault.In(syscall.ENOSPC), ""},
		"descriptors in a sandbox":   {fault.In(syscall.EMFILE), ""},
		"memory in a sandbox":        {fault.In(syscall.ENOMEM), ""},
		"sandbox that ended":         {fault.In(sandbox.ErrClosed), ""},
		"tests without a verdict":    {tests(verifier.ClassNoReward, odd), ""},
		"change that is too large":   {tests(verifier.ClassApply, sandbox.ErrTooLarge), ""},
		"server that is away":        {server(syscall.ECONNREFUSED), ""},
		"server that broke the line": {server(syscall.ECONNRESET), ""},
		"server that answers 503":    {server(errors.New("503 Service Unavailable")), ""},
	} {
		if got := pipeline.Outage(c.err); got != c.want {
			t.Errorf("%s: %v is %q, want %q", name, c.err, got, c.want)
		}
	}
}

// storing is a handler that looks at the log, stores something, and states its outcome: a failed try where it is to blame.
func storing(log *eventlog.Log, store storage.Store) pipeline.Handler {
	scored := score(log)
	return func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		if _, err := storage.PutBlob(ctx, store, []byte(m.Event.Entity)); err != nil {
			return nil, err
		}
		return scored(ctx, m)
	}
}

// TestOutageOfTheStore: a store that is away for six hours, which is longer than all deliveries of an input, costs no delivery and leaves no dead
// letter. No more inputs wait in memory than there are slots, and they go on by themselves.
func TestOutageOfTheStore(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		store := &storagetest.Outages{Store: p.store}
		p.store = store
		p.open(t, testRun)
		const n, slots = 40, 4
		p.finish(t, testRun, 0, n)
		env := p.env(t, "")
		store.Down.Store(true)
		effect(t, env, slots, storing(env.Log, store))
		time.Sleep(6 * time.Hour)
		consumer, err := p.log.JetStream().Consumer(t.Context(), events.RunStream(testRun), topology.ConsumersOf(topology.Scorer)[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := consumer.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := info.NumAckPending; n < slots || n > 2*slots || info.NumRedelivered != 0 || info.Delivered.Consumer != uint64(n) {
			t.Errorf("in the outage %d inputs are in work, %d came again, %d were delivered; want %d to %d, each once", n, info.NumRedelivered, info.Delivered.Consumer, slots, 2*slots)
		}
		if refused := store.Refused.Load(); refused > 6*3600 {
			t.Errorf("the store was asked %d times", refused)
		}
		store.Down.Store(false)
		began := time.Now()
		p.acknowledged(t, testRun)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it went on after %s only", took)
		}
		p.scoredOnce(t, testRun, n)
	})
}

// TestOutageOfOneRun: inputs that wait leave their slots to other runs. A run whose stream is full holds up no other.
func TestOutageOfOneRun(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.open(t, "full")
		const n = 8
		p.finish(t, "full", 0, n)
		env := p.env(t, "")
		full := true
		scored := score(env.Log)
		effect(t, env, 2, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			if m.Event.Run == "full" && full {
				return nil, eventlog.ErrStreamFull
			}
			return scored(ctx, m)
		})
		time.Sleep(time.Hour)
		p.finish(t, testRun, 0, n)
		began := time.Now()
		p.acknowledged(t, testRun)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the other run took %s", took)
		}
		full = false
		p.acknowledged(t, "full")
		p.scoredOnce(t, "full", n)
	})
}

// TestOutageBelowAnAppend: an event whose body cannot be stored is not made a second time.
func TestOutageBelowAnAppend(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		store := &storagetest.Outages{Store: p.store}
		p.store = store
		p.open(t, testRun)
		p.finish(t, testRun, 0, 1)
		env := p.env(t, "")
		made := 0
		effect(t, env, 1, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			made++
			store.Down.Store(true)
			e, err := events.New(m.Event.Run, events.RolloutScoredType, m.Event.Entity, "0", events.RolloutScored{Flags: []string{string(make([]byte, events.MaxPayload))}})
			e.Prev = m.Event.Seq
			return []events.Event{e}, err
		})
		time.Sleep(time.Hour)
		store.Down.Store(false)
		p.acknowledged(t, testRun)
		if p.scoredOnce(t, testRun, 1); made != 1 {
			t.Errorf("the event was made %d times", made)
		}
	})
}

// TestStopInAnOutage: a service stops although its inputs wait, and the next process gets them at once.
func TestStopInAnOutage(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		store := &storagetest.Outages{Store: p.store}
		p.store = store
		p.open(t, testRun)
		p.finish(t, testRun, 0, 5)
		env := p.env(t, "")
		store.Down.Store(true)
		service := effect(t, env, 2, storing(env.Log, store))
		time.Sleep(time.Hour)
		service.end(t)
		store.Down.Store(false)
		next := p.env(t, "")
		effect(t, next, 2, storing(next.Log, store))
		began := time.Now()
		p.acknowledged(t, testRun)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("what was given back came after %s", took)
		}
		p.scoredOnce(t, testRun, 5)
	})
}
