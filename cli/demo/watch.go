package demo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// watcher keeps the books of a run, and shows its steps.
type watcher struct {
	mu     sync.Mutex
	books  *books.Run
	feed   string
	steps  int64
	show   *app.Progress
	repair repairs
	time   time.Time // of the last event
}

func newWatcher(run string, cfg runfile.RunConfig, show *app.Progress) *watcher {
	show.Line("run %s: %d steps of %d groups of %d rollouts on %d tasks", run, cfg.Steps, cfg.Feeds[0].GroupsPerBatch,
		cfg.GroupSize, len(cfg.Tasks))
	return &watcher{books: books.New(run), feed: cfg.Feeds[0].Name, steps: cfg.Steps, show: show}
}

// follow reads the run until it is closed and nothing of it is in flight.
func (w *watcher) follow(ctx context.Context, log *eventlog.Log) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go w.draw(ctx)
	if err := log.Follow(ctx, w.books.Name, 1, "", w.take); !errors.Is(err, plane.ErrAtRest) {
		return err
	}
	return nil
}

func (w *watcher) take(e events.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.books.Apply(e); err != nil {
		return err
	}
	w.time = e.Time
	w.show.PrintRows(w.repair.take(e))
	if e.Type == events.BatchReadyType {
		if ready, err := events.Data[events.BatchReady](e); err == nil {
			w.show.Line("step %2d/%d  reward %.3f  staleness %d  %d events in %s", ready.Step, w.steps,
				ready.RewardMean, ready.Staleness, w.books.Events, w.time.Sub(w.books.Opened).Round(time.Second))
		}
	}
	if !w.books.Closed {
		return nil
	}
	if b := w.books.Balance(w.feed); b.InFlight == 0 {
		return plane.ErrAtRest
	}
	return nil
}

// draw refreshes the progress line.
func (w *watcher) draw(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		b := w.books.Balance(w.feed)
		rate := 4 * (w.books.Events - before)
		before = w.books.Events
		curve := w.books.RewardCurve(w.feed)
		w.show.Show("step %d/%d  reward %.3f  %d rollouts in flight  %d trained  %d events/s", b.Consumed, w.steps,
			last(curve), b.InFlight, b.Trained, rate)
		w.mu.Unlock()
	}
}
