// Package undertaker turns messages that nobody will deliver again into facts: a dead letter in the catalogue
// and, where the message was a rollout's work item, the rollout's terminal failure.
package undertaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
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
	run, ours := events.RunOfStream(a.Stream)
	if !ours && a.Stream != events.DoorStream {
		return nil, nil // another application's
	}
	if a.Reason == "" {
		a.Reason = fmt.Sprintf("given up after %d deliveries", a.Deliveries)
	}
	letter := events.DeadLettered{Stream: a.Stream, Sequence: a.Sequence, Consumer: a.Consumer, Reason: a.Reason}
	if ours {
		e, err := s.log.Event(ctx, run, a.Sequence)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		letter.Subject = e.Subject()
		if err := s.failRollout(ctx, e, a); err != nil {
			return nil, err
		}
	}
	return nil, s.bury(ctx, m, a, letter)
}

// failRollout ends the rollout that waited for the message.
func (s *Service) failRollout(ctx context.Context, e events.Event, a advisory) error {
	if e.Type.Kind() != events.RolloutStartedType.Kind() {
		return nil
	}
	r, err := s.log.Rollout(ctx, e.Run, e.Entity)
	if err != nil || r.Over() {
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

// stage is the part of the pipeline that a consumer belongs to.
func stage(consumer string) string {
	for name, stage := range map[string]string{
		events.Generator: events.StageGenerator, events.ToolRunner: events.StageTools, events.Scorer: events.StageScorer,
	} {
		if len(consumer) >= len(name) && consumer[:len(name)] == name {
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
