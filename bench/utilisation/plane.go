package utilisation

import (
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage/projection"
)

const (
	run      = "utilisation"
	policy   = "policy"
	feedName = "trainer"
)

// plane is Rondo's schedule: the deciders of its query sampler, advantage calculator and trainer
// feeder fold a log of the run in memory, and decide. Nothing of what they decide is known here.
type plane struct {
	*world
	deciders []*folded // in the order in which they are asked
	seq      uint64
	wake     time.Time

	rollouts map[string]*rollout // that no batch has yet
	ready    [][]*rollout        // composed and not taken by the trainer
	training bool
	dropped  int // rollouts of groups that were dropped as stale, while it was measured

	auto       bool // the run follows what the server can do
	looks      fleet.Capacity
	capacity   events.CapacityMeasured // stated last
	capacities int                     // how often it was stated
	stated     time.Time
}

// folded is a decider with the state that it has folded.
type folded struct {
	pipeline.Decider
	db *projection.DB
}

func configuration(o Options) runfile.RunConfig {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Seed, cfg.GroupSize, cfg.InFlight = policy, o.Seed, o.GroupSize, o.InFlight
	cfg.Feeds = []runfile.Feed{{Name: feedName, GroupsPerBatch: o.Groups}}
	cfg.Staleness.Max = o.Staleness
	cfg.Limits.Timeout = runfile.Duration(48 * time.Hour) // every rollout may end
	cfg.Tasks = []runfile.TaskSpec{{Name: "task"}}
	return cfg
}

func simulateRondo(o Options, workload string) (p *plane, err error) {
	cfg := configuration(o)
	calculator, err := advantagecalculator.NewDecider(run, cfg)
	if err != nil {
		return nil, err
	}
	p = &plane{world: newWorld(o, workload), rollouts: map[string]*rollout{},
		auto: cfg.InFlight == runfile.AutoInFlight}
	p.sampled = p.turn
	p.resumed = func(r *rollout) {
		p.state(events.ToolsCompletedType, r.id, events.ToolsCompleted{Turn: r.turn - 1})
	}
	p.ended = p.end
	for _, d := range []pipeline.Decider{calculator, trainerfeeder.NewDecider(run, cfg, cfg.Feeds[0], nil),
		querysampler.NewDecider(run, cfg)} {
		db, err := projection.Memory()
		if err != nil {
			return nil, err
		}
		defer db.Close()
		p.deciders = append(p.deciders, &folded{d, db})
	}
	p.state(events.RunOpenedType, run, events.RunOpened{Config: cfg})
	p.settle()
	if p.auto {
		p.look()
	}
	return p, p.run()
}

// look is what a generator does from time to time: it looks at the server, and states what that can
// do if it has changed noticeably.
func (p *plane) look() {
	servers := p.servers()
	m := generator.Measured(servers, p.looks.Look(p.clock(), servers))
	last := &p.capacity
	if p.capacities == 0 {
		last = nil
	}
	if generator.Noticeable(last, p.clock().Sub(p.stated), m) {
		p.capacity, p.stated = m, p.clock()
		p.capacities++
		p.state(events.CapacityMeasuredType, policy, m)
		p.settle()
	}
	p.after(generator.LookEvery.Seconds(), p.look)
}

// state puts an event on the log, in which outsiders or effect services state it.
func (p *plane) state(t events.Type, entity string, data any) {
	e, err := events.New(run, t, entity, events.Ordinal(int64(p.seq)), data)
	p.fail(err)
	p.put(e)
}

func (p *plane) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// put puts an event on the log; every decider folds it.
func (p *plane) put(e events.Event) {
	p.seq++
	e.Seq, e.Time = p.seq, p.clock()
	for _, d := range p.deciders {
		tx := d.db.Begin()
		if err := d.Apply(tx, e); err != nil {
			p.fail(fmt.Errorf("fold %s: %w", e.ID, err))
		}
		p.fail(d.db.Commit(tx, e.Seq))
	}
}

// settle lets all deciders decide until nothing more follows.
func (p *plane) settle() {
	for decided := true; decided && p.err == nil; {
		decided = false
		for _, d := range p.deciders {
			decided = p.decide(d) || decided
		}
	}
	p.trainNext()
}

// decide lets one decider decide, and reports whether it did.
func (p *plane) decide(d *folded) (decided bool) {
	facts, wake, err := d.Decide(d.db, d.db.Seq(), p.clock())
	p.fail(err)
	p.wakeAt(wake)
	chains := map[string]bool{}
	for _, f := range facts {
		if chains[f.Chain()] {
			continue // it waits for the next decision, as on the real log
		}
		chains[f.Chain()] = true
		decided = true
		p.put(f)
		p.fail(p.happens(f))
	}
	return decided
}

// wakeAt lets the deciders decide again at a time that one of them asked for.
func (p *plane) wakeAt(at time.Time) {
	if at.IsZero() || !p.wake.IsZero() && !at.Before(p.wake) {
		return
	}
	p.wake = at
	p.after(at.Sub(p.clock()).Seconds(), func() {
		p.wake = time.Time{}
		p.settle()
	})
}

// happens lets what was decided happen.
func (p *plane) happens(f events.Event) error {
	switch f.Type {
	case events.RolloutStartedType:
		started, err := events.Data[events.RolloutStarted](f)
		if err != nil {
			return err
		}
		var n int64
		if _, err := fmt.Sscanf(started.Group, "g%d", &n); err != nil {
			return err
		}
		r := &rollout{shape: p.load.group(n)[started.Member], id: f.Entity, group: n, version: started.PolicyVersion}
		p.rollouts[r.id] = r
		p.begin(r)
	case events.BatchReadyType:
		ready, err := events.Data[events.BatchReady](f)
		if err != nil {
			return err
		}
		p.ready = append(p.ready, nil)
		for _, id := range ready.Rollouts {
			p.ready[len(p.ready)-1] = append(p.ready[len(p.ready)-1], p.rollouts[id])
			delete(p.rollouts, id)
		}
	case events.GroupDroppedType:
		if p.version >= p.warm && p.version < p.last {
			p.dropped += p.load.size
		}
	case events.RolloutFailedType, events.RunPausedType, events.RunClosedType:
		return fmt.Errorf("%s in a simulation where nothing fails: %s", f.Type, f.Data)
	}
	return nil
}

// turn is a turn that was sampled. In a run that follows the server's capacity it makes room.
func (p *plane) turn(r *rollout) {
	p.state(events.TurnSampledType, r.id, turnOf(r))
	if p.auto && p.decide(p.deciders[len(p.deciders)-1]) { // no other decider waits for a turn
		p.settle()
	}
}

// end is the end of a rollout with its verdict.
func (p *plane) end(r *rollout) {
	p.state(events.RolloutFinishedType, r.id, events.RolloutFinished{
		Task: "task", StopReason: events.StopFinished, Turns: len(r.turns), Tokens: int(r.tokens()),
		Sampled: int(r.tokens()), Samples: 1, MinVersion: r.version, MaxVersion: p.version,
	})
	p.state(events.RolloutScoredType, r.id, events.RolloutScored{Reward: r.reward})
	p.settle()
}

// turnOf is a turn as the log has it, without its tokens: no decider reads them.
func turnOf(r *rollout) events.TurnSampled {
	return events.TurnSampled{Turn: r.turn - 1, PolicyVersion: r.version}
}

// trainNext lets the trainer take the batch that is ready.
func (p *plane) trainNext() {
	if p.training || len(p.ready) == 0 || p.err != nil {
		return
	}
	batch, step := p.ready[0], p.version+1
	p.ready, p.training = p.ready[1:], true
	p.train(batch, func() {
		p.training = false
		p.state(events.WeightsPublishedType, policy, events.WeightsPublished{Policy: policy, Version: p.version,
			Run: run, ThroughStep: step})
		p.settle()
	})
	p.state(events.BatchConsumedType, feedName, events.BatchConsumed{Step: step})
	p.settle()
}

var errSeed = errors.New("seed: must not be negative")
