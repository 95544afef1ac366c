// Package intake checks what outsiders submit, against its schema and against the run, and appends
// it to the log as a chained fact or answers why not.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// slots is how many messages are taken in at once.
const slots = 16

// Service consumes rondo.in.>, and emits what outsiders may state, and
// dead_lettered for what it refuses.
type Service struct {
	log     eventlog.Reader
	streams eventlog.Streams
	nc      *nats.Conn
	logger  *slog.Logger
	known   *chains
	from    *senders
	meter   *meter
	queued  *arrivals
	// decoders holds a place for each trajectory file in memory.
	decoders chan struct{}
}

// Run is the service with the default quotas.
func Run(ctx context.Context, env pipeline.Env) error { return RunWith(ctx, env, DefaultQuotas()) }

// RunWith is the service.
func RunWith(ctx context.Context, env pipeline.Env, q Quotas) error {
	if err := q.Validate(); err != nil {
		return err
	}
	s, err := newService(env, q)
	if err != nil {
		return err
	}
	var purging sync.WaitGroup
	defer purging.Wait()
	purging.Go(func() { s.queued.purge(ctx) })
	return pipeline.RunEffect(ctx, env, s.effect())
}

func (s *Service) effect() pipeline.Effect {
	return pipeline.Effect{Name: topology.Intake, Slots: slots, Handle: s.Handle, Recorded: s.recorded,
		GiveUp: s.giveUp, Arrivals: s.queued}
}

func newService(env pipeline.Env, q Quotas) (*Service, error) {
	known, err := newChains(env.Log.Reader)
	if err != nil {
		return nil, err
	}
	from, err := newSenders(env.Log.Reader)
	if err != nil {
		return nil, err
	}
	meter, err := newMeter(q, env)
	if err != nil {
		return nil, err
	}
	s := &Service{log: env.Log.Reader, streams: env.Log.Streams, nc: env.Log.Conn(), logger: env.Logger, known: known,
		from: from, meter: meter, decoders: make(chan struct{}, decodersAtOnce)}
	s.queued = newArrivals(env.Log.Conn(), env.Log.JetStream(), from, meter, s.answerTo)
	return s, nil
}

// Handle takes one message in. Messages from a run's own stream are its closing,
// which the catalogue copies.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	if !fromOutside(m) {
		return s.copyClosing(ctx, m)
	}
	from, err := s.from.find(ctx, m.Subject)
	if err != nil {
		return nil, err
	}
	arrived := s.queued.reach(m)
	if arrived.over != nil {
		return s.refused(ctx, from, m, arrived.over)
	}
	facts, stored, err := s.take(ctx, from, m, arrived.charged)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return s.refused(ctx, from, m, refused)
	case err == nil && len(facts) == 0:
		s.meter.count(from, "recorded")
		s.answer(m, events.IntakeAnswer{ID: stored.ID, Sequence: stored.Seq})
	}
	return facts, err
}

func fromOutside(m pipeline.Message) bool { return strings.HasPrefix(m.Subject, events.IntakePrefix) }

// recorded answers when the message's fact, or its refusal, is on the log.
func (s *Service) recorded(ctx context.Context, m pipeline.Message, facts []events.Event) error {
	fact := facts[0]
	if !fromOutside(m) {
		return nil
	}
	from, err := s.from.find(ctx, m.Subject)
	if err != nil {
		return err
	}
	switch fact.Type {
	case events.DeadLetteredType:
		dead, err := events.Data[events.DeadLettered](fact)
		if err != nil {
			return err
		}
		s.meter.count(from, "refused")
		s.answer(m, events.IntakeAnswer{Error: dead.Reason})
		return nil
	case events.RunOpenedType:
		s.meter.count(from, "recorded")
		return s.opened(m, fact)
	}
	s.meter.count(from, "recorded")
	s.answer(m, events.IntakeAnswer{ID: fact.ID, Sequence: fact.Seq})
	return nil
}

// giveUp refuses a message that could not be taken in by its last delivery. The intake's
// stream drops it then: the dead letter keeps its content. What failed is the plane's own,
// and not told to outsiders.
func (s *Service) giveUp(ctx context.Context, m pipeline.Message, cause error) ([]events.Event, error) {
	if !fromOutside(m) {
		return nil, cause
	}
	if !m.Again {
		s.logger.ErrorContext(ctx, "submission given up", "subject", m.Subject, "sequence", m.Seq,
			"deliveries", m.Delivered, "error", cause)
	}
	from, err := s.from.find(ctx, m.Subject)
	if err != nil {
		return nil, err
	}
	return s.refused(ctx, from, m,
		&refusal{reason: fmt.Sprintf("given up after %d deliveries: the intake could not check it; the operator finds the cause in the intake's log", m.Delivered)})
}

// refused answers a refused message, at once or when its dead letter is on the log. Where the log
// has replicas it is refused at the second look.
func (s *Service) refused(ctx context.Context, from sender, m pipeline.Message,
	cause *refusal) ([]events.Event, error) {
	if cause.again > 0 {
		s.meter.count(from, "over_quota")
		s.answer(m, events.IntakeAnswer{Error: cause.reason, RetryAfterMS: cause.again.Milliseconds()})
		return nil, nil
	}
	if early, err := s.early(ctx, m); err != nil {
		return nil, err
	} else if early {
		return nil, pipeline.RetryAfter(cause, secondLook)
	}
	letter, err := s.deadLetter(ctx, from, m, cause)
	if err != nil {
		return nil, err
	}
	if letter == nil {
		s.answer(m, events.IntakeAnswer{Error: cause.reason})
		return nil, nil
	}
	return []events.Event{*letter}, nil
}

// take checks a message, and gives the facts that it becomes, or the one on the log that it became
// before. charged says that its sender has paid.
func (s *Service) take(ctx context.Context, from sender, m pipeline.Message,
	charged bool) (facts []events.Event, stored events.Event, err error) {
	if first(m) && !charged {
		if err := s.meter.message(from, m); err != nil {
			return nil, stored, err
		}
	}
	run, t, entity, err := readSubject(m)
	if err != nil {
		return nil, stored, err
	}
	body, err := s.body(ctx, from, m)
	if err != nil {
		return nil, stored, err
	}
	if t == events.GroupOpenedType && isList(body) {
		return s.takeGroup(ctx, from, m, run, entity, body)
	}
	fact, payload, err := s.read(ctx, m, run, t, entity, body)
	if err != nil {
		return nil, stored, err
	}
	if opened, ok := payload.(*events.RunOpened); ok {
		return s.open(ctx, fact, opened, m.Time)
	}
	return s.settle(ctx, m, fact, payload)
}

// settle admits a fact and links it, unless it is on the log.
func (s *Service) settle(ctx context.Context, m pipeline.Message, fact events.Event,
	payload any) (facts []events.Event, stored events.Event, err error) {
	if err := s.admit(ctx, m, fact, payload); err != nil {
		return s.admitted(ctx, fact, err)
	}
	if fact.Type == events.WorkspaceCalledType {
		if fact.Route, err = s.callRoute(ctx, fact); err != nil {
			return nil, stored, err
		}
	}
	return s.link(ctx, fact)
}

// admitted gives the fact on the log that this one became before: what was admitted once is
// not judged again. It is looked for behind the judgement, as another delivery of the message
// may be taken in meanwhile.
func (s *Service) admitted(ctx context.Context, fact events.Event,
	cause error) (facts []events.Event, stored events.Event, err error) {
	last, err := s.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	if err != nil {
		return nil, stored, cause
	}
	stored, found, err := s.known.find(ctx, last, fact.ID)
	if err != nil || !found {
		return nil, stored, cause
	}
	return nil, stored, s.same(fact, stored)
}

// link puts a fact behind the last link of its chain, unless it stands on the chain already: a
// message that was delivered before, or sent before under the same id.
func (s *Service) link(ctx context.Context, fact events.Event) (facts []events.Event, stored events.Event, err error) {
	fact, last, err := s.log.BehindLast(ctx, fact)
	if err != nil {
		return nil, stored, err
	}
	if last != nil {
		earlier, found, err := s.known.find(ctx, *last, fact.ID)
		if err != nil {
			return nil, stored, err
		}
		if found {
			return nil, earlier, s.same(fact, earlier)
		}
	}
	if err := s.follows(ctx, fact, last); err != nil {
		return nil, stored, err
	}
	return []events.Event{fact}, stored, nil
}

// same refuses a fact in whose place another one stands.
func (s *Service) same(fact, stored events.Event) error {
	rule := rules[fact.Type]
	switch {
	case fact.Type == events.RunClosedType || sameContent(fact, stored):
		return nil
	case rule.once || rule.ordinal != nil:
		return refuse("%s of %s is already recorded at sequence %d with other content", fact.Type,
			fact.Entity, stored.Seq)
	}
	return refuse("%s %q was used for another %s of %s, at sequence %d: choose a new one",
		events.HeaderMessageID, fact.ID[strings.LastIndex(fact.ID, "/")+1:], fact.Type, fact.Entity, stored.Seq)
}

// copyClosing copies a run's closing to the catalogue.
func (s *Service) copyClosing(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	e, err := m.Log.Event(ctx, m.Event.Run, m.Seq)
	if err != nil {
		return nil, err
	}
	fact, err := s.catalogue(ctx, e)
	if err != nil || fact == nil {
		return nil, err
	}
	return []events.Event{*fact}, nil
}
