package presence

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Roster keeps what processes said of themselves last, as long as they are present.
type Roster struct {
	most int

	mu    sync.Mutex
	heard map[string]Heard // by service and name
}

// Heard is what a process said of itself, and when.
type Heard struct {
	Report
	At time.Time
}

// NewRoster makes an empty one of at most so many processes: of more, the one that was silent
// longest is left out.
func NewRoster(most int) *Roster { return &Roster{most: most, heard: map[string]Heard{}} }

// Take notes what a process says of itself now.
func (r *Roster) Take(said Report, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard[said.Service+"."+said.Name] = Heard{said, now}
	if len(r.heard) <= r.most {
		return
	}
	delete(r.heard, slices.MinFunc(slices.Collect(maps.Keys(r.heard)), func(a, b string) int {
		return r.heard[a].At.Compare(r.heard[b].At)
	}))
}

// Present lists the processes that have spoken of late, by service and name.
func (r *Roster) Present(now time.Time) (list []Heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, said := range r.heard {
		if now.Sub(said.At) > EndedAfter {
			delete(r.heard, name)
			continue
		}
		list = append(list, said)
	}
	slices.SortFunc(list, func(a, b Heard) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Name, b.Name))
	})
	return list
}
