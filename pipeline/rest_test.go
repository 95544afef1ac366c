package pipeline

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// mover counts how often it is asked, and decides what it is told to.
type mover struct {
	asked int
	moved uint64
	facts []events.Event
	wake  time.Time
}

func (m *mover) Apply(*projection.Tx, events.Event) error   { return nil }
func (m *mover) LastChange(projection.View) (uint64, error) { return m.moved, nil }
func (m *mover) Decide(projection.View, uint64, time.Time) ([]events.Event, time.Time, error) {
	m.asked++
	return m.facts, m.wake, nil
}

func TestMoverIsAskedWhenItMoved(t *testing.T) {
	db, err := projection.Memory()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fact, err := events.New("r", events.GroupDroppedType, "g000001", "a", events.GroupDropped{Feed: "a"})
	if err != nil {
		t.Fatal(err)
	}
	m, r := &mover{}, rest(0)
	for _, c := range []struct {
		name  string
		moved uint64
		facts []events.Event
		wake  time.Time
		asked bool
	}{
		{"nothing has happened", 0, nil, time.Time{}, false},
		{"it moves and decides", 5, []events.Event{fact}, time.Time{}, true},
		{"it has not seen its fact yet", 5, []events.Event{fact}, time.Time{}, true},
		{"it moves and asks for a time", 6, nil, time.Unix(1, 0), true},
		{"it decides nothing", 6, nil, time.Time{}, true},
		{"it rests", 6, nil, time.Time{}, false},
		{"it moves again", 7, nil, time.Time{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.moved, m.facts, m.wake = c.moved, c.facts, c.wake
			before := m.asked
			facts, wake, err := r.decideAt(db, m, "m", 9, time.Unix(0, 0))
			if err != nil {
				t.Fatal(err)
			}
			if asked := m.asked > before; asked != c.asked {
				t.Errorf("asked is %v, want %v", asked, c.asked)
			}
			if c.asked && (len(facts) != len(c.facts) || !wake.Equal(c.wake)) {
				t.Errorf("decided %d facts and to wake at %v", len(facts), wake)
			}
		})
	}
}
