package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// open opens the run, or finds it as an earlier call has left it.
func (e *evaluator) open(ctx context.Context, name string, f *opening.RunFile) error {
	recorded, err := e.p.Log.RecordedConfig(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		if err = opening.ListServers(ctx, e.p, name, f, e.s); err != nil {
			return err
		}
		_, refused := opening.OpenPacked(ctx, e.p, name, f)
		if refused == nil {
			e.show.Line("run %s: %d tasks, %d attempts each, by %s", name, len(f.Tasks),
				f.GroupSize*f.Epochs, f.Model())
			return nil
		}
		if !errors.Is(refused, eventlog.ErrRefused) {
			return refused
		}
		// Another call may have opened the same run meanwhile, and closed it.
		if recorded, err = e.p.Log.RecordedConfig(ctx, name); errors.Is(err, eventlog.ErrNotFound) {
			return refused
		}
	}
	if err != nil {
		return err
	}
	opening.AsListed(&f.RunConfig, recorded)
	was, err := json.Marshal(recorded)
	if err != nil {
		return err
	}
	is, err := json.Marshal(f.RunConfig)
	if err != nil {
		return err
	}
	if !bytes.Equal(was, is) {
		return fmt.Errorf("there is a run %q already, with another configuration: choose another --run", name)
	}
	state, reason, err := e.p.Log.RunState(ctx, name)
	if err != nil || state != "paused" {
		return err
	}
	e.show.Line("run %s was paused (%s), it goes on", name, app.Clean(reason))
	_, err = plane.Submit(ctx, e.p, eventlog.Submission{
		Run: name, Type: events.RunResumedType, Entity: name, ID: nats.NewInbox()[7:],
		Data: events.RunResumed{Reason: "rondo eval goes on"},
	})
	return err
}

// errPaused: the run opens no more groups.
var errPaused = errors.New("the run is paused")

// evalWatch follows an evaluation and shows how far it is.
type evalWatch struct {
	mu    sync.Mutex
	fold  *evaluation.Recorded
	show  *app.Progress
	known uint64 // what was on the log before
	began time.Time
}

// wait follows the run until nothing of it is under way, and gives what it folded. A run
// that is archived is over.
func (e *evaluator) wait(ctx context.Context, name string) (*evaluation.Recorded, error) {
	in, err := e.p.Log.Incarnation(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		return evaluation.ReadRecorded(ctx, e.p.Log.Reader, name)
	}
	if err != nil {
		return nil, err
	}
	w := &evalWatch{fold: evaluation.NewRecorded(name), show: e.show, known: in.LastSeq, began: time.Now()}
	drawing, stop := context.WithCancel(ctx)
	drawn := make(chan struct{})
	go func() { w.draw(drawing); close(drawn) }()
	err = e.p.Log.FollowStream(ctx, name, in, 1, "", w.take)
	stop()
	<-drawn
	switch {
	case errors.Is(err, plane.ErrAtRest):
		return w.fold, nil
	case errors.Is(err, errPaused):
		return nil, fmt.Errorf("run %s is paused: %s; when that is seen to, the same command goes on", name,
			app.Clean(w.fold.Paused()))
	}
	return nil, err
}

func (w *evalWatch) take(e events.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fold.Take(e); err != nil {
		return err
	}
	if e.Type == events.GroupCompletedType {
		w.completed(e)
	}
	switch {
	case e.Seq < w.known:
		return nil
	case w.fold.Settled():
		return plane.ErrAtRest
	case w.fold.Paused() != "":
		return errPaused
	}
	return nil
}

// completed prints what became of a group.
func (w *evalWatch) completed(e events.Event) {
	if e.Seq <= w.known {
		return
	}
	g, _ := w.fold.FindGroup(e.Entity)
	failed := 0
	for _, id := range g.Members {
		if r, _ := w.fold.Find(id); !r.Compared() {
			failed++
		}
	}
	text := fmt.Sprintf("group %d/%d  %s  mean reward %.3f of %d",
		w.fold.Totals.Completed, len(w.fold.Config.Tasks)*w.fold.Config.Epochs, app.Clean(g.Task),
		g.Mean, len(g.Members)-failed)
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	w.show.Line("%s  in %s", text, time.Since(w.began).Round(time.Second))
}

// draw refreshes the progress line.
func (w *evalWatch) draw(ctx context.Context) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		b := w.fold.Balance(w.fold.FirstFeed())
		cfg := w.fold.Config
		w.show.Show("%d of %d attempts done, %d under way", b.Started-b.InFlight,
			cfg.Epochs*cfg.GroupSize*len(cfg.Tasks), b.InFlight)
		w.mu.Unlock()
	}
}
