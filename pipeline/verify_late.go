package pipeline

import (
	"encoding/json"
	"fmt"
	"iter"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// lateFact is a fact as it is kept on disk. Its body may be anything, even no JSON.
type lateFact struct {
	Event events.Event `json:"event"`
	Body  []byte       `json:"body"`
}

// sortable is a time as a key: texts of equal length that sort as moments do.
const sortable = "2006-01-02T15:04:05.000000000Z"

// keepLate keeps a fact of a decider for the second read.
func keepLate(db *projection.DB, folder string, e events.Event) error {
	fact := lateFact{Event: e, Body: e.Data}
	fact.Event.Data = json.RawMessage("null")
	tx := db.Begin()
	key := fmt.Sprintf("%s/%020d/%s/%020d", folder, e.AsOf, e.DecidedAt.UTC().Format(sortable), e.Seq)
	if err := projection.Put(tx, key, fact); err != nil {
		tx.Discard()
		return err
	}
	return db.Commit(tx, e.Seq)
}

// lateFacts are a decider's late facts in the order of their decisions.
type lateFacts struct {
	pull func() (lateFact, error, bool)
	stop func()
	next events.Event
	ok   bool // there is a next one
	err  error
}

func newLateFacts(db *projection.DB, folder string) *lateFacts {
	l := &lateFacts{}
	l.pull, l.stop = iter.Pull2(projection.Scan[lateFact](db, folder+"/"))
	_ = l.move() // the error is kept
	return l
}

func (l *lateFacts) move() error {
	fact, err, ok := l.pull()
	l.err, l.ok = err, ok && err == nil
	l.next = fact.Event
	l.next.Data = fact.Body
	return err
}
