package audit

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
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

// relink numbers the tape and closes its chains, as a writer would that knows
// nothing of a planted fault.
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

// goodRun is a run in which all is well: two groups, one of whose members was truncated and one
// invalidated, batched over two ranks, and by another feed that exports what passed. Advantages are
// normalised over the batch, and two turns have a reward of their own.
func goodRun(t *testing.T) *tape {
	p := &tape{t: t, store: natstest.Store(t)}
	cfg := runfile.DefaultRunConfig()
	cfg.Staleness.Max = 1
	pass := 1.0
	cfg.Advantage = runfile.Advantage{Estimator: "reinforce_plus_plus", SpanWeight: 0.5}
	cfg.Filters.Truncated = true
	cfg.GroupSize, cfg.Feeds = 2, []runfile.Feed{
		{Name: "f", GroupsPerBatch: 2, Ranks: 2, MicroBatch: &runfile.MicroBatch{Tokens: 8},
			Teachers: []string{"big", "hinted"}, Hints: "judge"}, {Name: "sft", GroupsPerBatch: 1, MinReward: &pass},
	}
	cfg.Teachers = []runfile.Teacher{{Name: "big"}, {Name: "hinted", Hints: "judge"}}
	p.state(events.RunOpenedType, "r", "0", events.RunOpened{Config: cfg})
	for _, g := range []struct {
		id      string
		rewards []float64
	}{{"g000001", []float64{1, 0}}, {"g000002", []float64{0.5, 1, 0.25}}} {
		p.state(events.GroupOpenedType, g.id, "0", events.GroupOpened{Task: "t", Size: len(g.rewards)})
		var members []events.Member
		for i, reward := range g.rewards {
			m := events.Member{Rollout: events.RolloutID(g.id, i), Reward: reward, Shaped: reward, Advantage: reward}
			p.rollout(g.id, m.Rollout, reward)
			members = append(members, m)
		}
		p.state(events.GroupCompletedType, g.id, "0", events.GroupCompleted{Task: "t", Estimator: "reinforce_plus_plus",
			Members: members, Mean: 0.5})
	}
	p.state(events.RolloutInvalidatedType, "g000002-2", "0", events.RolloutInvalidated{Reason: "leaked"})
	p.annotate("g000001-0", events.RolloutAnnotated{Turn: new(1), Start: new(1), Reward: new(2.), Text: "well seen"})
	p.annotate("g000001-0", events.RolloutAnnotated{Turn: new(7), Reward: new(1.), Text: "of no turn"})
	p.annotate("g000001-1", events.RolloutAnnotated{Text: "of the rollout"})
	p.feed(cfg, 0)
	p.feed(cfg, 1)
	p.annotate("g000001-1", events.RolloutAnnotated{Turn: new(0), Reward: new(9.), Text: "too late"})
	p.state(events.BatchConsumedType, "f", "1", events.BatchConsumed{Step: 1})
	p.fork("g000001-0", "g000003")
	p.steps("g000004")
	p.pieces("g000009")
	return p
}

// pieces states a rollout in flight, whose first turn was sampled in two pieces and an end. A piece
// behind another prompt is no part of it.
func (p *tape) pieces(group string) {
	id := events.RolloutID(group, 0)
	p.state(events.GroupOpenedType, group, "0", events.GroupOpened{Task: "t", Size: 1})
	p.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Task: "t"})
	prompt := []int32{1, 2, 3}
	for i, piece := range []events.PieceSampled{
		{Prompt: events.PromptDigest(prompt[:2]), TokenIDs: []int32{4}},
		{Prompt: events.PromptDigest(prompt), TokenIDs: []int32{7}},
		{Prompt: events.PromptDigest(prompt), TokenIDs: []int32{8}, Offset: 1},
	} {
		piece.Logprobs, piece.VersionSpans = []float32{-float32(i)}, []events.VersionSpan{{End: 1}}
		p.state(events.PieceSampledType, id, "0-"+events.Ordinal(i), piece)
	}
	p.state(events.TurnSampledType, id, "0", events.TurnSampled{PromptDelta: prompt, NewSegment: true,
		TokenIDs: []int32{7, 8, 9}, Logprobs: []float32{-1, -2, -3}})
}

// fork states a group of one fork behind the first turn of a rollout, which goes on in flight.
func (p *tape) fork(origin, group string) {
	from, id := &events.Origin{Rollout: origin, Turn: 0}, events.RolloutID(group, 0)
	turn, _ := events.Data[events.TurnSampled](p.log[p.find(events.TurnSampledType, origin)])
	done, _ := events.Data[events.ToolsCompleted](p.log[p.find(events.ToolsCompletedType, origin)])
	p.state(events.RolloutForkedType, origin, "x", events.RolloutForked{Turn: 0, Count: 1, Task: "t"})
	p.state(events.GroupOpenedType, group, "0", events.GroupOpened{Task: "t", Size: 1, Origin: from})
	p.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Task: "t", Origin: from})
	p.state(events.RolloutCopiedType, id, "0", events.RolloutCopied{Turns: []events.TurnSampled{turn},
		Tools: []events.ToolsCompleted{done}})
	p.state(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1})
}

// steps states a group of one rollout that is in the second step of its task, and in flight.
func (p *tape) steps(group string) {
	id := events.RolloutID(group, 0)
	p.state(events.GroupOpenedType, group, "0", events.GroupOpened{Task: "t", Size: 1})
	p.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Task: "t"})
	p.state(events.TurnSampledType, id, "0", events.TurnSampled{Turn: 0})
	p.state(events.StepFinishedType, id, "0", events.StepFinished{Step: 0, Turns: 1, StopReason: events.StopFinished})
	p.state(events.StepScoredType, id, "0", events.StepScored{Step: 0, Components: map[string]float64{"reward": 1}})
	p.state(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1})
	p.state(events.StepFinishedType, id, "1", events.StepFinished{Step: 1, Turns: 2, StopReason: events.StopFinished})
}

func (p *tape) annotate(rollout string, a events.RolloutAnnotated) {
	p.state(events.RolloutAnnotatedType, rollout, events.Ordinal(len(p.log)), a)
}

// feed states what the feeder decides on what the tape holds.
func (p *tape) feed(cfg runfile.RunConfig, n int) {
	p.t.Helper()
	d := trainerfeeder.NewDecider("r", cfg, cfg.Feeds[n], p.store)
	log := decidertest.New(p.t, "r", d)
	for _, e := range p.log {
		log.Happen(e.Type, e.Entity, e.Data)
	}
	asOf := uint64(len(p.log))
	facts := log.Settle()
	if len(facts) == 0 {
		log.Now = log.Wake // the judge says nothing of some rollout
		facts = log.Settle()
	}
	if n == 0 {
		late, _ := events.Data[events.RolloutScored](p.log[p.find(events.RolloutScoredType, lateHints)])
		p.hints(lateHints, late.Trajectory)
	}
	for _, fact := range facts {
		fact.AsOf = asOf
		p.log = append(p.log, fact)
		p.relink()
	}
}

func (p *tape) rollout(group, id string, reward float64) {
	p.state(events.RolloutStartedType, id, "0", events.RolloutStarted{Group: group, Task: "t"})
	p.state(events.TurnSampledType, id, "0", events.TurnSampled{Turn: 0,
		ToolCalls: []events.ToolCall{{ID: "c0", Name: "grep"}}})
	p.state(events.ToolsCompletedType, id, "0", events.ToolsCompleted{Turn: 0,
		Results: []events.ToolResult{{CallID: "c0"}}})
	p.state(events.TurnSampledType, id, "1", events.TurnSampled{Turn: 1})
	stop := events.StopFinished
	if id == "g000002-0" {
		stop = events.StopMaxTurns
	}
	ref := p.trajectory(group, id, stop)
	p.state(events.RolloutFinishedType, id, "0", events.RolloutFinished{Task: "t", StopReason: stop, Turns: 2,
		Tokens: 6, Sampled: 3, Trajectory: ref})
	p.state(events.RolloutScoredType, id, "0", events.RolloutScored{Reward: reward, Trajectory: ref})
	said := p.blob(string(events.PackLogprobs([][]float32{{0, -0.5, -1}, {0, -2, -3}})))
	p.state(events.TeacherScoredType, id, "big", events.TeacherScored{Teacher: "big", Trajectory: ref.SHA256,
		Tokens: 6, Logprobs: &said})
	if id != lateHints {
		p.hints(id, ref)
	}
}

// lateHints is the rollout of which the judge speaks between the decision on
// its batch and the batch.
const lateHints = "g000002-1"

// hints states what the judge says of a rollout, and its teacher.
func (p *tape) hints(id string, ref storage.Ref) {
	p.state(events.RolloutHintedType, id, "judge", events.RolloutHinted{By: "judge", Trajectory: ref.SHA256,
		Hints: []events.Hint{
			{Start: 2, Length: 1, Text: "Look first."}, {Sample: 1, Start: 2, Length: 1, Text: "Shorter.",
				Tokens: []int32{9}, At: new(0)}}})
	spans := p.blob(string(events.PackLogprobs([][]float32{{-0.25}, {-0.75}})))
	p.state(events.TeacherScoredType, id, "hinted", events.TeacherScored{Teacher: "hinted", Trajectory: ref.SHA256,
		Tokens: 2, Logprobs: &spans})
}

// trajectory stores a trajectory of two samples: two prompt tokens and one
// sampled, then one and two.
func (p *tape) trajectory(group, id, stop string) storage.Ref {
	data, err := storage.EncodeTrajectory(&storage.Trajectory{Run: "r", Group: group, Rollout: id, Task: "t",
		StopReason: stop, Messages: []storage.Message{
			{Role: "user", TokenIDs: []int32{1, 2}, Logprobs: []float32{0, 0},
				LossMask: []bool{false, false}, PolicyVersion: -1},
			{Index: 1, Role: "assistant", TokenIDs: []int32{3}, Logprobs: []float32{-1}, LossMask: []bool{true}},
			{Index: 2, Role: "prompt", Turn: 1, Segment: 1, TokenIDs: []int32{4}, Logprobs: []float32{0},
				LossMask: []bool{false}, PolicyVersion: -1},
			{Index: 3, Role: "assistant", Turn: 1, Segment: 1, TokenIDs: []int32{5, 6}, Logprobs: []float32{-2, -3},
				LossMask: []bool{true, true}},
		}})
	if err != nil {
		p.t.Fatal(err)
	}
	ref, err := storage.PutNamed(p.t.Context(), p.store, "runs/r/trajectories/"+id, ".arrow", data)
	if err != nil {
		p.t.Fatal(err)
	}
	return ref
}

// file changes the file of a rank, as a faulty feeder would have written it.
func (p *tape) file(rank int, change func(*storage.Batch)) {
	p.t.Helper()
	edit(p, events.BatchReadyType, "f", func(d *events.BatchReady) {
		data, err := storage.GetBlob(p.t.Context(), p.store, d.Files[rank])
		if err != nil {
			p.t.Fatal(err)
		}
		b, err := storage.DecodeBatch(data)
		if err != nil {
			p.t.Fatal(err)
		}
		change(b)
		if data, err = storage.EncodeBatch(b); err != nil {
			p.t.Fatal(err)
		}
		d.Files[rank] = p.blob(string(data))
	})
}

func TestGoodRunHasNoFindings(t *testing.T) {
	report := goodRun(t).check()
	if len(report.Findings) > 0 {
		t.Fatalf("findings in a run in which all is well: %v", report.Findings)
	}
	// Five trajectories, two files of the trainer's batch, two of the export's, and what the two
	// teachers said, the same of each rollout.
	if b := report.Feeds[0]; b.Trained != 3 || b.Filtered != 2 || !b.AddsUp() || report.Objects != 11 {
		t.Fatalf("books %+v, %d objects", b, report.Objects)
	}
}
