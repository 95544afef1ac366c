package checker

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/storage"
)

// tape is a run's log as a slice, on which faults can be planted.
type tape struct {
	t     *testing.T
	store storage.Store
	log   []events.Event
}

// state puts an event behind the last one of its chain.
func (p *tape) state(typ events.Type, entity, ordinal string, data any) {
	p.t.Helper()
	e, err := events.New("r", typ, entity, ordinal, data)
	if err != nil {
		p.t.Fatal(err)
	}
	p.log = append(p.log, e)
	p.relink()
}

// relink numbers the tape and closes its chains, as a writer would that knows nothing of a planted fault.
func (p *tape) relink() {
	tails := map[string]uint64{}
	for i := range p.log {
		e := &p.log[i]
		e.Seq = uint64(i + 1)
		e.Prev = tails[e.Chain()]
		tails[e.Chain()] = e.Seq
	}
}

func (p *tape) find(typ events.Type, entity string) int {
	p.t.Helper()
	i := slices.IndexFunc(p.log, func(e events.Event) bool { return e.Type == typ && e.Entity == entity })
	if i < 0 {
		p.t.Fatalf("the tape has no %s of %s", typ, entity)
	}
	return i
}

// edit changes a payload in place.
func edit[T any](p *tape, typ events.Type, entity string, change func(*T)) {
	p.t.Helper()
	i := p.find(typ, entity)
	v, err := events.Data[T](p.log[i])
	if err != nil {
		p.t.Fatal(err)
	}
	change(&v)
	if p.log[i].Data, err = json.Marshal(v); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tape) remove(typ events.Type, entity string) {
	i := p.find(typ, entity)
	p.log = slices.Delete(p.log, i, i+1)
	p.relink()
}

func (p *tape) check() Report {
	p.t.Helper()
	c := New(p.t.Context(), "r", p.store)
	for _, e := range p.log {
		if err := c.Event(e); err != nil {
			p.t.Fatal(err)
		}
	}
	return c.Finish()
}

func (p *tape) blob(data string) storage.Ref {
	ref, err := storage.PutBlob(p.t.Context(), p.store, []byte(data))
	if err != nil {
		p.t.Fatal(err)
	}
	return ref
}

// goodRun is a run in which all is well: one group of two, batched, consumed and trained.
func goodRun(t *testing.T) *tape {
	p := &tape{t: t, store: natstest.Store(t)}
	cfg := events.DefaultRunConfig()
	cfg.GroupSize, cfg.Feeds = 2, []events.Feed{{Name: "f", GroupsPerBatch: 1}}
	p.state(events.RunOpenedType, "r", "0", events.RunOpened{Config: cfg})
	p.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "t", Size: 2})
	rewards := []float64{1, 0}
	for i, reward := range rewards {
		p.rollout(events.RolloutID("g000001", i), reward)
	}
	members := []events.Member{{Rollout: "g000001-0", Reward: 1, Advantage: 0.5}, {Rollout: "g000001-1", Reward: 0, Advantage: -0.5}}
	p.state(events.GroupCompletedType, "g000001", "0", events.GroupCompleted{Task: "t", Estimator: "mean_centred", Members: members, Mean: 0.5})
	batch := &storage.Batch{Run: "r", Feed: "f", Step: 1}
	for _, m := range members {
		batch.Samples = append(batch.Samples, storage.Sample{
			Run: "r", Group: "g000001", Rollout: m.Rollout, Task: "t", SamplesInRollout: 1, PromptLength: 1,
			Tokens: []int32{1, 2}, LossMask: []bool{false, true}, SamplerLogprobs: []float32{0, -1},
			Advantages:     []float32{0, float32(m.Advantage)},
			PolicyVersions: []storage.VersionSegment{{Start: 1, Length: 1}}, Reward: float32(m.Reward),
		})
	}
	data, err := storage.EncodeBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	file := p.blob(string(data))
	p.state(events.BatchReadyType, "f", "1", events.BatchReady{
		Step: 1, Groups: []string{"g000001"}, Rollouts: []string{"g000001-0", "g000001-1"}, File: &file, Samples: 2, Tokens: 4, RewardMean: 0.5,
	})
	p.state(events.BatchConsumedType, "f", "1", events.BatchConsumed{Step: 1})
	return p
}

func (p *tape) rollout(id string, reward float64) {
	p.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: "g000001", Task: "t"})
	p.state(events.TurnSampledType, id, "0", events.TurnSampled{Turn: 0, ToolCalls: []events.ToolCall{{ID: "c0", Name: "grep"}}})
	p.state(events.ToolsCompletedType, id, "0", events.ToolsCompleted{Turn: 0, Results: []events.ToolResult{{CallID: "c0"}}})
	p.state(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1})
	trajectory := p.blob("trajectory of " + id)
	p.state(events.RolloutFinishedType, id, "0", events.RolloutFinished{Task: "t", StopReason: events.StopFinished, Turns: 2, Trajectory: trajectory})
	p.state(events.RolloutScoredType, id, "0", events.RolloutScored{Reward: reward, Trajectory: trajectory})
}

func TestGoodRunHasNoFindings(t *testing.T) {
	report := goodRun(t).check()
	if len(report.Findings) > 0 {
		t.Fatalf("findings in a run in which all is well: %v", report.Findings)
	}
	if b := report.Feeds[0]; b.Trained != 2 || !b.AddsUp() || report.Objects != 3 {
		t.Fatalf("books %+v, %d objects", b, report.Objects)
	}
}

// TestPlantedFaults plants each fault that the checker knows and demands that it is found.
func TestPlantedFaults(t *testing.T) {
	for name, c := range map[string]struct {
		rule  string
		plant func(p *tape)
	}{
		"lost link": {RuleChain, func(p *tape) {
			i := p.find(events.ToolsCompletedType, "g000001-0")
			p.log = slices.Delete(p.log, i, i+1) // the links behind it still point at it
		}},
		"forked chain": {RuleChain, func(p *tape) {
			i := p.find(events.RolloutFinishedType, "g000001-0")
			fork := p.log[i]
			fork.ID, fork.Seq = fork.ID+"x", uint64(len(p.log)+1)
			p.log = append(p.log, fork)
		}},
		"event twice": {RuleDuplicate, func(p *tape) {
			p.log = append(p.log, p.log[p.find(events.BatchConsumedType, "f")])
			p.relink()
		}},
		"wrong identity": {RuleIdentity, func(p *tape) {
			p.log[p.find(events.RolloutScoredType, "g000001-1")].ID = "r/rollout.g000009-1/scored/0"
		}},
		"turn lost":   {RuleTurns, func(p *tape) { p.remove(events.TurnSampledType, "g000001-0") }},
		"answer lost": {RuleTurns, func(p *tape) { p.remove(events.ToolsCompletedType, "g000001-0") }},
		"start lost":  {RuleTurns, func(p *tape) { p.remove(events.RolloutStartedType, "g000001-0") }},
		"call unanswered": {RuleTurns, func(p *tape) {
			edit(p, events.ToolsCompletedType, "g000001-0", func(d *events.ToolsCompleted) { d.Results = nil })
		}},
		"two outcomes": {RuleOutcome, func(p *tape) {
			p.state(events.RolloutFailedType, "g000001-0", "0", events.RolloutFailed{Stage: events.StageScorer, Class: events.ClassDeadline})
		}},
		"reward changed": {RuleGroup, func(p *tape) {
			edit(p, events.RolloutScoredType, "g000001-1", func(d *events.RolloutScored) { d.Reward = 0.25 })
		}},
		"member missing": {RuleGroup, func(p *tape) {
			edit(p, events.GroupCompletedType, "g000001", func(d *events.GroupCompleted) { d.Members = d.Members[:1] })
		}},
		"completed early": {RuleGroup, func(p *tape) { p.remove(events.RolloutScoredType, "g000001-1") }},
		"step skipped": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.Step = 2 })
		}},
		"trained twice": {RuleBatch, func(p *tape) {
			ready, _ := events.Data[events.BatchReady](p.log[p.find(events.BatchReadyType, "f")])
			ready.Step = 2
			p.state(events.BatchReadyType, "f", "2", ready)
		}},
		"other order than the file": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { slices.Reverse(d.Rollouts) })
		}},
		"advantage changed": {RuleBatch, func(p *tape) {
			edit(p, events.GroupCompletedType, "g000001", func(d *events.GroupCompleted) { d.Members[0].Advantage = 2 })
		}},
		"no file": {RuleBatch, func(p *tape) {
			edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) { d.File = nil })
		}},
		"object lost": {RuleObject, func(p *tape) {
			finished, _ := events.Data[events.RolloutFinished](p.log[p.find(events.RolloutFinishedType, "g000001-0")])
			if err := p.store.Delete(p.t.Context(), finished.Trajectory.Key); err != nil {
				p.t.Fatal(err)
			}
		}},
		"object changed": {RuleObject, func(p *tape) {
			finished, _ := events.Data[events.RolloutFinished](p.log[p.find(events.RolloutFinishedType, "g000001-0")])
			if err := p.store.Put(p.t.Context(), finished.Trajectory.Key, []byte("something else")); err != nil {
				p.t.Fatal(err)
			}
		}},
		"decided on the future": {RuleDecision, func(p *tape) {
			e := &p.log[p.find(events.GroupCompletedType, "g000001")]
			e.AsOf, e.DecidedAt = e.Seq, e.DecidedAt.AddDate(2026, 0, 0)
		}},
		"rollout that nobody started": {RuleLedger, func(p *tape) {
			p.state(events.RolloutAnnotatedType, "g000007-0", "x", events.RolloutAnnotated{Text: "?"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodRun(t)
			c.plant(p)
			report := p.check()
			if !slices.ContainsFunc(report.Findings, func(f Finding) bool { return f.Rule == c.rule }) {
				t.Errorf("not found; the findings are %v", report.Findings)
			}
			if c.rule == RuleDuplicate && report.Duplicates == 0 {
				t.Error("the duplicate was not counted")
			}
		})
	}
}
