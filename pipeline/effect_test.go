package pipeline_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

func TestTwoWorkersShareTheWork(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	const n = 200
	p.finish(t, testRun, 0, n)
	for range 2 {
		env := p.env(t, "")
		effect(t, env, 8, score(env.Log))
	}
	p.acknowledged(t, testRun)
	p.scoredOnce(t, testRun, n)
	for _, e := range p.all(t, testRun) {
		if e.Type == events.RolloutScoredType && (e.Source != topology.Scorer || e.Prev == 0) {
			t.Fatalf("%s has source %q and prev %d", e.ID, e.Source, e.Prev)
		}
	}
}

// Every delivery comes several times and at once: the chain lets one of them state its outcome.
func TestDuplicateDeliveries(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	const n = 30
	p.finish(t, testRun, 0, n)
	env := p.env(t, "")
	var seen calls
	effect(t, env, 16, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		out, err := score(env.Log)(ctx, m)
		if err == nil && seen.add(m.Event.Entity) < 4 {
			err = pipeline.RetryAfter(errTest, 0) // its outcome is on the log, and it comes again all the same
		}
		return out, err
	})
	p.acknowledged(t, testRun)
	p.scoredOnce(t, testRun, n)
}

func TestOutputsOfOneChainAreLinked(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	p.finish(t, testRun, 0, 1)
	effect(t, p.env(t, ""), 1, func(_ context.Context, m pipeline.Message) ([]events.Event, error) {
		retried := event(t, testRun, events.RolloutRetriedType, m.Event.Entity, "1", events.RolloutRetried{Try: 1})
		other := event(t, testRun, events.RolloutAnnotatedType, "elsewhere", "0", events.RolloutAnnotated{})
		failed := event(t, testRun, events.RolloutFailedType, m.Event.Entity, "0", events.RolloutFailed{})
		retried.Prev = m.Seq
		return []events.Event{retried, other, failed}, nil
	})
	p.acknowledged(t, testRun)
	all := p.all(t, testRun)
	retried, other, failed := all[2], all[3], all[4]
	if retried.Type != events.RolloutRetriedType || failed.Type != events.RolloutFailedType ||
		failed.Prev != retried.Seq || other.Prev != 0 {
		t.Errorf("got %s behind %d, %s behind %d, %s behind %d", retried.ID, retried.Prev, other.ID,
			other.Prev, failed.ID, failed.Prev)
	}
}

func TestConflictCallsTheHandlerAgain(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	p.finish(t, testRun, 0, 1)
	env := p.env(t, "")
	var seen calls
	effect(t, env, 1, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		out, err := score(env.Log)(ctx, m)
		if err == nil && seen.add("handle") == 1 {
			// Somebody else states something between our look at the chain and our append.
			e := event(t, testRun, events.RolloutAnnotatedType, m.Event.Entity,
				"0", events.RolloutAnnotated{Text: "late"})
			e.Prev = m.Seq
			p.append(t, e)
		}
		return out, err
	})
	p.acknowledged(t, testRun)
	p.scoredOnce(t, testRun, 1)
	if n := seen.of("handle"); n != 2 {
		t.Errorf("the handler was called %d times, want 2", n)
	}
	if delivered := p.all(t, testRun)[3]; delivered.Type != events.RolloutScoredType || delivered.Prev != 3 {
		t.Errorf("%s stands behind %d, want the score behind the annotation", delivered.ID, delivered.Prev)
	}
}

// Another worker has sampled the same turn with another result: the log's one counts, and what
// follows must be derived from it.
func TestAdoptionCallsTheHandlerAgain(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	p.finish(t, testRun, 0, 1)
	env := p.env(t, "")
	tried := func(text string) events.Event {
		return event(t, testRun, events.RolloutRetriedType, rollout(0),
			"1", events.RolloutRetried{Try: 1, Message: text})
	}
	effect(t, env, 1, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		last, err := m.Log.Last(ctx, testRun, "rollout", m.Event.Entity)
		if err != nil {
			return nil, err
		}
		if last.Type == events.RolloutRetriedType {
			r, err := events.Data[events.RolloutRetried](last)
			failed := event(t, testRun, events.RolloutFailedType, m.Event.Entity,
				"0", events.RolloutFailed{Message: "after " + r.Message})
			failed.Prev = last.Seq
			return []events.Event{failed}, err
		}
		theirs := tried("theirs")
		theirs.Prev = last.Seq
		p.append(t, theirs)
		ours, failed := tried("ours"), event(t, testRun, events.RolloutFailedType, m.Event.Entity,
			"0", events.RolloutFailed{Message: "after ours"})
		ours.Prev = last.Seq
		return []events.Event{ours, failed}, nil
	})
	p.acknowledged(t, testRun)
	all := p.all(t, testRun)
	failed, err := events.Data[events.RolloutFailed](all[len(all)-1])
	if err != nil || len(all) != 4 || failed.Message != "after theirs" {
		t.Errorf("%d events, the last one says %q (%v); want 4 and one derived from the winner", len(all),
			failed.Message, err)
	}
}

func TestWishes(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.finish(t, testRun, 0, 4)
		var mu sync.Mutex
		var at [4][]time.Time
		handled := func(i int) int {
			mu.Lock()
			defer mu.Unlock()
			at[i] = append(at[i], time.Now())
			return len(at[i])
		}
		env := p.env(t, "")
		effect(t, env, 4, func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
			in, err := events.Data[events.RolloutFinished](m.Event)
			if err != nil {
				return nil, err
			}
			switch n := handled(in.Turns); {
			case n > 1:
				return score(env.Log)(ctx, m)
			case in.Turns == 0:
				e := event(t, testRun, events.RolloutRetriedType, m.Event.Entity, "1", events.RolloutRetried{Try: 1})
				e.Prev = m.Seq
				return []events.Event{e}, pipeline.RetryAfter(errTest, time.Hour)
			case in.Turns == 1:
				panic("a nil map")
			case in.Turns == 2:
				return nil, pipeline.Permanent(errTest)
			}
			return nil, errTest
		})
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		for i, want := range []time.Duration{time.Hour, 100 * time.Millisecond, -1, 100 * time.Millisecond} {
			switch {
			case want < 0 && len(at[i]) != 1:
				t.Errorf("input %d was handled %d times, want once", i, len(at[i]))
			case want > 0 && len(at[i]) != 2:
				t.Errorf("input %d was handled %d times, want twice", i, len(at[i]))
			case want > 0:
				least := want
				if want < time.Hour {
					least /= 2 // half of the wait is random where the handler wishes none
				}
				if took := at[i][1].Sub(at[i][0]); took < least || took > want+want/5 {
					t.Errorf("input %d came again after %s, want %s", i, took, want)
				}
			}
		}
		if n := p.ofType(t, testRun, events.RolloutRetriedType)[rollout(0)]; n != 1 {
			t.Errorf("the event beside the error is %d times on the log", n)
		}
		letters := p.deadLetters(t)
		if len(letters) != 1 || !strings.Contains(letters[0], errTest.Error()) ||
			!strings.Contains(letters[0], `"stream_seq":4`) {
			t.Errorf("dead letters: %q", letters)
		}
	})
}

// deadLetters are the advisories of deliveries that were given up.
func (p *plane) deadLetters(t testing.TB) []string {
	t.Helper()
	stream, err := p.log.JetStream().Stream(t.Context(), events.DeadStream)
	if err != nil {
		t.Fatal(err)
	}
	var letters []string
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, string(m.Data))
	}
	return letters
}

// What fails each time ends as a dead letter that says why, not in silence.
func TestLastDeliveryIsADeadLetterWithReason(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.finish(t, testRun, 0, 1)
		var seen calls
		effect(t, p.env(t, ""), 1, func(context.Context, pipeline.Message) ([]events.Event, error) {
			seen.add("handle")
			return nil, errTest
		})
		time.Sleep(20 * time.Minute)
		// A delivery that crosses with the withdrawal of its pull reaches nobody, and counts.
		if most := topology.ConsumersOf(topology.Scorer)[0].MaxDeliver; seen.of("handle") > most ||
			seen.of("handle") < most-2 {
			t.Errorf("handled %d times, want %d or a little less", seen.of("handle"), most)
		}
		if letters := p.deadLetters(t); len(letters) != 1 || !strings.Contains(letters[0], errTest.Error()) {
			t.Errorf("dead letters: %q", letters)
		}
	})
}

// A message that is no event cannot have come from Rondo's publisher. It stops nothing.
func TestMalformedInputIsADeadLetter(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	if _, err := p.log.JetStream().Publish(t.Context(),
		"rondo.v1.test.rollout.g000009-0.finished", []byte("{")); err != nil {
		t.Fatal(err)
	}
	p.finish(t, testRun, 0, 3)
	env := p.env(t, "")
	effect(t, env, 1, score(env.Log))
	p.acknowledged(t, testRun)
	natstest.Eventually(t, "there is a dead letter", func() bool { return len(p.deadLetters(t)) == 1 })
	if letter := p.deadLetters(t)[0]; !strings.Contains(letter, "malformed event") {
		t.Errorf("the dead letter says %s", letter)
	}
}
