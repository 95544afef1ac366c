package faults

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/nightly"
)

const variantSteps = 4

// shapes are runs whose decisions depend on the order of events more and more.
var shapes = []struct {
	name   string
	change func(*runfile.RunConfig)
	kept   kept
}{
	{"one group a step, on policy", func(cfg *runfile.RunConfig) {
		cfg.Staleness.Max, cfg.Feeds[0].GroupsPerBatch = 0,
			1
	}, kept{order: true, versions: true, steps: true}},
	{"two groups a step, on policy", func(cfg *runfile.RunConfig) { cfg.Staleness.Max = 0 },
		kept{versions: true, steps: true}},
	{"two groups a step, off policy", func(cfg *runfile.RunConfig) { cfg.Staleness.Max = 2 }, kept{}},
}

// TestVariants runs the same work in other ways: by other numbers of processes and slots,
// with delays, with inputs that come again, and with processes that die and begin again with
// their state or without. What generator and scorer make of a rollout follows from its name.
// Then these decisions follow from the run alone, and are the same bytes in each variant and
// in a run without faults:
//
//   - Each group's task, each rollout's seed, each group's advantages, and which groups a feed
//     drops by a filter. Each of them looks at one group. All groups are opened that the steps need
//     and no other, as a dropped group is replaced when it is dropped.
//   - On policy, also the policy version of each group, and the groups of each step: no
//     group of the next step is opened before the weights of the last. The batch of a step
//     has the same samples, and the same bytes where its groups were completed in the same
//     order: a batch is in that order.
//   - With one group a step, the order of all decisions: one follows from the other.
//   - Off policy, groups of several steps are under way at once. Which of them a step
//     trains, and how old they are then, depends on which is complete first. All steps
//     together train the same samples.
//
// Left out are the times of decisions, and deadlines, which follow from them.
func TestVariants(t *testing.T) {
	seeds := seeds(t, nightly.Count(1, 5)*len(shapes))
	for i, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			natstest.Virtual(t, func(t *testing.T) {
				want := variant{t: t, mills: 1}.run(shape.change)
				if want.dropped == 0 || want.failed == 0 || len(want.steps) != variantSteps {
					t.Fatalf("the run drops %d groups, %d of its rollouts fail, and it has %d steps: that says too little",
						want.dropped, want.failed, len(want.steps))
				}
				same := map[string]string{}
				for _, seed := range seeds {
					if seed%uint64(len(shapes)) != uint64(i) {
						continue
					}
					chance := rand.New(rand.NewPCG(seed, 3))
					v := variant{t: t, chance: &dice{rng: chance}, mills: 1 + chance.IntN(3), crashes: chance.IntN(5),
						repeats: chance.IntN(2) == 0}
					v.delay = []time.Duration{0, time.Second, 30 * time.Second}[chance.IntN(3)]
					got := v.run(shape.change)
					t.Logf("seed %d: %d processes, %d deaths, delays of %s, repeats %t: %d decisions", seed, v.mills,
						v.crashes, v.delay, v.repeats, len(got.order))
					if differs := want.compare(got, shape.kept, same); differs != "" {
						t.Errorf("seed %d: %s", seed, differs)
					}
				}
			})
		})
	}
}

// variant is one way in which the run's work is done. Without chance there are no faults.
type variant struct {
	t       *testing.T
	chance  *dice
	mills   int
	crashes int
	repeats bool
	delay   time.Duration // of an input, at most
}

// run does the work on a server of its own, and gives what was decided.
func (v variant) run(change func(*runfile.RunConfig)) *decisions {
	t := v.t
	dir, store := t.TempDir(), natstest.Store(t)
	server, err := embedded.Start(embedded.Options{Dir: filepath.Join(dir, "nats"), SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	nc, err := server.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	log, err := eventlog.New(nc, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var lives sync.WaitGroup
	defer lives.Wait()
	defer stop()
	for i := range v.mills {
		lives.Go(func() { v.live(ctx, server, store, filepath.Join(dir, fmt.Sprint(i)), i) })
	}
	err = mill.OpenWith(ctx, log, run, variantSteps, func(cfg *runfile.RunConfig) {
		cfg.GroupSize, cfg.Filters.ZeroVariance = 3, true
		cfg.Limits.Timeout, cfg.Limits.HopelessGroups = runfile.Duration(24*time.Hour), 0
		cfg.Tasks = append(cfg.Tasks, cfg.Tasks[0])
		cfg.Tasks[1].Name = "other"
		change(cfg)
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, log)
	if err := mill.Judge(ctx, log, run, variantSteps); err != nil {
		t.Error(err)
	}
	return decided(t, log)
}

// live runs a process, which dies as often as the variant says.
func (v variant) live(ctx context.Context, server *embedded.Server, store storage.Store, dir string, i int) {
	m := &mill.Mill{Dir: dir, Instance: fmt.Sprint("mill-", i), Logger: slog.New(slog.DiscardHandler), Score: scored}
	for life := 0; ctx.Err() == nil; life++ {
		nc, line := natstest.ConnectOver(v.t, server)
		log, err := eventlog.New(nc, store)
		if err != nil {
			v.t.Error(err)
			return
		}
		m.Log = log
		living, die := context.WithCancel(ctx)
		if v.chance != nil {
			v.vary(living, m, i > 0)
			if life < v.crashes {
				go func() {
					if retry.Sleep(living, v.chance.upTo(5*time.Second+v.delay)) {
						line.Cut() // it says nothing any more
						nc.Close()
						die()
					}
				}()
			}
		}
		_ = again.Keep(living, func() (bool, error) { return living.Err() != nil, m.Run(living, run) },
			func(error, time.Duration) {})
		die()
		nc.Close()
		if v.chance != nil && v.chance.one(2) {
			if err := os.RemoveAll(dir); err != nil {
				v.t.Error(err)
			}
		}
	}
}

// vary draws how a life works. One process has all services, others have some of them.
func (v variant) vary(ctx context.Context, m *mill.Mill, some bool) {
	m.Slots = 1 + int(v.chance.upTo(8))
	if some {
		m.Only = []string{}
		for _, s := range []string{
			topology.Intake, topology.QuerySampler, topology.Generator, topology.Scorer, topology.AdvantageCalculator,
			topology.TrainerFeeder, topology.DeadLetters,
		} {
			if v.chance.one(2) {
				m.Only = append(m.Only, s)
			}
		}
	}
	if v.repeats {
		m.Repeat = func(msg pipeline.Message) bool { return msg.Delivered < 3 && v.chance.one(2) }
	}
	if v.delay > 0 {
		m.Working = func(context.Context, string) { retry.Sleep(ctx, v.chance.upTo(v.delay)) }
	}
}

// scored plays the scorer. One rollout in eight fails, and a group's rewards are
// all the same now and then.
func scored(rollout string, finished events.RolloutFinished) (events.Type, any) {
	name := fnv.New64a()
	name.Write([]byte(rollout))
	draw := rand.New(rand.NewPCG(name.Sum64(), 0))
	if draw.IntN(8) == 0 {
		return events.RolloutFailedType, events.RolloutFailed{Stage: events.StageScorer,
			Class: events.ClassVerifier, Message: "by its name"}
	}
	reward := float64(draw.IntN(3)) / 2
	return events.RolloutScoredType, events.RolloutScored{Reward: reward,
		Components: map[string]float64{"reward": reward}, Trajectory: finished.Trajectory}
}
