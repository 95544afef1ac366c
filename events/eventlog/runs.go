package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// Runs lists the runs that have a stream, and not a hidden one.
func (l Reader) Runs(ctx context.Context) ([]string, error) {
	var runs []string
	names := l.js.StreamNames(ctx, jetstream.WithStreamListSubject(events.SubjectPrefix+">"))
	for name := range names.Name() {
		if run, ok := events.RunOfStream(name); ok && run != events.Catalogue {
			runs = append(runs, run)
		}
	}
	return runs, names.Err()
}

// AllRuns lists the runs that have a stream, the archived ones that have none any more,
// and those of which the catalogue has a fact of some other types; none that are
// forgotten and have no stream.
func (l Reader) AllRuns(ctx context.Context, others ...events.Type) ([]string, error) {
	runs, err := l.Runs(ctx)
	if err != nil {
		return nil, err
	}
	live := slices.Clone(runs)
	for e, err := range l.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type == events.LogForgottenType {
			runs = slices.DeleteFunc(runs, func(run string) bool {
				return run == e.Entity &&
					!slices.Contains(live, run)
			})
		}
		if e.Type != events.SegmentSealedType && !slices.Contains(others, e.Type) {
			continue
		}
		if !slices.Contains(runs, e.Entity) {
			runs = append(runs, e.Entity)
		}
	}
	slices.Sort(runs)
	return runs, nil
}

// The states of a run beside open, paused and closed.
const (
	// StateArchived: the closed run's stream was deleted, and its archive is left.
	StateArchived = "archived"
	// StateLost: the run's stream is gone, and the run was not closed, or nothing of it is
	// archived. It is an outage.
	StateLost = "lost"
	// StateRestoring: the run's stream is hidden, as a restoration has not ended.
	StateRestoring = "restoring"
	// StateBehind: the run's stream ends before its archive. Nothing is
	// appended to it. It is an outage.
	StateBehind = "behind"
)

// RunState is whether a run is open, paused, closed or one of the states above, and why.
func (l Reader) RunState(ctx context.Context, run string) (state, reason string, err error) {
	archived, err := l.Archived(ctx, run)
	switch {
	case errors.Is(err, ErrRestoring):
		return StateRestoring,
			"its stream is hidden while it is restored; where that was interrupted: rondo run recover " + run, nil
	case errors.Is(err, ErrNotFound):
		return l.stateWithoutStream(ctx, run)
	case err != nil:
		return "", "", err
	case archived.Last < archived.Through:
		return StateBehind,
			fmt.Sprintf("its stream ends at %d, and its archive at %d: the log was rolled back; rondo run recover %s",
				archived.Last, archived.Through, run), nil
	}
	last, err := l.Last(ctx, run, events.RunOpenedType.Kind(), run)
	if errors.Is(err, ErrNotFound) {
		return "open", "", nil
	}
	if err != nil {
		return "", "", err
	}
	switch last.Type {
	case events.RunPausedType:
		paused, err := events.Data[events.RunPaused](last)
		return "paused", paused.Reason, err
	case events.RunClosedType:
		closed, err := events.Data[events.RunClosed](last)
		return "closed", closed.Reason, err
	}
	return "open", "", nil
}

// stateWithoutStream is the state of a run that has no stream, by the catalogue.
func (l Reader) stateWithoutStream(ctx context.Context, run string) (state, reason string, err error) {
	last, err := l.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), run)
	if errors.Is(err, ErrNotFound) {
		return StateArchived, "", nil // the catalogue knows no opening: nobody says that it was open
	}
	if err != nil {
		return "", "", err
	}
	sealed, err := l.Segments(ctx, run)
	switch {
	case errors.Is(err, ErrForgotten):
		return StateArchived, "its archive is given up", nil
	case err != nil:
		return "", "", err
	case len(sealed) == 0:
		return StateLost, "its stream is gone, and nothing of it is archived; rondo run recover " + run, nil
	case last.Type != events.RunClosedType && !l.archivedEnd(ctx, run, sealed[len(sealed)-1]):
		return StateLost,
			fmt.Sprintf("its stream is gone, and it was not closed; its archive ends at %d; rondo run recover %s",
				through(sealed), run), nil
	}
	return StateArchived, "", nil
}

// archivedEnd reports whether the last segment of a run has its end, which a plane that stopped
// right behind it did not tell the catalogue. A segment that cannot be read has none.
func (l Reader) archivedEnd(ctx context.Context, run string, last events.SegmentSealed) (found bool) {
	l.readSegments(ctx, run, last.First, []events.SegmentSealed{last}, func(e events.Event, err error) bool {
		found = found || err == nil && e.Type == events.RunClosedType
		return err == nil && !found
	})
	return found
}

// ErrNotArchived means that a run's archive does not have all that its stream has.
var ErrNotArchived = errors.New("its log is not archived to the end")

// Deletable gives the reason for which a run's stream must stay, nil when its archive holds all of
// it up to its last sequence.
func (l Archive) Deletable(ctx context.Context, run string) (last uint64, err error) {
	in, err := l.Incarnation(ctx, run)
	if err != nil {
		return 0, err
	}
	state, _, err := l.RunState(ctx, run)
	if err != nil {
		return 0, err
	}
	if state != "closed" {
		return 0, fmt.Errorf("it is %s: close it first", state)
	}
	sealed, err := l.Segments(ctx, run)
	if err != nil {
		return 0, err
	}
	if n := len(sealed); n == 0 || sealed[n-1].Last < in.LastSeq {
		return 0, notArchived(run)
	}
	findings, err := l.Verify(ctx, run, sealed)
	if err != nil {
		return 0, err
	}
	if len(findings) > 0 {
		return 0, errors.New(findings[0])
	}
	return in.LastSeq, nil
}

func notArchived(run string) error {
	return fmt.Errorf("%w: rondo archive seal %s", ErrNotArchived, run)
}

// DeleteArchived deletes the stream of a closed run that ends at the sequence which
// [Archive.Deletable] gave: ErrNotArchived where it has grown since. The stream is hidden before it
// is looked at for the last time, so that nothing is appended, and acknowledged, between the look
// and the end. Who is killed between them leaves it hidden, and `rondo run recover` shows it.
func (l Streams) DeleteArchived(ctx context.Context, run string, last uint64) error {
	hiding := Restorer{Archive(l)}
	if err := hiding.Hide(ctx, run); err != nil {
		return err
	}
	in, _, err := l.Look(ctx, run)
	if err == nil && in.LastSeq != last {
		err = notArchived(run)
	}
	if err != nil {
		return errors.Join(err, hiding.Show(context.WithoutCancel(ctx), run))
	}
	return l.DeleteRun(ctx, run)
}

// ForgetRun records that the archive of a run without a stream is given up. Nothing is
// deleted by it: gc does that.
func (l Appender) ForgetRun(ctx context.Context, run, reason string) error {
	if _, err := l.Incarnation(ctx, run); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrRestoring) {
		if err == nil {
			err = fmt.Errorf("run %s has a stream: rondo run delete %s comes first", run, run)
		}
		return err
	}
	fact, err := events.New(events.Catalogue, events.LogForgottenType, run, "0", events.LogForgotten{Reason: reason})
	if err != nil {
		return err
	}
	fact.Source = "rondo"
	_, _, err = l.AppendLast(ctx, fact, func(last *events.Event) error {
		if last == nil || last.Type != events.SegmentSealedType {
			return fmt.Errorf("run %s: nothing of it is archived: %w", run, ErrNotFound)
		}
		return nil
	})
	return err
}

// Forgotten lists the runs whose archives are given up.
func (l Archive) Forgotten(ctx context.Context) (runs []string, err error) {
	for e, err := range l.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return nil, err
		}
		if e.Type == events.LogForgottenType {
			runs = append(runs, e.Entity)
		}
	}
	return runs, nil
}

// ListRun copies a run's opening or closing to the catalogue, unless that has it.
func (l Appender) ListRun(ctx context.Context, e events.Event) error {
	listed := events.Event{ID: e.ID, Run: events.Catalogue, Type: e.Type, Entity: e.Run, Source: e.Source,
		Time: e.Time, Data: e.Data}
	_, err := l.AppendOnce(ctx, listed, time.Time{}, nil)
	return err
}
