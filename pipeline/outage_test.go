package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// storing is a handler that looks at the log, stores something, and states its outcome: a failed
// try where it is to blame.
func storing(log *eventlog.Log, store storage.Store) pipeline.Handler {
	scored := score(log)
	return func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		if _, err := storage.PutBlob(ctx, store, []byte(m.Event.Entity)); err != nil {
			return nil, err
		}
		return scored(ctx, m)
	}
}

// TestOutageOfTheStore: a store that is away for six hours, which is longer than all deliveries of
// an input, costs no delivery and leaves no dead letter. No more inputs wait in memory than there
// are slots, and they go on by themselves.
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
		consumer, err := p.log.JetStream().Consumer(t.Context(), events.RunStream(testRun),
			topology.ConsumersOf(topology.Scorer)[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		info, err := consumer.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := info.NumAckPending; n < slots || n > 2*slots || info.NumRedelivered != 0 ||
			info.Delivered.Consumer != uint64(n) {
			t.Errorf("in the outage %d inputs are in work, %d came again, %d were delivered; want %d to %d, each once",
				n, info.NumRedelivered, info.Delivered.Consumer, slots, 2*slots)
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

// TestOutageOfOneRun: inputs that wait leave their slots to other runs. A run whose stream
// is full holds up no other.
func TestOutageOfOneRun(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.open(t, "full")
		const n = 8
		p.finish(t, "full", 0, n)
		env := p.env(t, "")
		var full atomic.Bool
		full.Store(true)
		scored := score(env.Log)
		effect(t, env, 2, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			if m.Event.Run == "full" && full.Load() {
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
		full.Store(false)
		p.acknowledged(t, "full")
		p.scoredOnce(t, "full", n)
	})
}

// TestOutageOfARestoration: inputs of a run whose stream is hidden while it is restored wait,
// and use up no deliveries.
func TestOutageOfARestoration(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		const n = 5
		p.finish(t, testRun, 0, n)
		env := p.env(t, "")
		var hidden atomic.Bool
		scored := score(env.Log)
		effect(t, env, 2, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			if hidden.CompareAndSwap(false, true) {
				if err := p.log.Restorer.Hide(ctx, testRun); err != nil {
					return nil, err
				}
			}
			return scored(ctx, m)
		})
		time.Sleep(30 * time.Minute) // all deliveries take five
		if err := p.log.Restorer.Show(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		p.acknowledged(t, testRun)
		p.scoredOnce(t, testRun, n)
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
		var made atomic.Int32
		effect(t, env, 1, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			made.Add(1)
			store.Down.Store(true)
			e, err := events.New(m.Event.Run, events.RolloutScoredType, m.Event.Entity,
				"0", events.RolloutScored{Flags: []string{string(make([]byte, events.MaxPayload))}})
			e.Prev = m.Event.Seq
			return []events.Event{e}, err
		})
		time.Sleep(time.Hour)
		store.Down.Store(false)
		p.acknowledged(t, testRun)
		if p.scoredOnce(t, testRun, 1); made.Load() != 1 {
			t.Errorf("the event was made %d times", made.Load())
		}
	})
}

// TestOutageIsStated: while an outage lasts, the log is told again and again that the stage waits
// for its end, without a gap and not more often than it takes. No more is said afterwards.
func TestOutageIsStated(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		store := &storagetest.Outages{Store: p.store}
		p.store = store
		p.open(t, testRun)
		p.open(t, "idle")
		p.finish(t, testRun, 0, 5)
		env := p.env(t, "")
		monitor, err := health.New(health.Options{Log: env.Log.Streams, Conn: env.Log.Conn(), Logger: env.Logger})
		if err != nil {
			t.Fatal(err)
		}
		env.Health = monitor
		watching, stop := context.WithCancel(t.Context())
		defer stop()
		go monitor.Run(watching)
		store.Down.Store(true)
		began := time.Now()
		start(t, func(ctx context.Context) error {
			return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Scorer, Slots: 2,
				Handle: storing(env.Log, store), Stage: events.StageScorer})
		})
		const lasts = 30 * time.Minute
		time.Sleep(lasts)
		store.Down.Store(false)
		p.acknowledged(t, testRun)
		time.Sleep(time.Hour)
		n, until := 0, began.Add(10*time.Second)
		for _, e := range p.all(t, testRun) {
			if e.Type != events.StageWaitedType {
				continue
			}
			waited, err := events.Data[events.StageWaited](e)
			if err != nil || e.Entity != events.StageScorer || waited.Outage != string(health.StoreUnreachable) ||
				waited.Since.After(began.Add(10*time.Second)) {
				t.Errorf("%s %+v %v", e.ID, waited, err)
			}
			if e.Time.After(until) {
				t.Errorf("nothing is said from %s to %s", until, e.Time)
			}
			n, until = n+1, waited.Until
		}
		if over := until.Sub(began.Add(lasts)); n < 30 || n > 100 || over < 0 || over > 2*time.Minute {
			t.Errorf("%d statements, the last one until %s behind the end", n, over)
		}
		if said := p.ofType(t, "idle", events.StageWaitedType); len(said) > 0 {
			t.Errorf("a run without work waits: %v", said)
		}
	})
}

// TestStopInAnOutage: a service stops although its inputs wait, and the next
// process gets them at once.
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
