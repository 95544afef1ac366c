// Package undertaker turns messages that nobody will deliver again into facts: a dead letter in the catalogue
// and, where the message was a rollout's work item, the rollout's terminal failure.
package undertaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/storage"
)

// slots: dead letters are rare.
const slots = 2

// Service consumes the server's max-deliveries and termination advisories, and emits dead_lettered and
// rollout_failed.
type Service struct {
	log *eventlog.Log
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env) error {
	s := &Service{log: env.Log}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.Undertaker, Slots: slots, Handle: s.Handle})
}

// advisory is the part of both advisories that matters here.
type advisory struct {
	ID         string `json:"id"`
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	Sequence   uint64 `json:"stream_seq"`
	Deliveries int    `json:"deliveries"`
	Reason     string `json:"reason"`
}

// Handle takes one advisory in.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	var a advisory
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, runtime.Permanent(fmt.Errorf("read advisory: %w", err))
	}
	if a.Reason == "" {
		a.Reason = fmt.Sprintf("given up after %d deliveries", a.Deliveries)
	}
	letter := events.DeadLettered{Stream: a.Stream, Sequence: a.Sequence, Consumer: a.Consumer, Reason: a.Reason}
	run, ours := events.RunOfStream(a.Stream)
	switch {
	case a.Stream == events.DoorStream:
		return nil, s.buryKnock(ctx, m, a, letter)
	case !ours:
		return nil, nil // another application's
	}
	e, err := s.log.Event(ctx, run, a.Sequence)
	if err == nil {
		letter.Subject = e.Subject()
		err = s.failRollout(ctx, e, a)
	}
	switch {
	case errors.Is(err, eventlog.ErrNotFound), errors.Is(err, events.ErrMalformed), errors.Is(err, events.ErrSubject):
		// The run is gone, or what stands there is no event: nobody waits for it. Or the rollout's chain has a link that is none, behind
		// which nobody can state anything.
	case err != nil:
		return nil, err
	}
	return nil, s.bury(ctx, m, a, letter)
}

// buryKnock keeps what lies at the door after its last delivery, and takes it away from there: a work queue keeps
// what nobody acknowledges for ever.
func (s *Service) buryKnock(ctx context.Context, m runtime.Message, a advisory, letter events.DeadLettered) error {
	door, err := s.log.JetStream().Stream(ctx, events.DoorStream)
	if err != nil {
		return fmt.Errorf("look at the door: %w", err)
	}
	knock, err := door.GetMsg(ctx, a.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return s.bury(ctx, m, a, letter) // terminated, and so removed
	}
	if err != nil {
		return fmt.Errorf("read message %d at the door: %w", a.Sequence, err)
	}
	body, err := storage.PutBlob(ctx, s.log.Store(), knock.Data)
	if err != nil {
		return err
	}
	letter.Subject, letter.Body = knock.Subject, &body
	if err := s.bury(ctx, m, a, letter); err != nil {
		return err
	}
	if err := door.DeleteMsg(ctx, a.Sequence); err != nil {
		return fmt.Errorf("take message %d away from the door: %w", a.Sequence, err)
	}
	return nil
}

// failRollout ends the rollout that waits for the message.
func (s *Service) failRollout(ctx context.Context, e events.Event, a advisory) error {
	if e.Type.Kind() != events.RolloutStartedType.Kind() {
		return nil
	}
	r, err := s.log.Rollout(ctx, e.Run, e.Entity)
	if err != nil || r.Over() {
		return err
	}
	waits, err := s.waits(ctx, r, e)
	if err != nil || !waits {
		return err
	}
	fact, err := r.Fail(stage(a.Consumer), events.ClassInternal, errors.New(a.Reason))
	if err != nil {
		return err
	}
	fact.Source = events.Undertaker
	_, _, err = s.log.Append(ctx, fact)
	return err // a conflict means that the rollout went on: the next delivery looks again
}

// waits reports whether nothing came behind an event that brings the rollout on: another delivery of it may have
// been handled although this one was given up. A last turn does not: the end of the episode belongs to it.
func (s *Service) waits(ctx context.Context, r events.Rollout, e events.Event) (bool, error) {
	for seq := r.Tail; seq > e.Seq; {
		link, err := s.log.Event(ctx, r.Run, seq)
		if err != nil {
			return false, err
		}
		switch link.Type {
		case events.RolloutRetriedType, events.RolloutAnnotatedType, events.RolloutInvalidatedType, events.RolloutForkedType:
		default:
			if link.Route != events.RouteFinal {
				return false, nil
			}
		}
		seq = link.Prev
	}
	return true, nil
}

// stage is the part of the pipeline that a consumer belongs to.
func stage(consumer string) string {
	for name, stage := range map[string]string{
		events.Generator: events.StageGenerator, events.ToolRunner: events.StageTools, events.Scorer: events.StageScorer,
	} {
		if strings.HasPrefix(consumer, name+"-") {
			return stage
		}
	}
	return consumer
}

// bury writes the dead letter, once per message and consumer.
func (s *Service) bury(ctx context.Context, m runtime.Message, a advisory, letter events.DeadLettered) error {
	fact, err := events.New(events.Catalogue, events.DeadLetteredType, a.Stream, fmt.Sprintf("%s-%d", a.Consumer, a.Sequence), letter)
	if err != nil {
		return err
	}
	fact.Source = events.Undertaker
	_, err = s.log.AppendOnce(ctx, fact, m.Time, nil)
	return err
}
