package main

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// chosenRollouts are those that --rollouts names, or the first ones.
type chosenRollouts struct {
	left int             // how many are still to come; negative for all
	ids  map[string]bool // that have not come yet; nil for any
}

func chooseRollouts(flag []string) (*chosenRollouts, error) {
	if len(flag) == 0 {
		return &chosenRollouts{left: -1}, nil
	}
	if n, err := strconv.Atoi(flag[0]); err == nil && len(flag) == 1 {
		if n < 1 {
			return nil, fmt.Errorf("--rollouts %d: give a positive number, or ids", n)
		}
		return &chosenRollouts{left: n}, nil
	}
	ids := map[string]bool{}
	for _, id := range flag {
		if !events.ValidToken(id) {
			return nil, fmt.Errorf("--rollouts %.80q: give one number, or ids such as g000001-0 with commas between them", id)
		}
		ids[id] = true
	}
	return &chosenRollouts{left: len(ids), ids: ids}, nil
}

// of gives the chosen ones, and reads no further than the last.
func (c *chosenRollouts) of(all iter.Seq2[eventlog.Ended, error]) iter.Seq2[eventlog.Ended, error] {
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
func (c *chosenRollouts) missing() []string { return sortedKeys(c.ids) }
