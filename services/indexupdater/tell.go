package indexupdater

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
)

// errOld: the chain has this update or a later one.
var errOld = errors.New("this update or a later one is stated already")

// state puts index_updated on the repository's chain of the catalogue or of a run, unless that is as far.
func (s *Service) state(ctx context.Context, run string, updated events.IndexUpdated) error {
	fact, err := events.New(run, events.IndexUpdatedType, updated.Repo, ordinal(updated.IndexState), updated)
	if err != nil {
		return err
	}
	fact.Source = events.IndexUpdater
	_, _, err = s.log.AppendLast(ctx, fact, func(*events.Event) error {
		last, found, err := s.last(ctx, run, updated.Repo)
		// With another key or embedder everything begins anew.
		if err == nil && found && last.Space == updated.Space && last.Embedder == updated.Embedder && last.Generation >= updated.Generation {
			return errOld
		}
		return err
	})
	if errors.Is(err, errOld) {
		return nil
	}
	return err
}

// ordinal tells a repository's updates apart.
func ordinal(state events.IndexState) string {
	return fmt.Sprintf("%s-%s-%d", state.Space, state.Embedder, state.Generation)
}

// last is the update that a run, or the catalogue, was told of last.
func (s *Service) last(ctx context.Context, run, repo string) (updated events.IndexUpdated, found bool, err error) {
	last, err := s.log.LastOfType(ctx, run, events.IndexUpdatedType, repo)
	if errors.Is(err, eventlog.ErrNotFound) {
		return updated, false, nil
	}
	if err != nil {
		return updated, false, err
	}
	updated, err = events.Data[events.IndexUpdated](last)
	return updated, err == nil, err
}

// uses reports whether a run wants to hear of a repository.
func uses(repo string) func(events.RunConfig) bool {
	return func(cfg events.RunConfig) bool { return slices.Contains(cfg.Repositories, repo) }
}

// greet tells a new run the current index of each of its repositories.
func (s *Service) greet(ctx context.Context, opening events.Event) error {
	opened, err := events.Data[events.RunOpened](opening)
	if err != nil {
		return runtime.Permanent(err)
	}
	for _, repo := range opened.Config.Repositories {
		updated, found, err := s.last(ctx, events.Catalogue, repo)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		open, err := s.log.OpenFor(ctx, opening.Entity, uses(repo))
		if err != nil || !open {
			return err // closed or deleted in the meantime
		}
		if err := s.state(ctx, opening.Entity, updated); err != nil {
			return fmt.Errorf("tell run %s: %w", opening.Entity, err)
		}
	}
	return nil
}
