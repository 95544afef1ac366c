// Package intake is the door: it checks what outsiders state against its schema and against the run, and puts
// it on the log as a chained fact, or answers why not.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/storage"
)

// slots is how many messages are taken in at once.
const slots = 16

// Service consumes rondo.in.>, and emits what outsiders may state, and dead_lettered for what it refuses.
type Service struct {
	log    *eventlog.Log
	logger *slog.Logger
	known  *chains
	// decoders holds a place for each trajectory file in memory.
	decoders chan struct{}
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env) error {
	s, err := newService(env)
	if err != nil {
		return err
	}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.Intake, Slots: slots, Handle: s.Handle})
}

func newService(env runtime.Env) (*Service, error) {
	known, err := newChains(env.Log)
	return &Service{log: env.Log, logger: env.Logger, known: known, decoders: make(chan struct{}, decodersAtOnce)}, err
}

// Handle takes one message in. Messages from a run's own stream are its closing, which the catalogue copies.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	if !strings.HasPrefix(m.Subject, events.DoorPrefix) {
		return nil, s.copyClosing(ctx, m)
	}
	stored, err := s.take(ctx, m)
	if err == nil {
		s.answer(m, events.DoorAnswer{ID: stored.ID, Sequence: stored.Seq})
		return nil, nil
	}
	var refused *refusal
	if !errors.As(err, &refused) {
		if !lastDelivery(m) || ctx.Err() != nil {
			return nil, err
		}
		// The door forgets the message after this delivery: the dead letter keeps its content.
		refused = &refusal{fmt.Sprintf("given up after %d deliveries: %v", m.Delivered, err)}
	}
	if err := s.deadLetter(ctx, m, refused); err != nil {
		return nil, err
	}
	s.answer(m, events.DoorAnswer{Error: refused.reason})
	return nil, nil
}

func lastDelivery(m runtime.Message) bool {
	return m.Delivered >= uint64(events.ConsumersOf(events.Intake)[0].MaxDeliver)
}

// take checks a message and appends its fact.
func (s *Service) take(ctx context.Context, m runtime.Message) (events.Event, error) {
	fact, payload, err := s.read(ctx, m)
	if err != nil {
		return fact, err
	}
	if opened, ok := payload.(*events.RunOpened); ok {
		return s.open(ctx, fact, opened, m.Time)
	}
	if happensOnce(fact.Type) {
		// What was admitted once is not judged again: deadlines pass, and runs are paused.
		stored, err := s.log.LastOfType(ctx, fact.Run, fact.Type, fact.Entity)
		if err == nil && stored.ID == fact.ID {
			return stored, s.same(fact, stored)
		}
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return fact, err
		}
	}
	if _, ok := payload.(*events.TurnSampled); ok {
		stored, found, err := s.onChain(ctx, fact)
		if err != nil {
			return fact, err
		}
		if found {
			return stored, s.same(fact, stored)
		}
	}
	if err := s.admit(ctx, m, fact, payload); err != nil {
		return fact, err
	}
	return s.link(ctx, fact)
}

// onChain looks for a fact that was taken in before.
func (s *Service) onChain(ctx context.Context, fact events.Event) (events.Event, bool, error) {
	last, err := s.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return events.Event{}, false, nil
	}
	if err != nil {
		return events.Event{}, false, err
	}
	return s.known.find(ctx, last, fact.ID)
}

// link puts a fact behind the last link of its chain, unless it stands on the chain already: a message that was
// delivered before, or sent before under the same id.
func (s *Service) link(ctx context.Context, fact events.Event) (events.Event, error) {
	var earlier *events.Event
	stored, _, err := s.log.AppendLast(ctx, fact, func(last *events.Event) error {
		if last != nil {
			e, found, err := s.known.find(ctx, *last, fact.ID)
			if err != nil {
				return err
			}
			if found {
				earlier = &e
				return errKnown
			}
		}
		return s.follows(ctx, fact, last)
	})
	if earlier != nil {
		stored, err = *earlier, nil
	}
	if err == nil {
		err = s.same(fact, stored)
	}
	return stored, err
}

// same refuses a fact in whose place another one stands.
func (s *Service) same(fact, stored events.Event) error {
	switch {
	case fact.Type == events.RunClosedType || sameContent(fact, stored):
		return nil
	case happensOnce(fact.Type):
		return refuse("%s of %s stands at sequence %d already and says something else", fact.Type, fact.Entity, stored.Seq)
	}
	return refuse("%s %q was used for another %s of %s, at sequence %d: choose a new one",
		events.HeaderMessageID, fact.ID[strings.LastIndex(fact.ID, "/")+1:], fact.Type, fact.Entity, stored.Seq)
}

var errKnown = errors.New("on the log already")

// copyClosing copies a run's closing to the catalogue.
func (s *Service) copyClosing(ctx context.Context, m runtime.Message) error {
	e, err := s.log.Event(ctx, m.Event.Run, m.Seq)
	if err != nil {
		return err
	}
	return s.catalogue(ctx, e)
}

// refuseLost refuses a body that the store does not hold, and lets the message come again when the store fails.
func refuseLost(err error) error {
	for _, wrong := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrKey, storage.ErrTooLarge, events.ErrMalformed} {
		if errors.Is(err, wrong) {
			return refuse("body: %v", err)
		}
	}
	return err
}
