package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Verification makes every decision of a run again, from the log as it was at each fact's as_of and
// with the fact's clock, and reports what comes out differently. It reads the log and nothing
// local. Facts under a decider's name that no decision can have led to are differences, too.
//
// All deciders fold the run in one read of the log. A fact comes after what it was decided on, so
// the fold stays a window of events behind the read; the few facts that come later than that, of a
// process that was held up between its decision and its append, are kept on disk and checked in a
// second read. The state is on disk, too: the memory that it takes does not grow with the run.
type Verification struct {
	Log      eventlog.Reader
	Run      string
	Deciders map[string]map[string]Decider // by service and instance
	Report   func(Difference)
	// Each, if set, is called with every event of the run, in order.
	Each func(events.Event) error
	// Progress, if set, is told of each sequence that was read.
	Progress func(seq uint64)
}

// The fold stays this far behind the read: longer than an append usually takes, and little memory.
const (
	windowEvents = 8192
	windowBytes  = 16 << 20
)

// Verify reads the run and gives the number of decided facts that were checked, by decider.
func (v *Verification) Verify(ctx context.Context) (checked map[string]int, err error) {
	return v.verify(ctx, windowEvents)
}

func (v *Verification) verify(ctx context.Context, window int) (checked map[string]int, err error) {
	dir, err := os.MkdirTemp("", "rondo-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	w := &verifying{Verification: v, ctx: ctx, window: window}
	defer w.close()
	if err := w.open(dir); err != nil {
		return nil, err
	}
	err = w.read()
	checked = map[string]int{}
	for _, d := range w.deciders {
		if err == nil && d.late > 0 {
			err = w.readAgain(d, filepath.Join(dir, "again-"+d.folder))
		}
		checked[d.source] = d.checked
	}
	return checked, err
}

// verifying is a Verification at work.
type verifying struct {
	*Verification
	ctx      context.Context
	window   int
	deciders []*verifier
	late     *projection.DB // facts that came behind the window, by decider and in the order of their decisions
	ahead    []events.Event // read and not folded yet
	bytes    int            // of them
}

func (w *verifying) open(dir string) (err error) {
	if w.late, err = projection.Open(filepath.Join(dir, "late"), projection.Identity{}); err != nil {
		return err
	}
	for service, deciders := range w.Deciders {
		for instance, d := range deciders {
			c := &verifier{ctx: w.ctx, Decider: d, source: source(service, instance), emits: emittedKinds(service)}
			c.report = func(d Difference) { c.found = append(c.found, d) }
			c.folder = strings.ReplaceAll(c.source, "/", "-")
			if c.db, err = projection.Open(filepath.Join(dir, c.folder), projection.Identity{}); err != nil {
				return err
			}
			w.deciders = append(w.deciders, c)
		}
	}
	slices.SortFunc(w.deciders, func(a, b *verifier) int { return strings.Compare(a.source, b.source) })
	return nil
}

// tell reports what the deciders have found since the last time: they fold side by side, and the
// reports are one sequence.
func (w *verifying) tell() {
	for _, d := range w.deciders {
		for _, found := range d.found {
			w.Report(found)
		}
		d.found = nil
	}
}

func (w *verifying) close() {
	for _, d := range w.deciders {
		d.db.Close()
	}
	if w.late != nil {
		w.late.Close()
	}
}

func (w *verifying) read() error {
	for e, err := range w.Log.All(w.ctx, w.Run, 1) {
		if err != nil {
			return err
		}
		if err := w.take(e); err != nil {
			return err
		}
	}
	return w.fold(len(w.ahead))
}

func (w *verifying) take(e events.Event) error {
	if err := w.sort(e); err != nil {
		return err
	}
	if w.Each != nil {
		if err := w.Each(e); err != nil {
			return err
		}
	}
	if w.Progress != nil {
		w.Progress(e.Seq)
	}
	w.ahead, w.bytes = append(w.ahead, e), w.bytes+len(e.Data)
	if len(w.ahead) <= w.window && w.bytes <= windowBytes {
		return nil
	}
	return w.fold((len(w.ahead) + 1) / 2)
}

// sort gives a decided fact to its decider, or reports that it cannot have been decided.
func (w *verifying) sort(e events.Event) error {
	service, _, _ := strings.Cut(e.Source, "/")
	if w.Deciders[service] == nil {
		return nil
	}
	for _, d := range w.deciders {
		if d.source != e.Source {
			continue
		}
		switch {
		case e.DecidedAt.IsZero():
			d.differs(e, "decided_at", "none", "the decision's clock")
		case e.AsOf >= e.Seq:
			d.differs(e, "as_of", fmt.Sprint(e.AsOf), fmt.Sprintf("less than %d", e.Seq))
		case e.AsOf < d.db.Seq():
			d.late++
			return keepLate(w.late, d.folder, e)
		default:
			d.wait(e)
		}
		return nil
	}
	w.Report(Difference{Event: e.ID, Sequence: e.Seq, Field: "source", Recorded: e.Source,
		Recomputed: "no decider of the run"})
	return nil
}

// fold lets every decider fold the first n events of the window, and check what was
// decided before each of them.
func (w *verifying) fold(n int) error {
	var group errgroup.Group
	group.SetLimit(goruntime.GOMAXPROCS(0))
	for _, d := range w.deciders {
		group.Go(func() (err error) {
			defer guard(d.source, &err)
			return d.fold(w.ahead[:n])
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	w.tell()
	for _, e := range w.ahead[:n] {
		w.bytes -= len(e.Data)
	}
	rest := copy(w.ahead, w.ahead[n:])
	clear(w.ahead[rest:])
	w.ahead = w.ahead[:rest]
	return nil
}

// readAgain checks the facts of one decider that came behind the window: they are all known now.
func (w *verifying) readAgain(d *verifier, dir string) (err error) {
	defer guard(d.source, &err)
	db, err := projection.Open(dir, projection.Identity{})
	if err != nil {
		return err
	}
	defer db.Close()
	again := &verifier{ctx: w.ctx, Decider: d.Decider, source: d.source, emits: d.emits, report: w.Report, db: db}
	defer func() { d.checked += again.checked }()
	late := newLateFacts(w.late, d.folder)
	defer late.stop()
	for e, err := range w.Log.All(w.ctx, w.Run, 1) {
		if err != nil {
			return err
		}
		for late.ok && late.next.AsOf < e.Seq {
			if err := again.check(late.next); err != nil {
				return err
			}
			if err := late.move(); err != nil {
				return err
			}
		}
		if !late.ok {
			return late.err
		}
		if err := again.fold([]events.Event{e}); err != nil {
			return err
		}
	}
	return late.err
}
