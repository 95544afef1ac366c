package pipeline

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage/projection"
)

// folded is the last event that a projection holds.
type folded struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
}

// openFolded opens the decider's projection where the log still holds what it has folded. A power
// cut may leave the projection with facts that the log has lost, at any durability but "always",
// and other facts come in their place: then it begins again.
func (l *loop) openFolded(ctx context.Context, in eventlog.Incarnation) (*projection.DB, error) {
	db, err := l.open(in)
	if err != nil {
		return nil, err
	}
	holds, err := l.logHolds(ctx, db)
	if err == nil && holds {
		return db, nil
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	l.env.Logger.Warn("projection reset", "decider", l.source, "run", l.run)
	if err := os.RemoveAll(l.dir); err != nil {
		return nil, err
	}
	return l.open(in)
}

// logHolds reports whether the last event that a projection holds is the log's at that sequence.
func (l *loop) logHolds(ctx context.Context, db *projection.DB) (bool, error) {
	if db.Seq() == 0 {
		return true, nil
	}
	mine, ok, err := projection.Get[folded](db, foldedKey)
	if err != nil || !ok {
		return false, err
	}
	e, err := l.env.Log.Event(ctx, l.run, db.Seq())
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return false, nil
	case errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject):
		return false, nil // what was folded could be read
	}
	return err == nil && e.ID == mine.ID && e.Time.Equal(mine.Time), err
}
