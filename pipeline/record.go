package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/pipeline/tracing"
	"github.com/rondo-rl/rondo/retry"
)

// A handler is called again at once, after a rest in which racing writers part, when somebody else
// was faster. After these tries its input waits for another delivery.
var races = retry.Policy{First: 2 * time.Millisecond, Most: 100 * time.Millisecond, Tries: 16}

// Record hands one input to the service's handler and appends its events. It calls the handler
// again where somebody else was faster, and where the handler asks for it. It is the one place at
// which effect services append.
func (e Effect) Record(ctx context.Context, env Env, m Message) error {
	return e.record(ctx, env, m, func(time.Duration, int) {}, func(error) bool { return false })
}

// record is Record, and tells of each append how long it took and of how many events it was. What
// an outage keeps from being done is done again as often as park waits for its end: park reports
// whether it has waited, which it does only for an outage.
func (e Effect) record(ctx context.Context, env Env, m Message, published func(time.Duration, int),
	park func(error) bool) error {
	to := env.Log.Appender.At(m.Event.Run, m.Seq)
	m.Log = to.Reader
	m.State = func(ctx context.Context, fact events.Event) (events.Event, error) { return e.state(ctx, to, fact) }
	for lost := 0; ; m.Again = true {
		facts, wish := e.Handle(ctx, m)
		progress, err := e.append(ctx, to, m, facts, published)
		for err != nil && park(err) { // what was sampled or run is not done a second time
			progress, err = e.append(ctx, to, m, facts, published)
		}
		if err == nil {
			// A Permanent input must not go with its events unstated, so the wish comes second.
			err = wish
		}
		if err != nil && park(err) {
			lost = 0
			continue
		}
		again := errors.Is(err, ErrCallAgain)
		if again && progress {
			lost = 0
			continue
		}
		if !again && !errors.Is(err, ErrOvertaken) {
			return err
		}
		if lost++; races.GivesUp(lost) || !races.Wait(ctx, lost) {
			return err
		}
	}
}

// append puts a handler's events on the log, and reports whether they were not there before.
func (e Effect) append(ctx context.Context, to eventlog.Appender, m Message, facts []events.Event,
	published func(time.Duration, int)) (progress bool, err error) {
	if len(facts) == 0 {
		return false, nil
	}
	facts = e.stamped(ctx, to.Reader, facts)
	began := time.Now()
	stored, adopted, err := publish(ctx, to, facts)
	published(time.Since(began), len(facts))
	tracing.Stated(ctx, ownOf(stored, adopted))
	switch {
	case err != nil || e.Recorded == nil:
		return !adopted, err
	case adopted:
		return false, fmt.Errorf("%w: %s was adopted", ErrOvertaken, facts[len(facts)-1].ID)
	}
	return true, e.Recorded(ctx, m, stored)
}

// stamped are a handler's events with what says whose they are.
func (e Effect) stamped(ctx context.Context, log eventlog.Reader, facts []events.Event) []events.Event {
	facts = slices.Clone(facts) // the handler's may be shared
	for i := range facts {
		if facts[i].Source == "" {
			facts[i].Source = e.Name
		}
	}
	tracing.Stamp(ctx, log, facts)
	return facts
}

// state appends an event of a handler that is at work. Another writer's of the same
// identity may say something else.
func (e Effect) state(ctx context.Context, to eventlog.Appender, fact events.Event) (events.Event, error) {
	stored, adopted, err := publish(ctx, to, e.stamped(ctx, to.Reader, []events.Event{fact}))
	switch {
	case err != nil:
		return fact, err
	case adopted && !bytes.Equal(stored[0].Data, fact.Data):
		return fact, fmt.Errorf("%w: %s says something else", ErrOvertaken, fact.ID)
	}
	return stored[0], nil
}

// ownOf leaves out the event that somebody else has appended.
func ownOf(stored []events.Event, adopted bool) []events.Event {
	if adopted {
		return stored[:len(stored)-1]
	}
	return stored
}
