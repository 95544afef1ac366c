package pipeline_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// The line to the server is cut in the middle of handlers, again and again: nothing is
// lost, nothing stands twice.
func TestCutConnection(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		const n = 120
		p.finish(t, testRun, 0, n)
		nc, line := natstest.ConnectOver(t, p.server)
		env := p.envOver(t, nc, "")
		var handled atomic.Int64
		effect(t, env, 8, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			out, err := score(env.Log)(ctx, m)
			if handled.Add(1)%15 == 0 {
				line.Cut() // between the look at the log and the append
				time.AfterFunc(20*time.Millisecond, line.Mend)
			}
			return out, err
		})
		natstest.Eventually(t, "all are scored", func() bool {
			return len(p.ofType(t, testRun,
				events.RolloutScoredType)) == n
		})
		p.scoredOnce(t, testRun, n)
	})
}

// A process dies with handlers at work. Another one finishes what it began.
func TestDeadWorkerLosesNothing(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		const n = 12
		p.finish(t, testRun, 0, n)
		nc, line := natstest.ConnectOver(t, p.server)
		dying := p.envOver(t, nc, "")
		stuck := make(chan struct{})
		var atWork atomic.Int64
		effect(t, dying, 8, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			if atWork.Add(1)%2 == 0 {
				return score(dying.Log)(ctx, m) // half of them get through
			}
			<-stuck
			return nil, ctx.Err()
		})
		time.Sleep(time.Second)
		line.Cut()
		env := p.env(t, "")
		effect(t, env, 8, score(env.Log))
		p.acknowledged(t, testRun)
		p.scoredOnce(t, testRun, n)
		close(stuck)
		line.Mend()
	})
}

func TestGracefulStop(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.finish(t, testRun, 0, 6)
		env := p.env(t, "")
		var interrupted atomic.Int64
		began := make(chan string, 6)
		service := effect(t, env, 2, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			began <- m.Event.Entity
			work := 10 * time.Second
			if m.Event.Entity == rollout(1) {
				work = time.Hour
			}
			select {
			case <-ctx.Done():
				interrupted.Add(1)
				return nil, ctx.Err()
			case <-time.After(work):
				return score(env.Log)(ctx, m)
			}
		})
		<-began
		<-began
		at := time.Now()
		service.end(t)
		if took := time.Since(at); took < 10*time.Second || took > time.Minute {
			t.Errorf("stopped after %s, want the grace time", took)
		}
		if len(began) > 0 {
			t.Errorf("%d handlers began after the stop", len(began))
		}
		if scored := p.ofType(t, testRun, events.RolloutScoredType); len(scored) != 1 || scored[rollout(0)] != 1 ||
			interrupted.Load() != 1 {
			t.Errorf("scored: %v, interrupted: %d; want the short one scored and the long one interrupted", scored,
				interrupted.Load())
		}
		// The others, and the interrupted one, are there for the next process at once.
		next := p.env(t, "")
		effect(t, next, 2, score(next.Log))
		at = time.Now()
		p.acknowledged(t, testRun)
		if took := time.Since(at); took > 5*time.Second {
			t.Errorf("what was given back came after %s", took)
		}
		p.scoredOnce(t, testRun, 6)
	})
}

func TestRunsComeAndGo(t *testing.T) {
	p := newPlane(t)
	p.open(t, "first")
	p.open(t, "closed")
	p.close(t, "closed")
	p.finish(t, "first", 0, 2)
	p.finish(t, "closed", 0, 2)
	env := p.env(t, "")
	effect(t, env, 1, score(env.Log))
	p.acknowledged(t, "first")
	p.close(t, "first") // no run is left, and the service lives on
	p.open(t, "second")
	p.finish(t, "second", 0, 2)
	p.acknowledged(t, "second")
	p.scoredOnce(t, "second", 2)
	if scored := p.ofType(t, "closed", events.RolloutScoredType); len(scored) != 0 {
		t.Errorf("a run that was closed before the service began was worked on: %v", scored)
	}
}

func TestRoutes(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		var mine atomic.Value
		mine.Store([]string{"pool-a"})
		var seen calls
		start(t, func(ctx context.Context) error {
			return pipeline.RunEffect(ctx, p.env(t, ""), pipeline.Effect{
				Name: topology.ToolRunner, Slots: 2,
				Routes: func(context.Context, string) []string { return mine.Load().([]string) },
				Handle: func(_ context.Context, m pipeline.Message) ([]events.Event, error) {
					seen.add(m.Event.Route)
					return nil, nil
				},
			})
		})
		turn := 0
		sample := func(route string) {
			turn++
			e := event(t, testRun, events.TurnSampledType, rollout(turn), "0", events.TurnSampled{})
			e.Route = route
			p.append(t, e)
			time.Sleep(time.Minute)
		}
		sample("pool-a")
		sample("pool-b")
		mine.Store([]string{"pool-b"})
		time.Sleep(time.Minute)
		sample("pool-a")
		if a, b := seen.of("pool-a"), seen.of("pool-b"); a != 1 || b != 1 {
			t.Errorf("handled %d of pool-a and %d of pool-b, want 1 and 1", a, b)
		}
	})
}

func TestTraceContext(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	traced, untraced := finished(t, testRun, 0), finished(t, testRun, 1)
	traced.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	p.append(t, traced)
	p.append(t, untraced)
	env := p.env(t, "")
	effect(t, env, 1, score(env.Log))
	p.acknowledged(t, testRun)
	for _, e := range p.all(t, testRun) {
		if e.Type != events.RolloutScoredType {
			continue
		}
		same := strings.Contains(e.TraceParent, "0af7651916cd43dd8448eb211c80319c")
		if len(e.TraceParent) != 55 || same != (e.Entity == rollout(0)) {
			t.Errorf("%s has trace %q", e.ID, e.TraceParent)
		}
	}
}

func TestMetrics(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	p.open(t, "other")
	p.finish(t, testRun, 0, 5)
	p.finish(t, "other", 0, 5)
	env := p.env(t, "")
	var seen calls
	service := effect(t, env, 1, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		switch {
		case m.Event.Entity == rollout(0):
			return nil, pipeline.Permanent(errTest)
		case m.Event.Entity == rollout(1) && seen.add(m.Event.Run) == 1:
			return nil, pipeline.RetryAfter(errTest, time.Millisecond)
		}
		return score(env.Log)(ctx, m)
	})
	p.acknowledged(t, testRun)
	p.acknowledged(t, "other")
	service.end(t)
	families, err := env.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "service", "type", "outcome":
				default:
					t.Errorf("%s has the label %s, which grows with what runs", name, l.GetName())
				}
				if l.GetName() == "outcome" {
					name += " " + l.GetValue()
				}
			}
			got[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"rondo_inputs_total done": 8, "rondo_inputs_total retried": 2, "rondo_inputs_total dead": 2,
		"rondo_events_stated_total": 8, "rondo_publish_seconds": 8, "rondo_handler_seconds": 12,
		"rondo_in_flight": 0, "rondo_backlog": 0,
	} {
		t.Run(name, func(t *testing.T) {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		})
	}
}

// Raw consumers, such as the intake's, get messages that are no events.
func TestRawConsumer(t *testing.T) {
	p := newPlane(t)
	got := make(chan pipeline.Message, 1)
	start(t, func(ctx context.Context) error {
		return pipeline.RunEffect(ctx, p.env(t, ""), pipeline.Effect{
			Name: topology.DeadLetters, Slots: 1,
			Handle: func(_ context.Context, m pipeline.Message) ([]events.Event, error) {
				got <- m
				return nil, nil
			},
		})
	})
	subject := "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.RONDO_x.c"
	body, err := json.Marshal(map[string]string{"reason": "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.log.Conn().PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"a": {"b"}},
		Data: body}); err != nil {
		t.Fatal(err)
	}
	m := <-got
	if m.Subject != subject || string(m.Data) != string(body) || m.Header["a"][0] != "b" || m.Event.ID != "" ||
		m.Seq != 1 || m.Delivered != 1 {
		t.Errorf("got %+v", m)
	}
}

// A consumer that cannot be made is tried again and again, and no try leaves anything behind: a
// bubble that ends with goroutines in it fails its test.
func TestConsumerThatCannotBeMade(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		if err := p.log.Streams.DeleteRun(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		env := p.env(t, "")
		service := effect(t, env, 2, score(env.Log))
		time.Sleep(10 * time.Minute)
		service.end(t)
	})
}

// A run that has no work for a service has no consumers of it, and other runs do.
func TestRunsWithoutWork(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.openAs(t, "idle", runfile.RunConfig{External: true})
		p.open(t, testRun)
		env := p.env(t, "")
		start(t, func(ctx context.Context) error {
			return pipeline.RunEffect(ctx, env, pipeline.Effect{
				Name: topology.Scorer, Slots: 1, Handle: score(env.Log),
				Serves: func(cfg runfile.RunConfig) bool { return !cfg.External },
			})
		})
		p.finish(t, "idle", 0, 1)
		p.finish(t, testRun, 0, 1)
		natstest.Eventually(t, "it is scored", func() bool {
			return len(p.ofType(t, testRun,
				events.RolloutScoredType)) == 1
		})
		idle, err := env.Log.JetStream().Stream(t.Context(), events.RunStream("idle"))
		if err != nil {
			t.Fatal(err)
		}
		if n := idle.CachedInfo().State.Consumers; n != 0 {
			t.Errorf("a run without work has %d consumers", n)
		}
	})
}
