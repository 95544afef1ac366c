// Package indexupdater keeps the index of the repositories that it was given, states what clients have brought to the store, and tells
// the runs that use a repository.
package indexupdater

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage"
)

// slots: an index is brought up to date by all cores, so one after the other is enough; what clients bring is only looked at.
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

// Service consumes repo_registered, repo_changed and, from the catalogue, run_opened; it emits index_updated.
type Service struct {
	log    *eventlog.Log
	logger *slog.Logger
	opts   Options
	// busy keeps the timer and the events from looking at one folder at the same time.
	busy map[string]*sync.Mutex
}

// Run is the service.
func Run(ctx context.Context, env runtime.Env, opts Options) error {
	s := newService(env, opts)
	ctx, cancel := context.WithCancel(ctx)
	var timer sync.WaitGroup
	defer timer.Wait()
	defer cancel()
	timer.Go(func() { s.lookAround(ctx) })
	return runtime.RunEffect(ctx, env, runtime.Effect{Name: events.IndexUpdater, Slots: slots, Handle: s.Handle})
}

func newService(env runtime.Env, opts Options) *Service {
	s := &Service{log: env.Log, logger: env.Logger, opts: opts, busy: map[string]*sync.Mutex{}}
	for name := range opts.Folders {
		s.busy[name] = &sync.Mutex{}
	}
	return s
}

// lookAround brings every repository up to date, again and again.
func (s *Service) lookAround(ctx context.Context) {
	for {
		for name := range s.opts.Folders {
			if err := s.update(ctx, name); err != nil && ctx.Err() == nil {
				s.logger.Error("the index of a repository could not be brought up to date", "repository", name, "error", err)
			}
		}
		if !runtime.Sleep(ctx, s.opts.Every) {
			return
		}
	}
}

// Handle looks at a repository of which somebody says that it changed, or tells a new run where the indexes of its repositories are.
func (s *Service) Handle(ctx context.Context, m runtime.Message) ([]events.Event, error) {
	switch m.Event.Type {
	case events.RunOpenedType:
		return nil, s.greet(ctx, m.Event)
	case events.RepoChangedType:
		changed, err := events.Data[events.RepoChanged](m.Event)
		if err != nil {
			return nil, runtime.Permanent(err)
		}
		if changed.Index != nil {
			return nil, s.take(ctx, m.Event.Entity, *changed.Index)
		}
	}
	if _, ours := s.opts.Folders[m.Event.Entity]; !ours {
		return nil, nil // another updater's, or one whose clients bring its index
	}
	return nil, s.update(ctx, m.Event.Entity)
}

// update brings a repository's index up to date, and states what stands in the store: also what a crash kept from being stated.
func (s *Service) update(ctx context.Context, name string) error {
	s.busy[name].Lock()
	defer s.busy[name].Unlock()
	state, err := s.opts.Folders[name].Sync(ctx, nil)
	var partial *merkle.PartialError
	if errors.As(err, &partial) {
		s.logger.Warn("a part of a repository could not be looked at; its index keeps what it had of it", "repository", name, "error", err)
	} else if err != nil {
		return err
	}
	return s.publish(ctx, events.IndexUpdated{Repo: name, IndexState: state})
}

// take states what a client has brought to the store, after a look that all of it is there. Nothing of it can be opened here.
func (s *Service) take(ctx context.Context, name string, state events.IndexState) error {
	err := segment.Complete(ctx, s.log.Store(), state.Space, state.Root)
	for _, wrong := range []error{storage.ErrNotFound, storage.ErrCorrupt, storage.ErrKey, storage.ErrTooLarge} {
		if errors.Is(err, wrong) {
			return runtime.Permanent(fmt.Errorf("index of %s: %w", name, err))
		}
	}
	if err != nil {
		return err
	}
	return s.publish(ctx, events.IndexUpdated{Repo: name, IndexState: state})
}

// publish states an update in the catalogue and in the runs that use the repository, unless they know it.
func (s *Service) publish(ctx context.Context, updated events.IndexUpdated) error {
	if err := s.state(ctx, events.Catalogue, updated); err != nil {
		return err
	}
	runs, err := s.log.OpenRuns(ctx, uses(updated.Repo))
	if err != nil {
		return err
	}
	for _, run := range runs {
		if err := s.state(ctx, run, updated); err != nil {
			return fmt.Errorf("tell run %s: %w", run, err)
		}
	}
	return nil
}
