package pipeline

import (
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Keys of the runtime's own entries beside the decider's.
const (
	tailPrefix = "\x01tail/"
	closedKey  = "\x01closed"
	foldedKey  = "\x01folded"
)

func tailKey(e events.Event) string { return tailPrefix + e.Type.Kind() + "." + e.Entity }

// emittedKinds are the kinds of entities whose chains a service appends to.
func emittedKinds(service string) map[string]bool {
	kinds := map[string]bool{}
	for _, s := range topology.Services {
		if s.Name != service {
			continue
		}
		for _, t := range s.Emits {
			kinds[t.Kind()] = true
		}
	}
	return kinds
}

// applyEvent folds one event and keeps the tail of its chain where the service
// may have to append to it.
func applyEvent(tx *projection.Tx, d Decider, emits map[string]bool, e events.Event) error {
	if emits[e.Type.Kind()] {
		if err := projection.Put(tx, tailKey(e), e.Seq); err != nil {
			return err
		}
	}
	if err := d.Apply(tx, e); err != nil {
		return fmt.Errorf("fold sequence %d: %w", e.Seq, err)
	}
	return nil
}

// decideAt makes a decision as of a sequence and clock, and fills in what ties its facts to it: the
// links of their chains, the sequence, the clock and the source. Facts of one chain follow each
// other only on the log, so the second and later ones wait for the next decision.
func decideAt(v projection.View, d Decider, source string, asOf uint64,
	now time.Time) ([]events.Event, time.Time, error) {
	facts, wake, err := d.Decide(v, asOf, now)
	if err != nil {
		return nil, wake, err
	}
	var linked []events.Event
	seen := map[string]bool{}
	for _, fact := range facts {
		chain := fact.Chain()
		if seen[chain] {
			continue
		}
		seen[chain] = true
		tail, _, err := projection.Get[uint64](v, tailKey(fact))
		if err != nil {
			return nil, wake, err
		}
		fact.Prev, fact.Source, fact.AsOf, fact.DecidedAt, fact.Time = tail, source, asOf, now, now
		linked = append(linked, fact)
	}
	return linked, wake, nil
}

// rest is what LastChange was when a Mover last decided nothing.
type rest uint64

// decideAt is the function of that name, unless the decider is a Mover that has not moved
// since it decided nothing.
func (r *rest) decideAt(v projection.View, d Decider, source string, asOf uint64,
	now time.Time) ([]events.Event, time.Time, error) {
	m, ok := d.(Mover)
	if !ok {
		return decideAt(v, d, source, asOf, now)
	}
	moved, err := m.LastChange(v)
	if err != nil || moved == uint64(*r) {
		return nil, time.Time{}, err
	}
	facts, wake, err := decideAt(v, d, source, asOf, now)
	if err == nil && len(facts) == 0 && wake.IsZero() {
		*r = rest(moved)
	}
	return facts, wake, err
}
