// Package indexupdater keeps the index of the repositories that it was given, states what clients
// have brought to the store, and tells the runs that use a repository.
package indexupdater

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// slots: an index is brought up to date by all cores, so one after the other is enough; what
// clients bring is only looked at.
const slots = 2

// DefaultEvery is how often folders are looked at.
const DefaultEvery = 3 * time.Minute

// Options of the service.
type Options struct {
	// Folders are those of the repositories that this process keeps, by their names.
	Folders map[string]*update.Folder
	// Every is how often they are looked at when nobody says that something changed.
	Every time.Duration
}

// Service consumes repo_changed and, from the catalogue, run_opened; it emits index_updated.
type Service struct {
	store   storage.Store
	logger  *slog.Logger
	opts    Options
	folders map[string]*keptFolder
}

// keptFolder is a folder that this process keeps, and what was found when it was looked at last.
type keptFolder struct {
	*update.Folder
	mu    sync.Mutex // keeps the timer and the events from looking at one folder at the same time
	input uint64     // for which it was looked at, 0 for the timer
	found events.IndexUpdated
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env, opts Options) error {
	s := newService(env, opts)
	ctx, cancel := context.WithCancel(ctx)
	var timer sync.WaitGroup
	defer timer.Wait()
	defer cancel()
	timer.Go(func() { s.lookAround(ctx, env) })
	return pipeline.RunEffect(ctx, env, s.effect(s.Handle))
}

func newService(env pipeline.Env, opts Options) *Service {
	s := &Service{store: env.Log.Store(), logger: env.Logger, opts: opts, folders: map[string]*keptFolder{}}
	for name, f := range opts.Folders {
		s.folders[name] = &keptFolder{Folder: f}
	}
	return s
}

func (s *Service) effect(handle pipeline.Handler) pipeline.Effect {
	return pipeline.Effect{Name: topology.IndexUpdater, Slots: slots, Handle: handle}
}

// lookAround brings every repository up to date, again and again.
func (s *Service) lookAround(ctx context.Context, env pipeline.Env) {
	for {
		for name, f := range s.folders {
			tick := s.effect(func(ctx context.Context,
				m pipeline.Message) ([]events.Event, error) {
				return s.update(ctx, f, m)
			})
			if err := tick.Record(ctx, env, pipeline.Message{Time: time.Now()}); err != nil && ctx.Err() == nil {
				s.logger.Error("index update failed", "repository", name, "error", err)
			}
		}
		if !retry.Sleep(ctx, s.opts.Every) {
			return
		}
	}
}

// Handle looks at a repository of which somebody says that it changed, or tells a new run where the
// indexes of its repositories are.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	switch m.Event.Type {
	case events.RunOpenedType:
		return greet(ctx, m)
	case events.RepoChangedType:
		changed, err := events.Data[events.RepoChanged](m.Event)
		if err != nil {
			return nil, pipeline.Permanent(err)
		}
		if changed.Index != nil {
			return s.take(ctx, m, events.IndexUpdated{Repo: m.Event.Entity, State: *changed.Index})
		}
	}
	if f, ours := s.folders[m.Event.Entity]; ours {
		return s.update(ctx, f, m)
	}
	return nil, nil // another updater's, or one whose clients bring its index
}

// update brings a repository's index up to date, once for each input, and states what stands in the
// store: also what a crash kept from being stated.
func (s *Service) update(ctx context.Context, f *keptFolder, m pipeline.Message) ([]events.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !m.Again || f.input != m.Seq {
		state, err := f.Sync(ctx, nil)
		var partial *merkle.PartialError
		if errors.As(err, &partial) {
			s.logger.Warn("repository scan incomplete", "repository", f.Repo, "error", err)
		} else if err != nil {
			return nil, err
		}
		f.input, f.found = m.Seq, events.IndexUpdated{Repo: f.Repo, State: state}
	}
	return publish(ctx, m, f.found, nil)
}

// take states what a client has brought to the store, after a look that all of it is there. Nothing
// of it can be opened here.
func (s *Service) take(ctx context.Context, m pipeline.Message, updated events.IndexUpdated) ([]events.Event, error) {
	return publish(ctx, m, updated, func() error {
		err := segment.Complete(ctx, s.store, updated.Space, updated.Root)
		if storage.IsUnusable(err) {
			return pipeline.Permanent(fmt.Errorf("index of %s: %w", updated.Repo, err))
		}
		return err
	})
}

// publish states an update in the catalogue, if check has nothing against it, and then
// copies what the catalogue has into the runs that use the repository: a run that is opened
// in between finds it there.
func publish(ctx context.Context, m pipeline.Message, updated events.IndexUpdated,
	check func() error) ([]events.Event, error) {
	fact, known, err := next(ctx, m.Log, events.Catalogue, updated, m.Time)
	if err == nil && fact != nil && check != nil {
		err = check()
	}
	if err != nil {
		return nil, err
	}
	if fact != nil {
		return []events.Event{*fact}, pipeline.ErrCallAgain
	}
	return copies(ctx, m.Log, known, m.Time)
}
