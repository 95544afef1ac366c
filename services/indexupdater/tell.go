package indexupdater

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/pipeline"
)

// next is index_updated for the repository's chain of the catalogue or of a run. It is nil
// when that has this update, was given it since a moment, or has a later one: then known
// is the update that it has.
func next(ctx context.Context, log eventlog.Reader, run string, updated events.IndexUpdated,
	since time.Time) (fact *events.Event, known events.IndexUpdated, err error) {
	e, err := events.New(run, events.IndexUpdatedType, updated.Repo, ordinal(updated.State), updated)
	if err != nil {
		return nil, known, err
	}
	e, stated, err := log.Behind(ctx, e, since)
	if err != nil {
		return nil, known, err
	}
	known, found, err := last(ctx, log, run, updated.Repo)
	// With another key or embedder everything begins anew.
	if err != nil || stated || found && known.Space == updated.Space && known.Embedder == updated.Embedder &&
		known.Generation >= updated.Generation {
		return nil, known, err
	}
	return &e, known, nil
}

// ordinal tells a repository's updates apart.
func ordinal(state index.State) string {
	return fmt.Sprintf("%s-%s-%d", state.Space, state.Embedder, state.Generation)
}

// last is the update that a run, or the catalogue, was told of last.
func last(ctx context.Context, log eventlog.Reader, run,
	repo string) (updated events.IndexUpdated, found bool, err error) {
	e, err := log.LastOfType(ctx, run, events.IndexUpdatedType, repo)
	if errors.Is(err, eventlog.ErrNotFound) {
		return updated, false, nil
	}
	if err != nil {
		return updated, false, err
	}
	updated, err = events.Data[events.IndexUpdated](e)
	return updated, err == nil, err
}

// uses reports whether a run wants to hear of a repository.
func uses(repo string) func(runfile.RunConfig) bool {
	return func(cfg runfile.RunConfig) bool { return slices.Contains(cfg.Repositories, repo) }
}

// greet copies the current index of each of its repositories to a new run.
func greet(ctx context.Context, m pipeline.Message) (facts []events.Event, err error) {
	opened, err := events.Data[events.RunOpened](m.Event)
	if err != nil {
		return nil, pipeline.Permanent(err)
	}
	for _, repo := range opened.Config.Repositories {
		updated, found, err := last(ctx, m.Log, events.Catalogue, repo)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		copies, err := copies(ctx, m.Log, updated, m.Event.Time, m.Event.Entity)
		if err != nil {
			return nil, err
		}
		facts = append(facts, copies...)
	}
	return facts, nil
}

// copies are the copies of an update for open runs that use the repository and have not learned of
// it: those that are named, or all.
func copies(ctx context.Context, log eventlog.Reader, updated events.IndexUpdated, since time.Time,
	runs ...string) ([]events.Event, error) {
	return pipeline.Inform(ctx, log, uses(updated.Repo), func(run string) (*events.Event, error) {
		fact, _, err := next(ctx, log, run, updated, since)
		return fact, err
	}, runs...)
}
