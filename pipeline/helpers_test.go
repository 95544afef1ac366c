package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

const testRun = "test"

// plane is a server with an open run.
type plane struct {
	server *embedded.Server
	store  storage.Store
	log    *eventlog.Log
}

func newPlane(t testing.TB) *plane {
	t.Helper()
	p := &plane{server: natstest.Server(t), store: natstest.Store(t)}
	p.log = p.connect(t, natstest.Connect(t, p.server))
	if err := p.log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plane) connect(t testing.TB, nc *nats.Conn) *eventlog.Log {
	t.Helper()
	log, err := eventlog.New(nc, p.store)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// env is a process of its own on the plane.
func (p *plane) env(t testing.TB, instance string) pipeline.Env {
	return p.envOver(t, natstest.Connect(t, p.server), instance)
}

func (p *plane) envOver(t testing.TB, nc *nats.Conn, instance string) pipeline.Env {
	return pipeline.Env{
		Log: p.connect(t, nc), Dir: natstest.Folder(t), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Metrics: prometheus.NewRegistry(), Instance: instance,
	}
}

func event(t testing.TB, run string, typ events.Type, entity, ordinal string, data any) events.Event {
	t.Helper()
	e, err := events.New(run, typ, entity, ordinal, data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (p *plane) append(t testing.TB, e events.Event) events.Event {
	t.Helper()
	stored, _, err := p.log.Appender.Append(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// open opens a run as the intake does: on its own stream, then in the catalogue.
func (p *plane) open(t testing.TB, run string) {
	t.Helper()
	p.openAs(t, run, runfile.RunConfig{})
}

func (p *plane) openAs(t testing.TB, run string, cfg runfile.RunConfig) {
	t.Helper()
	if err := p.log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	p.append(t, event(t, run, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg}))
	p.append(t, event(t, events.Catalogue, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg}))
}

// close closes a run in the catalogue.
func (p *plane) close(t testing.TB, run string) {
	t.Helper()
	e := event(t, events.Catalogue, events.RunClosedType, run, "0", events.RunClosed{})
	if _, _, err := p.log.Appender.AppendLast(t.Context(), e, func(*events.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// finish puts n finished rollouts on a run's stream, the inputs of the scorer.
func (p *plane) finish(t testing.TB, run string, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		p.append(t, finished(t, run, i))
	}
}

func finished(t testing.TB, run string, i int) events.Event {
	return event(t, run, events.RolloutFinishedType, rollout(i),
		"0", events.RolloutFinished{Task: "t", StopReason: "finished", Turns: i})
}

func rollout(i int) string { return events.RolloutID(events.GroupID(int64(i+1)), 0) }

// all reads a run's events.
func (p *plane) all(t testing.TB, run string) []events.Event {
	t.Helper()
	var all []events.Event
	for e, err := range p.log.All(t.Context(), run, 1) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// ofType counts a run's events of a type by their entity.
func (p *plane) ofType(t testing.TB, run string, typ events.Type) map[string]int {
	t.Helper()
	count := map[string]int{}
	for _, e := range p.all(t, run) {
		if e.Type == typ {
			count[e.Entity]++
		}
	}
	return count
}

// running is a service at work.
type running struct {
	stop context.CancelFunc
	done chan error
}

// start starts a service; it is stopped at the end of the test, and must then end without an error.
func start(t testing.TB, run func(ctx context.Context) error) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, done: make(chan error, 1)}
	go func() {
		err := run(ctx)
		r.done <- err
		close(r.done)
	}()
	t.Cleanup(func() { r.end(t) })
	return r
}

// end stops the service and waits for it.
func (r *running) end(t testing.TB) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the service does not stop")
	}
}

// effect starts a scorer with a handler.
func effect(t testing.TB, env pipeline.Env, slots int, handle pipeline.Handler) *running {
	t.Helper()
	return start(t, func(ctx context.Context) error {
		return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Scorer, Slots: slots, Handle: handle})
	})
}

// score is a handler as services have it: it reads the chain and states what is missing.
func score(log *eventlog.Log) pipeline.Handler {
	return func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		last, err := log.Last(ctx, m.Event.Run, m.Event.Type.Kind(), m.Event.Entity)
		if err != nil || last.Type == events.RolloutScoredType {
			return nil, err
		}
		e, err := events.New(m.Event.Run, events.RolloutScoredType, m.Event.Entity,
			"0", events.RolloutScored{Reward: 1})
		e.Prev = last.Seq
		return []events.Event{e}, err
	}
}

// scoredOnce checks that each of n rollouts is scored exactly once.
func (p *plane) scoredOnce(t testing.TB, run string, n int) {
	t.Helper()
	scored := p.ofType(t, run, events.RolloutScoredType)
	for i := range n {
		if got := scored[rollout(i)]; got != 1 {
			t.Errorf("rollout %s was scored %d times", rollout(i), got)
		}
	}
}

// acknowledged waits until the scorer's consumer of a run has nothing left.
func (p *plane) acknowledged(t testing.TB, run string) {
	t.Helper()
	spec := topology.ConsumersOf(topology.Scorer)[0].For(run, "")
	inputs := 0
	for _, n := range p.ofType(t, run, events.RolloutFinishedType) {
		inputs += n
	}
	natstest.Eventually(t, "all inputs are acknowledged", func() bool {
		c, err := p.log.JetStream().Consumer(t.Context(), spec.Stream, spec.Name)
		if err != nil {
			return false
		}
		info, err := c.Info(t.Context())
		// The server notices a new message a moment after it has stored it.
		return err == nil && info.Delivered.Consumer >= uint64(inputs) &&
			info.NumPending == 0 && info.NumAckPending == 0
	})
}

// calls counts by a name.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

func (c *calls) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

var errTest = fmt.Errorf("the verifier fell over")
