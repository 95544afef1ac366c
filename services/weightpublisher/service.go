// Package weightpublisher verifies the weights that trainers submit, publishes them, and tells the runs that
// use the policy.
package weightpublisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// slots: one version after the other is enough, and more than one policy may be trained.
const slots = 2

// Service consumes weights_submitted and, from the catalogue, run_opened; it emits weights_published and
// weights_rejected.
type Service struct {
	log *eventlog.Log
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env) error {
	s := &Service{log: env.Log}
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.WeightPublisher, Slots: slots, Handle: s.Handle})
}

// Handle publishes submitted weights, or tells a new run which version its policy has.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	if m.Event.Type == events.RunOpenedType {
		return nil, s.greet(ctx, m.Event)
	}
	submitted, err := events.Data[events.WeightsSubmitted](m.Event)
	if err != nil {
		return nil, runtime.Permanent(err)
	}
	published, err := s.take(ctx, m, submitted)
	var wrong *rejection
	if errors.As(err, &wrong) {
		return nil, s.reject(ctx, m, submitted.Version, wrong)
	}
	if err != nil {
		return nil, err
	}
	return nil, s.tellRuns(ctx, published)
}

// rejection is a reason that lies in the submission itself.
type rejection struct{ err error }

func (r *rejection) Error() string { return r.err.Error() }

// take makes a submitted version visible in the store and states it, unless an earlier delivery did both.
func (s *Service) take(ctx context.Context, m runtime.Message, submitted events.WeightsSubmitted) (events.WeightsPublished, error) {
	policy := m.Event.Entity
	last, err := s.log.LastOfType(ctx, events.Catalogue, events.WeightsPublishedType, policy)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return events.WeightsPublished{}, err
	}
	if err == nil && last.Seq > m.Seq {
		stated, found, err := s.statedSince(ctx, m, submitted.Version)
		if found || err != nil {
			return stated, err
		}
	}
	published, err := s.publish(ctx, policy, submitted)
	if err != nil {
		return published, err
	}
	err = s.state(ctx, events.Catalogue, published)
	if errors.Is(err, errOld) {
		// It may be this very version, sent twice, or one that another submission brought in between.
		if known, _, currentErr := s.log.Published(ctx, events.Catalogue, policy); currentErr != nil || known.Manifest == published.Manifest {
			return known, currentErr
		}
		return published, &rejection{fmt.Errorf("version %d: %w; versions only grow", submitted.Version, err)}
	}
	return published, err
}

// statedSince finds the fact of a version that was published since the submission came.
func (s *Service) statedSince(ctx context.Context, m runtime.Message, version int64) (events.WeightsPublished, bool, error) {
	id := events.ID(events.Catalogue, events.WeightsPublishedType, m.Event.Entity, events.Ordinal(version))
	link, err := s.log.Last(ctx, events.Catalogue, m.Event.Type.Kind(), m.Event.Entity)
	for err == nil && link.Seq > m.Seq {
		if link.ID == id {
			published, err := events.Data[events.WeightsPublished](link)
			return published, err == nil, err
		}
		link, err = s.log.Event(ctx, events.Catalogue, link.Prev)
	}
	return events.WeightsPublished{}, false, err
}

// publish makes the version visible in the store.
func (s *Service) publish(ctx context.Context, policy string, submitted events.WeightsSubmitted) (events.WeightsPublished, error) {
	fact := events.WeightsPublished{Policy: policy, Version: submitted.Version, Run: submitted.Run, ThroughStep: submitted.ThroughStep}
	files, err := s.fetch(ctx, submitted.Files)
	if err != nil {
		return fact, err
	}
	if err := weights.Check(policy, submitted.Version, files); err != nil {
		return fact, &rejection{err}
	}
	current, _, err := weights.Current(ctx, s.log.Store(), policy)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fact, err
	}
	if err == nil && submitted.Version < current {
		return fact, &rejection{fmt.Errorf("version %d: version %d is published already; versions only grow", submitted.Version, current)}
	}
	published, err := weights.Publish(ctx, s.log.Store(), policy, submitted.Version, files...)
	if errors.Is(err, storage.ErrExists) {
		return fact, &rejection{err}
	}
	if err != nil {
		return fact, err
	}
	fact.Manifest = published.Ref
	return fact, nil
}

// fetch reads the files that a trainer put into the store.
func (s *Service) fetch(ctx context.Context, submitted []events.WeightsFile) ([]weights.Content, error) {
	var files []weights.Content
	for _, f := range submitted {
		data, err := storage.GetBlob(ctx, s.log.Store(), f.Blob)
		for _, wrong := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrKey, storage.ErrTooLarge} {
			if errors.Is(err, wrong) {
				return nil, &rejection{fmt.Errorf("file %s: %w", f.Name, err)}
			}
		}
		if err != nil {
			return nil, err
		}
		files = append(files, weights.Content{Name: f.Name, Data: data})
	}
	return files, nil
}

// reject states why a submission was not published.
func (s *Service) reject(ctx context.Context, m runtime.Message, version int64, cause *rejection) error {
	fact, err := events.New(events.Catalogue, events.WeightsRejectedType, m.Event.Entity, fmt.Sprintf("submission-%d", m.Seq), events.WeightsRejected{Version: version, Reason: cause.Error()})
	if err != nil {
		return err
	}
	fact.Source = events.WeightPublisher
	_, err = s.log.AppendOnce(ctx, fact, m.Time, nil)
	return err
}

// errOld: the chain has this version or a later one.
var errOld = errors.New("this version or a later one is stated already")

// state puts weights_published on the policy's chain of the catalogue or of a run; errOld when that is as far.
func (s *Service) state(ctx context.Context, run string, published events.WeightsPublished) error {
	fact, err := events.New(run, events.WeightsPublishedType, published.Policy, events.Ordinal(published.Version), published)
	if err != nil {
		return err
	}
	fact.Source = events.WeightPublisher
	_, _, err = s.log.AppendLast(ctx, fact, func(*events.Event) error {
		known, found, err := s.log.Published(ctx, run, published.Policy)
		if err == nil && found && known.Version >= published.Version {
			return errOld
		}
		return err
	})
	return err
}

// tell puts weights_published on the log of a run, unless that is as far.
func (s *Service) tell(ctx context.Context, run string, published events.WeightsPublished) error {
	err := s.state(ctx, run, published)
	if err != nil && !errors.Is(err, errOld) {
		return fmt.Errorf("tell run %s: %w", run, err)
	}
	return nil
}

// tellRuns copies the fact into every open run that uses the policy.
func (s *Service) tellRuns(ctx context.Context, published events.WeightsPublished) error {
	runs, err := s.log.OpenRuns(ctx, uses(published.Policy))
	if err != nil {
		return err
	}
	for _, run := range runs {
		if err := s.tell(ctx, run, published); err != nil {
			return err
		}
	}
	return nil
}

// uses reports whether a run trains or samples the policy.
func uses(policy string) func(events.RunConfig) bool {
	return func(cfg events.RunConfig) bool { return cfg.Policy == policy }
}

// greet tells a new run the current version of its policy.
func (s *Service) greet(ctx context.Context, opening events.Event) error {
	opened, err := events.Data[events.RunOpened](opening)
	if err != nil {
		return runtime.Permanent(err)
	}
	published, found, err := s.log.Published(ctx, events.Catalogue, opened.Config.Policy)
	if err != nil || !found {
		return err
	}
	open, err := s.log.OpenFor(ctx, opening.Entity, uses(published.Policy))
	if err != nil || !open {
		return err // closed or deleted in the meantime
	}
	return s.tell(ctx, opening.Entity, published)
}
