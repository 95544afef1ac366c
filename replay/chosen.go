package replay

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Chosen are the rollouts that a user named, or the first ones, or all.
type Chosen struct {
	left int             // how many are still to come; negative for all
	ids  map[string]bool // that have not come yet; nil for any
}

// Choose reads the choice of rollouts: nothing for all, one number for the first ones, or ids.
func Choose(flag []string) (*Chosen, error) {
	if len(flag) == 0 {
		return &Chosen{left: -1}, nil
	}
	if n, err := strconv.Atoi(flag[0]); err == nil && len(flag) == 1 {
		if n < 1 {
			return nil, fmt.Errorf("--rollouts %d: give a positive number, or ids", n)
		}
		return &Chosen{left: n}, nil
	}
	ids := map[string]bool{}
	for _, id := range flag {
		if !runfile.ValidToken(id) {
			return nil, fmt.Errorf(
				"--rollouts %.80q: give one number, or ids such as g000001-0 with commas between them", id)
		}
		ids[id] = true
	}
	return &Chosen{left: len(ids), ids: ids}, nil
}

// filter gives the chosen ones, and reads no further than the last.
func (c *Chosen) filter(all iter.Seq2[eventlog.Ended, error]) iter.Seq2[eventlog.Ended, error] {
	return func(yield func(eventlog.Ended, error) bool) {
		for r, err := range all {
			if err == nil && c.ids != nil && !c.ids[r.ID] {
				continue
			}
			delete(c.ids, r.ID)
			c.left--
			if !yield(r, err) || c.left == 0 {
				return
			}
		}
	}
}

// missing are the ids that did not come.
func (c *Chosen) missing() []string { return slices.Sorted(maps.Keys(c.ids)) }
