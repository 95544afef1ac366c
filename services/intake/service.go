// Package intake is the door: it checks what outsiders state against its schema and against the run, and puts
// it on the log as a chained fact, or answers why not.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/schemas"
	"github.com/rondo-rl/rondo/storage"
)

// slots is how many messages are taken in at once.
const slots = 16

// Service consumes rondo.in.>, and emits what outsiders may state, and dead_lettered for what it refuses.
type Service struct {
	log *eventlog.Log
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env) error {
	s := &Service{log: env.Log}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.Intake, Slots: slots, Handle: s.Handle})
}

// refusal is an answer to the outsider: the message is wrong and will not become right.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// Handle takes one message in. Messages from a run's own stream are its closing, which the catalogue copies.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	if !strings.HasPrefix(m.Subject, "rondo.in.") {
		return nil, s.copyClosing(ctx, m)
	}
	stored, err := s.take(ctx, m)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		if err := s.deadLetter(ctx, m, refused); err != nil {
			return nil, err
		}
		s.answer(m, events.DoorAnswer{Error: refused.reason})
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.answer(m, events.DoorAnswer{ID: stored.ID, Sequence: stored.Seq})
	return nil, nil
}

// take checks a message and appends its fact.
func (s *Service) take(ctx context.Context, m runtime.Message) (events.Event, error) {
	run, t, entity, err := events.ParseDoorSubject(m.Subject)
	if err != nil {
		return events.Event{}, refuse("%v", err)
	}
	if !t.Known() || !t.FromOutside() {
		return events.Event{}, refuse("%s: not an event that may be stated from outside", t)
	}
	body, err := s.log.DoorBody(ctx, m.Header, m.Data)
	if err != nil {
		return events.Event{}, refuseLost(err)
	}
	if err := schemas.Validate(t, body); err != nil {
		return events.Event{}, refuse("%s: %v", t, err)
	}
	fact := events.Event{
		ID: events.ID(run, t, entity, ordinal(m, t)), Run: run, Type: t, Entity: entity,
		Source: source(m), Data: body,
	}
	if err := s.admit(ctx, fact); err != nil {
		return fact, err
	}
	stored, err := s.log.AppendOnce(ctx, fact, m.Time, func(last *events.Event) error { return follows(fact, last) })
	if err != nil || t != events.RunOpenedType {
		return stored, err
	}
	return stored, s.catalogue(ctx, stored)
}

// refuseLost refuses a body that the store does not hold, and lets the message come again when the store fails.
func refuseLost(err error) error {
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrKey) {
		return refuse("%v", err)
	}
	return err
}

// answer tells the outsider over core NATS. Only inboxes are answered: nobody may make the intake publish
// elsewhere.
func (s *Service) answer(m runtime.Message, a events.DoorAnswer) {
	inbox := m.Header[events.HeaderReply]
	if len(inbox) != 1 || !strings.HasPrefix(inbox[0], "_INBOX.") {
		return
	}
	if body, err := json.Marshal(a); err == nil {
		// An answer that is lost leaves the fact on the log; the outsider may ask again with the same id.
		_ = s.log.Conn().Publish(inbox[0], body)
	}
}

// deadLetter records a refused message: nothing vanishes silently.
func (s *Service) deadLetter(ctx context.Context, m runtime.Message, cause *refusal) error {
	body, err := storage.PutBlob(ctx, s.log.Store(), m.Data)
	if err != nil {
		return err
	}
	fact, err := events.New(events.Catalogue, events.DeadLetteredType, events.DoorStream, fmt.Sprint(m.Seq), events.DeadLettered{
		Stream: events.DoorStream, Sequence: m.Seq, Consumer: events.ConsumersOf(events.Intake)[0].Name,
		Subject: m.Subject, Reason: cause.reason, Body: &body,
	})
	if err != nil {
		return err
	}
	fact.Source = events.Intake
	_, err = s.log.AppendOnce(ctx, fact, m.Time, nil)
	return err
}

// catalogue copies a run's opening or closing to where all services look for runs.
func (s *Service) catalogue(ctx context.Context, e events.Event) error {
	c := events.Event{ID: e.ID, Run: events.Catalogue, Type: e.Type, Entity: e.Run, Source: events.Intake, Data: e.Data}
	_, _, err := s.log.AppendLast(ctx, c, func(last *events.Event) error {
		if last != nil && last.Type == events.RunClosedType && e.Type == events.RunOpenedType {
			return errKnown // the opening was copied long ago
		}
		return nil
	})
	if errors.Is(err, errKnown) {
		return nil
	}
	return err
}

var errKnown = errors.New("already in the catalogue")

func (s *Service) copyClosing(ctx context.Context, m runtime.Message) error {
	e, err := s.log.Event(ctx, m.Event.Run, m.Seq)
	if err != nil {
		return err
	}
	return s.catalogue(ctx, e)
}
