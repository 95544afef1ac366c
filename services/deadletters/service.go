// Package deadletters is the dead letters service. It records messages that will not be delivered
// again as facts: a dead letter in the catalogue and, where the message was a rollout's work item,
// the rollout's terminal failure.
package deadletters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// slots: dead letters are rare.
const slots = 2

// behindFor is how long after an advisory the message that it is of is waited for, where the run's
// leader does not have it: it may be behind the server that gave the message up. Later the run was
// rolled back, and nobody has it.
const behindFor = 10 * time.Minute

// Service consumes the server's max-deliveries and termination advisories, and emits
// dead_lettered and rollout_failed.
type Service struct {
	store storage.Store
	js    jetstream.JetStream
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env) error {
	s := &Service{store: env.Log.Store(), js: env.Log.JetStream()}
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.DeadLetters, Slots: slots, Handle: s.Handle})
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
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	var a advisory
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return nil, pipeline.Permanent(fmt.Errorf("read advisory: %w", err))
	}
	if a.Reason == "" {
		a.Reason = fmt.Sprintf("given up after %d deliveries", a.Deliveries)
	}
	letter := events.DeadLettered{Stream: a.Stream, Sequence: a.Sequence, Consumer: a.Consumer, Reason: a.Reason}
	run, ours := events.RunOfStream(a.Stream)
	switch {
	case a.Stream == events.IntakeStream:
		return s.recordSubmission(ctx, m, a, letter)
	case !ours:
		return nil, nil // another application's
	}
	var facts []events.Event
	log := m.Log
	if time.Since(m.Time) < behindFor {
		log = log.At(run, a.Sequence)
	}
	e, err := log.Event(ctx, run, a.Sequence)
	if err == nil {
		letter.Subject = e.Subject()
		facts, err = failRollout(ctx, log, e, a)
	}
	switch {
	case errors.Is(err, eventlog.ErrNotFound), errors.Is(err, events.ErrMalformed), errors.Is(err, events.ErrSubject):
		// The run is gone, or what is there is no event: nobody waits for it. Or the rollout's
		// chain has a link that is none, behind which nobody can state anything.
	case err != nil:
		return nil, err
	}
	recorded, err := record(ctx, m, a, letter)
	return append(facts, recorded...), err
}

// recordSubmission records a submission after its last delivery, and deletes it from the
// intake's stream when the dead letter is on the log: a work queue keeps a message that
// nobody acknowledges for ever.
func (s *Service) recordSubmission(ctx context.Context, m pipeline.Message, a advisory,
	letter events.DeadLettered) ([]events.Event, error) {
	submissions, err := s.js.Stream(ctx, events.IntakeStream)
	if err != nil {
		return nil, fmt.Errorf("look up the intake's stream: %w", err)
	}
	submission, err := submissions.GetMsg(ctx, a.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return record(ctx, m, a, letter) // terminated, and so removed
	}
	if err != nil {
		return nil, fmt.Errorf("read submission %d of the intake's stream: %w", a.Sequence, err)
	}
	body, err := storage.PutBlob(ctx, s.store, submission.Data)
	if err != nil {
		return nil, err
	}
	letter.Subject, letter.Body = submission.Subject, &body
	facts, err := record(ctx, m, a, letter)
	switch {
	case err != nil:
		return nil, err
	case len(facts) > 0:
		return facts, pipeline.ErrCallAgain
	}
	if err := submissions.DeleteMsg(ctx, a.Sequence); err != nil {
		return nil, fmt.Errorf("delete submission %d from the intake's stream: %w", a.Sequence, err)
	}
	return nil, nil
}

// failRollout ends the rollout that waits for the message.
func failRollout(ctx context.Context, log eventlog.Reader, e events.Event, a advisory) ([]events.Event, error) {
	if e.Type.Kind() != events.RolloutStartedType.Kind() {
		return nil, nil
	}
	r, err := log.Rollout(ctx, e.Run, e.Entity)
	if err != nil || r.Over() || r.Progress.Since > e.Seq && a.Consumer != topology.EpisodesConsumer {
		return nil, err // the rollout went on: another delivery was handled although this one was given up
	}
	if a.Consumer == topology.RatingsConsumer && r.Rated != nil {
		return nil, nil
	}
	fact, err := r.Fail(stage(a.Consumer), events.ClassInternal, errors.New(a.Reason))
	return []events.Event{fact}, err
}

// stage is the part of the pipeline that a consumer belongs to.
func stage(consumer string) string {
	for name, stage := range map[string]string{
		topology.Generator: events.StageGenerator, topology.ToolRunner: events.StageTools,
		topology.Scorer:      events.StageScorer,
		topology.Environment: events.StageEnvironment,
	} {
		if strings.HasPrefix(consumer, name+"-") {
			return stage
		}
	}
	return consumer
}

// record appends the dead letter, unless an earlier delivery of the advisory did: there is one for
// each message and consumer.
func record(ctx context.Context, m pipeline.Message, a advisory, letter events.DeadLettered) ([]events.Event, error) {
	fact, err := events.New(events.Catalogue, events.DeadLetteredType, a.Stream,
		fmt.Sprintf("%s-%d", a.Consumer, a.Sequence), letter)
	if err != nil {
		return nil, err
	}
	fact, stated, err := m.Log.Behind(ctx, fact, m.Time)
	if err != nil || stated {
		return nil, err
	}
	return []events.Event{fact}, nil
}
