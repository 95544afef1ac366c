package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// remark is an event of the first rollout.
func remark(t testing.TB, ordinal, text string) events.Event {
	t.Helper()
	return event(t, testRun, events.RolloutAnnotatedType, rollout(0), ordinal, events.RolloutAnnotated{Text: text})
}

// A handler that asks for another call gets it as often as it has something new, and
// sees what it stated before.
func TestCallAgain(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	const parts = 50 // more than the tries of a lost race
	var again []bool
	e := pipeline.Effect{Name: topology.Archiver, Handle: func(ctx context.Context,
		m pipeline.Message) ([]events.Event, error) {
		again = append(again, m.Again)
		next := remark(t, fmt.Sprint(len(again)), "part")
		last, err := m.Log.Last(ctx, testRun, "rollout", rollout(0))
		if len(again) > 1 && err != nil {
			return nil, err
		}
		if next.Prev = last.Seq; len(again) > parts {
			return nil, nil
		}
		return []events.Event{next}, pipeline.ErrCallAgain
	}}
	if err := e.Record(t.Context(), pipeline.Env{Log: p.log}, pipeline.Message{}); err != nil {
		t.Fatal(err)
	}
	if n := p.ofType(t, testRun, events.RolloutAnnotatedType)[rollout(0)]; n != parts ||
		len(again) != parts+1 || again[0] || !again[1] {
		t.Errorf("%d parts in %d calls, the first ones again: %v", n, len(again), again[:2])
	}
}

// A service without slots, as a flag of 0 makes it, would wait for ever.
func TestNoSlots(t *testing.T) {
	err := pipeline.RunEffect(t.Context(), pipeline.Env{}, pipeline.Effect{Name: topology.Scorer})
	if err == nil || !strings.Contains(err.Error(), "0 slots") {
		t.Errorf("%v", err)
	}
}

// A handler that asks for another call without anything new, or loses each
// race, is not called for ever.
func TestNoProgress(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.append(t, remark(t, "0", "theirs"))
		for name, handle := range map[string]func() ([]events.Event, error){
			"nothing new": func() ([]events.Event, error) { return nil, pipeline.ErrCallAgain },
			"adopted": func() ([]events.Event, error) {
				return []events.Event{remark(t, "0", "ours")},
					pipeline.ErrCallAgain
			},
			"always later": func() ([]events.Event, error) { return []events.Event{remark(t, "1", "ours")}, nil },
		} {
			calls := 0
			e := pipeline.Effect{Name: topology.Scorer,
				Handle: func(context.Context, pipeline.Message) ([]events.Event, error) {
					calls++
					return handle()
				}}
			began := time.Now()
			if err := e.Record(t.Context(), pipeline.Env{Log: p.log}, pipeline.Message{}); err == nil {
				t.Errorf("%s: no error", name)
			}
			if took := time.Since(began); calls < 2 || calls > 100 || took < time.Millisecond {
				t.Errorf("%s: %d calls within %s", name, calls, took)
			}
		}
	})
}

// What a service is told of as recorded, it has appended itself. Where somebody else was faster its
// handler reads the log again.
func TestRecorded(t *testing.T) {
	p := newPlane(t)
	p.open(t, testRun)
	theirs := p.append(t, remark(t, "0", "theirs"))
	var told []events.Event
	calls := 0
	e := pipeline.Effect{
		Name: topology.Intake,
		Handle: func(context.Context, pipeline.Message) ([]events.Event, error) {
			if calls++; calls == 1 {
				return []events.Event{remark(t, "0", "ours")}, nil
			}
			ours := remark(t, "1", "ours")
			ours.Prev = theirs.Seq
			return []events.Event{ours}, nil
		},
		Recorded: func(_ context.Context, _ pipeline.Message, facts []events.Event) error {
			told = append(told, facts...)
			return nil
		},
	}
	if err := e.Record(t.Context(), pipeline.Env{Log: p.log}, pipeline.Message{}); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0].Seq != theirs.Seq+1 || told[0].ID != remark(t, "1", "").ID || calls != 2 {
		t.Errorf("after %d calls it was told of %+v", calls, told)
	}
}

// A failure behind the append lets the input come again, and the last one is the service's to give
// up: nothing becomes a dead letter.
func TestGiveUp(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		p.open(t, testRun)
		p.finish(t, testRun, 0, 1)
		env := p.env(t, "")
		var seen calls
		start(t, func(ctx context.Context) error {
			return pipeline.RunEffect(ctx, env, pipeline.Effect{
				Name: topology.Scorer, Slots: 1,
				Handle: func(context.Context, pipeline.Message) ([]events.Event, error) {
					seen.add("handle")
					return nil, errTest
				},
				GiveUp: func(ctx context.Context, m pipeline.Message, cause error) ([]events.Event, error) {
					seen.add("give up: " + cause.Error())
					return score(env.Log)(ctx, m)
				},
			})
		})
		time.Sleep(20 * time.Minute)
		p.scoredOnce(t, testRun, 1)
		if n := seen.of("give up: " + errTest.Error()); n != 1 || seen.of("handle") < 2 {
			t.Errorf("given up %d times after %d calls", n, seen.of("handle"))
		}
		if letters := p.deadLetters(t); len(letters) != 0 {
			t.Errorf("dead letters: %q", letters)
		}
	})
}
