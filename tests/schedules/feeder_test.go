package schedules

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage/projection"
)

// deaths counts how often something died where.
type deaths struct {
	mu    sync.Mutex
	count map[string]int
}

func (d *deaths) add(where string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[where]++
}

// feeder lives and dies until the context ends. Each life begins with what the last one left, or on
// a machine that has nothing.
func (p plane) feeder(ctx context.Context, run, dir string, rng *rand.Rand, died *deaths) error {
	stated := int64(0)
	for ctx.Err() == nil {
		life, kill := context.WithCancel(ctx)
		service := pipeline.Deciding{Name: topology.TrainerFeeder,
			New: func(of string, cfg runfile.RunConfig) (map[string]pipeline.Decider, error) {
				if of != run {
					return nil, nil // it has a feeder of its own
				}
				deciders := trainerfeeder.Deciders(run, cfg, p.log.Store())
				deciders[feedName] = &mortal{Decider: deciders[feedName].(*trainerfeeder.Decider), rng: rng, kill: kill,
					died: died, stated: &stated}
				return deciders, nil
			}}
		err := pipeline.RunDeciding(life, p.env(dir, run), service)
		kill()
		if err != nil {
			return err
		}
		if rng.IntN(2) == 0 {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// mortal is a feeder that is killed once in eight batches when a batch's files are written and its
// fact is not on the log yet, and once in eight when the fact is on the log and not folded yet.
type mortal struct {
	*trainerfeeder.Decider
	rng  *rand.Rand
	kill func()
	died *deaths
	// stated is the last step whose fact was folded in any life.
	stated *int64
}

func (m *mortal) Complete(ctx context.Context, v projection.View, fact events.Event) (events.Event, error) {
	fact, err := m.Decider.Complete(ctx, v, fact)
	if err == nil && fact.Type == events.BatchReadyType && m.rng.IntN(8) == 0 {
		return fact, m.die("feeder before batch.ready")
	}
	return fact, err
}

func (m *mortal) Apply(tx *projection.Tx, e events.Event) error {
	if e.Type == events.BatchReadyType {
		ready, err := events.Data[events.BatchReady](e)
		if err != nil {
			return err
		}
		first := ready.Step > *m.stated
		*m.stated = max(*m.stated, ready.Step)
		if first && m.rng.IntN(8) == 0 {
			return m.die("feeder after batch.ready")
		}
	}
	return m.Decider.Apply(tx, e)
}

func (m *mortal) die(where string) error {
	m.kill()
	m.died.add(where)
	return errKilled
}
