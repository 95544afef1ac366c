// Package weightpublisher verifies the weights that trainers submit, publishes them, and tells the
// runs that use the policy.
package weightpublisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// slots: one version after the other is enough, and more than one policy may be trained.
const slots = 2

// Service consumes weights_submitted and, from the catalogue, run_opened; it emits
// weights_published and weights_rejected.
type Service struct {
	store  storage.Store
	logger *slog.Logger
	meter  counters
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env) error {
	meter, err := newCounters(env.Metrics)
	if err != nil {
		return err
	}
	s := &Service{store: env.Log.Store(), logger: env.Logger, meter: meter}
	return pipeline.RunEffect(ctx, env, s.effect())
}

func (s *Service) effect() pipeline.Effect {
	return pipeline.Effect{Name: topology.WeightPublisher, Slots: slots, Handle: s.Handle, Recorded: s.recorded}
}

// Handle publishes submitted weights, and copies a published version into the runs that use its
// policy, or the current one into a new run.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	if m.Event.Type == events.RunOpenedType {
		return greet(ctx, m)
	}
	submitted, err := events.Data[events.WeightsSubmitted](m.Event)
	if err != nil {
		return nil, pipeline.Permanent(err)
	}
	published, fact, err := s.take(ctx, m, submitted)
	var wrong *rejection
	switch {
	case errors.As(err, &wrong):
		return reject(ctx, m, submitted.Version, wrong)
	case err != nil:
		return nil, err
	case fact != nil:
		// A run that is opened in between finds the version in the catalogue, so the others are
		// looked for when it is there.
		return []events.Event{*fact}, pipeline.ErrCallAgain
	}
	return copies(ctx, m.Log, published)
}

// recorded counts versions, and logs rejections.
func (s *Service) recorded(ctx context.Context, m pipeline.Message, facts []events.Event) error {
	if err := s.meter.count(m.Event, facts[0]); err != nil {
		return err
	}
	if facts[0].Type != events.WeightsRejectedType {
		return nil
	}
	rejected, err := events.Data[events.WeightsRejected](facts[0])
	if err != nil {
		return err
	}
	waiting, err := pipeline.OpenRuns(ctx, m.Log, uses(m.Event.Entity))
	if err == nil {
		s.logger.WarnContext(ctx, "weights rejected", "policy", m.Event.Entity, "version", rejected.Version,
			"runs", waiting, "error", rejected.Reason)
	}
	return err
}

// rejection is a reason that lies in the submission itself.
type rejection struct{ err error }

func (r *rejection) Error() string { return wording.Plain(r.err).Error() }

// take makes a submitted version visible in the store, and gives the fact that states it in the
// catalogue; nil when an earlier delivery, or another submission of the same version, did both.
func (s *Service) take(ctx context.Context, m pipeline.Message,
	submitted events.WeightsSubmitted) (published events.WeightsPublished, fact *events.Event, err error) {
	policy := m.Event.Entity
	last, err := m.Log.LastOfType(ctx, events.Catalogue, events.WeightsPublishedType, policy)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return published, nil, err
	}
	if err == nil && last.Seq > m.Seq {
		stated, found, err := statedSince(ctx, m, submitted.Version)
		if found || err != nil {
			return stated, nil, err
		}
	}
	var before *events.WeightsPublished
	if err == nil {
		stated, err := events.Data[events.WeightsPublished](last)
		if err != nil {
			return published, nil, err
		}
		before = &stated
	}
	if published, err = s.publish(ctx, policy, submitted, before); err != nil {
		return published, nil, err
	}
	fact, known, err := next(ctx, m.Log, events.Catalogue, published)
	if err != nil || fact != nil || known.Manifest == published.Manifest { // this very version, sent twice
		return known, fact, err
	}
	return published, nil, &rejection{fmt.Errorf("version %d: version %d is published already; versions only grow",
		submitted.Version, known.Version)}
}

// statedSince finds the fact of a version that was published since the submission came.
func statedSince(ctx context.Context, m pipeline.Message, version int64) (events.WeightsPublished, bool, error) {
	id := events.ID(events.Catalogue, events.WeightsPublishedType, m.Event.Entity, events.Ordinal(version))
	link, err := m.Log.Last(ctx, events.Catalogue, m.Event.Type.Kind(), m.Event.Entity)
	for err == nil && link.Seq > m.Seq {
		if link.ID == id {
			published, err := events.Data[events.WeightsPublished](link)
			return published, err == nil, err
		}
		link, err = m.Log.Event(ctx, events.Catalogue, link.Prev)
	}
	return events.WeightsPublished{}, false, err
}

// reject states why a submission was not published, unless an earlier delivery did.
func reject(ctx context.Context, m pipeline.Message, version int64, cause *rejection) ([]events.Event, error) {
	fact, err := events.New(events.Catalogue, events.WeightsRejectedType, m.Event.Entity,
		fmt.Sprintf("submission-%d", m.Seq), events.WeightsRejected{Version: version, Reason: cause.Error()})
	if err != nil {
		return nil, err
	}
	fact, stated, err := m.Log.Behind(ctx, fact, m.Time)
	if err != nil || stated {
		return nil, err
	}
	return []events.Event{fact}, nil
}

// next is weights_published for the policy's chain of the catalogue or of a run. It is nil when
// that has this version, or a later one: then known is the version that it has.
func next(ctx context.Context, log eventlog.Reader, run string,
	published events.WeightsPublished) (fact *events.Event, known events.WeightsPublished, err error) {
	e, err := events.New(run, events.WeightsPublishedType, published.Policy,
		events.Ordinal(published.Version), published)
	if err != nil {
		return nil, known, err
	}
	if e, _, err = log.BehindLast(ctx, e); err != nil {
		return nil, known, err
	}
	known, found, err := log.Published(ctx, run, published.Policy)
	if err != nil || found && known.Version >= published.Version {
		return nil, known, err
	}
	return &e, known, nil
}

// copies are the copies of the fact for open runs that use the policy and have not learned of it:
// those that are named, or all.
func copies(ctx context.Context, log eventlog.Reader, published events.WeightsPublished,
	runs ...string) ([]events.Event, error) {
	return pipeline.Inform(ctx, log, uses(published.Policy), func(run string) (*events.Event, error) {
		fact, _, err := next(ctx, log, run, published)
		return fact, err
	}, runs...)
}

// uses reports whether a run trains or samples the policy.
func uses(policy string) func(runfile.RunConfig) bool {
	return func(cfg runfile.RunConfig) bool { return cfg.Policy == policy }
}

// greet copies the current version of its policy to a new run.
func greet(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	opened, err := events.Data[events.RunOpened](m.Event)
	if err != nil {
		return nil, pipeline.Permanent(err)
	}
	published, found, err := m.Log.Published(ctx, events.Catalogue, opened.Config.Policy)
	if err != nil || !found {
		return nil, err
	}
	return copies(ctx, m.Log, published, m.Event.Entity)
}
