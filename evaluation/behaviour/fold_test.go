package behaviour

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestRows: rows are those of the version at dispatch, and count scored rollouts alone.
func TestRows(t *testing.T) {
	w := &written{TB: t}
	w.open(nil)
	w.start("g000001-0", 0)
	w.start("g000001-1", 0)
	w.start("g000002-0", 3)
	w.start("g000002-1", 3)
	w.start("g000002-2", 3)
	w.sampled("g000001-0", events.TurnSampled{CompletionTokens: 100, PolicyVersion: 3,
		ToolCalls: calls([]string{"grep", "read_file"}), Reasoning: &events.Reasoning{Text: "ünö"}})
	w.answer("g000001-0", "", "grep", "!read_file")
	w.turn("g000001-0", 20)
	w.turn("g000001-1", 40)
	w.score("g000001-0", 1)
	w.score("g000001-1", 0)
	w.turn("g000002-0", 7)
	w.score("g000002-0", 0.5)
	w.turn("g000002-1", 1000)
	w.event(events.RolloutFailedType, "g000002-1", events.RolloutFailed{Stage: "tools", Class: "sandbox"})
	w.turn("g000002-2", 1000)
	rows := w.fold().Rows()
	if len(rows) != 2 {
		t.Fatalf("%+v", rows)
	}
	first, second := rows[0], rows[1]
	same(t, "versions", []int64{first.FirstVersion, first.LastVersion, second.FirstVersion, second.LastVersion},
		[]int64{0, 0, 3, 3})
	same(t, "counts", []int{first.Started, first.Scored, first.Failed, first.InFlight}, []int{2, 2, 0, 0})
	same(t, "counts of version 3", []int{second.Started, second.Scored, second.Failed, second.InFlight},
		[]int{3, 1, 1, 1})
	same(t, "turns", first.Turns, &Figure{Rollouts: 2, Mean: 1.5, Median: 1, P90: 2})
	same(t, "tokens", first.SampledTokens, &Figure{Rollouts: 2, Mean: 80, Median: 40, P90: 120})
	same(t, "tokens of version 3", second.SampledTokens, &Figure{Rollouts: 1, Mean: 7, Median: 7, P90: 7})
	same(t, "reasoning", first.ReasoningCharacters, &Figure{Rollouts: 2, Mean: 1.5, Median: 0, P90: 3})
	if !near(first.ReasoningTurnShare, 1./3) || !near(second.ReasoningTurnShare, 0) {
		t.Error("shares of turns with reasoning:", spelled(first.ReasoningTurnShare),
			spelled(second.ReasoningTurnShare))
	}
	if !near(first.CallsPerTurn, 2) || !near(first.ParallelTurnShare, 1) || !near(first.FailedCallShare, 0.5) ||
		second.CallsPerTurn != nil || second.FailedCallShare != nil {
		t.Errorf("calls: %s, %s, %s", spelled(first.CallsPerTurn), spelled(first.ParallelTurnShare),
			spelled(first.FailedCallShare))
	}
	if !near(first.Reward, 0.5) || !near(second.Reward, 0.5) {
		t.Error("rewards:", spelled(first.Reward), spelled(second.Reward))
	}
	same(t, "stop reasons", first.StopReasons, map[string]int{"finished": 2})
}

// TestUnsaid: what the log does not say is absent, and no 0.
func TestUnsaid(t *testing.T) {
	t.Run("tokens", func(t *testing.T) {
		w := &written{TB: t}
		w.open(nil)
		w.start("g000001-0", 0)
		w.turn("g000001-0", 90)
		w.sampled("g000001-0", events.TurnSampled{TextOnly: true}) // nor is the half that is known
		w.event(events.RolloutFinishedType, "g000001-0", events.RolloutFinished{Samples: 1, TextOnly: true})
		w.event(events.RolloutScoredType, "g000001-0", events.RolloutScored{})
		row := w.row()
		if row.SampledTokens != nil || row.Samples != nil || row.ReasoningTurnShare != nil ||
			row.ReasoningCharacters != nil || row.StopReasons != nil || row.Effort != nil || row.LengthPenalty != nil {
			t.Errorf("%+v", row)
		}
		same(t, "turns", row.Turns, &Figure{Rollouts: 1, Mean: 2, Median: 2, P90: 2})
	})
	t.Run("tokens that nobody counted", func(t *testing.T) {
		for _, n := range []int{3, 40} { // these are packed
			w := &written{TB: t}
			w.open(nil)
			w.start("g000001-0", 0)
			w.sampled("g000001-0", events.TurnSampled{TokenIDs: make([]int32, n), Logprobs: make([]float32, n)})
			w.score("g000001-0", 0)
			same(t, "tokens", w.row().SampledTokens, &Figure{Rollouts: 1, Mean: float64(n),
				Median: int64(n), P90: int64(n)})
		}
	})
	t.Run("a run that only began", func(t *testing.T) {
		w := &written{TB: t}
		w.open(nil)
		same(t, "rows", w.fold().Rows(), []Row{})
		w.start("g000001-0", 2)
		same(t, "row", w.row(), Row{FirstVersion: 2, LastVersion: 2, Started: 1, InFlight: 1})
	})
}

// TestCallsBeforeEdit: the first edit is the first call of a turn that changed the workspace
// whose tool may change it.
func TestCallsBeforeEdit(t *testing.T) {
	const id = "g000001-0"
	renamed := func(c *runfile.RunConfig) {
		c.Tools.Rename = map[string]string{"write": "create_file"}
		c.Tools.Set = toolset.Composer
	}
	for name, c := range map[string]struct {
		config func(*runfile.RunConfig)
		write  func(w *written)
		want   int64 // -1 for unknown
	}{
		"at once": {nil, func(w *written) { w.answer(id, "a", "write") }, 0},
		"behind reads": {nil, func(w *written) {
			w.answer(id, "", "grep", "read_file")
			w.answer(id, "a", "read_file", "search_replace", "write")
		}, 3},
		"a second edit": {nil, func(w *written) {
			w.answer(id, "a", "grep",
				"write")
			w.answer(id, "b", "write")
		}, 1},
		"a command that only reads": {nil, func(w *written) {
			w.answer(id, "", "run_terminal_cmd")
			w.answer(id,
				"a", "run_terminal_cmd")
		}, 1},
		"an edit that failed": {nil, func(w *written) {
			w.answer(id, "", "!search_replace")
			w.answer(id,
				"a", "search_replace")
		}, 1},
		"never":                    {nil, func(w *written) { w.answer(id, "", "grep") }, -1},
		"a tool that is not there": {nil, func(w *written) { w.answer(id, "a", "!edit", "write") }, 1},
		"by another name": {renamed, func(w *written) {
			w.answer(id, "a", "grep", "write",
				"create_file")
		}, 2},
		"notes are no edit": {renamed, func(w *written) {
			w.answer(id, "a", "todo_write",
				"run_terminal_cmd")
		}, 1},
		"left in the background": {nil, func(w *written) {
			w.answer(id, "",
				"run_terminal_cmd")
			w.answer(id, "a", "grep")
		}, -1},
		"a tool of the run's own": {func(c *runfile.RunConfig) {
			c.Tools.Add = []toolset.Added{{Name: "fmt",
				Command: []string{"fmt"}}}
		}, func(w *written) { w.answer(id, "a", "grep", "fmt") }, 1},
		"a set that is not known": {func(c *runfile.RunConfig) { c.Tools.Set = "later" },
			func(w *written) { w.answer(id, "a", "write") }, -1},
		"files of a step are no edit": {nil, func(w *written) {
			laid(w, id, "laid")
			w.answer(id, "laid",
				"grep")
			w.answer(id, "a", "write")
		}, 1},
		"an edit before a step is ended": {nil, func(w *written) {
			w.answer(id, "a", "write")
			laid(w, id,
				"laid")
			w.answer(id, "b", "grep", "write")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := &written{TB: t}
			w.open(c.config)
			w.start(id, 0)
			c.write(w)
			w.score(id, 0)
			got := int64(-1)
			if f := w.row().CallsBeforeEdit; f != nil {
				got = f.Median
			}
			same(t, "calls before the first edit", got, c.want)
		})
	}
	t.Run("forks and outsiders", func(t *testing.T) {
		w := &written{TB: t}
		w.open(nil)
		w.event(events.RolloutStartedType, "g000002-0", events.RolloutStarted{Origin: &events.Origin{Rollout: id}})
		w.event(events.RolloutCopiedType, "g000002-0",
			events.RolloutCopied{Turns: []events.TurnSampled{{CompletionTokens: 9}}})
		w.start(events.ExternalPrefix+"1-0", 0)
		for _, id := range []string{"g000002-0", events.ExternalPrefix + "1-0"} {
			w.turn(id, 5, "write")
			w.answer(id, "a", "write")
			w.score(id, 0)
		}
		row := w.row()
		if row.CallsBeforeEdit != nil {
			t.Errorf("calls before the first edit: %+v", row.CallsBeforeEdit)
		}
		same(t, "turns", row.Turns, &Figure{Rollouts: 2, Mean: 1, Median: 1, P90: 1})
		same(t, "tokens", row.SampledTokens, &Figure{Rollouts: 2, Mean: 5, Median: 5, P90: 5})
	})
}

func laid(w *written, id, workspace string) {
	w.event(events.StepFinishedType, id, events.StepFinished{})
	w.event(events.StepScoredType, id, events.StepScored{Workspace: change(workspace)})
}

// TestSamples: samples are those of the trajectory, and later ones begin for a cause, of which a
// later version may know others.
func TestSamples(t *testing.T) {
	w := &written{TB: t}
	w.open(nil)
	w.start("g000001-0", 0)
	for i, cause := range []string{"", events.CauseThoughts, events.CauseThoughts, events.CauseDrift, "later"} {
		w.sampled("g000001-0", events.TurnSampled{Turn: i, CompletionTokens: 1, NewSegment: true, SegmentCause: cause})
	}
	for i, rule := range []string{"titles", "small", "titles", "kept"} {
		w.sampled("g000001-0", events.TurnSampled{Turn: 5 + i, CompletionTokens: 10,
			Conversation: &events.Conversation{Rule: rule, Masked: rule != "kept"}})
	}
	w.sampled("g000001-0", events.TurnSampled{Turn: 9, CompletionTokens: 7, TextOnly: true,
		Conversation: &events.Conversation{Rule: "small", Masked: true, Model: "small-1"}})
	w.event(events.RolloutFinishedType, "g000001-0", events.RolloutFinished{Samples: 5, Sampled: 14, Constrained: 1,
		StopReason: events.StopContext})
	w.event(events.RolloutScoredType, "g000001-0", events.RolloutScored{})
	row := w.row()
	same(t, "samples", row.Samples, &Figure{Rollouts: 1, Mean: 5, Median: 5, P90: 5})
	same(t, "trainable", row.TrainableShare, new(13./52))
	same(t, "masked", row.MaskedTokens, map[string]int{"titles": 20, "small": 17})
	same(t, "other models", row.OtherModels, map[string]int{"small-1": 7})
	same(t, "new samples", row.NewSamples, map[string]int{"thoughts": 2, "drift": 1, "later": 1})
	same(t, "stop reasons", row.StopReasons, map[string]int{"context": 1})
}

// TestEffort: what the effort penalty takes is the reward without it, by the run's own scoring.
func TestEffort(t *testing.T) {
	threshold := 0.5
	for name, c := range map[string]struct {
		scoring    runfile.Scoring
		scored     events.RolloutScored
		mean, less float64
	}{
		"weighted": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -0.5}},
			events.RolloutScored{Reward: 0.875, Components: map[string]float64{"reward": 1, "effort": 0.25}}, 0.25,
			-0.125},
		"no weight": {runfile.Scoring{}, events.RolloutScored{Reward: 1,
			Components: map[string]float64{"reward": 1, "effort": 0.25}}, 0.25, 0},
		"a threshold": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -1}, Threshold: &threshold},
			events.RolloutScored{Components: map[string]float64{"reward": 1, "effort": 0.75}}, 0.75, -1},
		"a forfeit": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -0.5}},
			events.RolloutScored{Reward: -0.25, Forfeit: &events.Forfeit{Class: "oom"},
				Components: map[string]float64{"reward": 0, "effort": 0.5}}, 0.5, -0.25},
	} {
		t.Run(name, func(t *testing.T) {
			w := &written{TB: t}
			w.open(func(cfg *runfile.RunConfig) { cfg.Scorer = c.scoring })
			w.start("g000001-0", 0)
			w.event(events.RolloutScoredType, "g000001-0", c.scored)
			w.start("g000001-1", 0)
			// nothing was measured of it
			w.event(events.RolloutScoredType, "g000001-1",
				events.RolloutScored{Components: map[string]float64{"reward": 0}})
			same(t, "effort", w.row().Effort, &Effort{Rollouts: 1, Mean: c.mean, RewardChange: c.less})
		})
	}
}

// TestLengthPenalty: what shaping takes from rewards counts once groups are complete, and not
// where rewards are shuffled.
func TestLengthPenalty(t *testing.T) {
	write := func(change func(*runfile.RunConfig)) Row {
		w := &written{TB: t}
		w.open(func(cfg *runfile.RunConfig) { cfg.Shaping.Length = &runfile.LengthPenalty{Turns: 1}; change(cfg) })
		for _, id := range []string{"g000001-0", "g000001-1", "g000001-2", "g000002-0"} {
			w.start(id, 4)
			w.score(id, 1)
		}
		w.event(events.GroupCompletedType, "g000001", events.GroupCompleted{Members: []events.Member{
			{Rollout: "g000001-0", Reward: 1, Shaped: 0.75}, {Rollout: "g000001-1", Reward: 1, Shaped: 0.5},
			{Rollout: "g000001-2", Failed: true},
		}})
		return w.fold().Rows()[0]
	}
	if got := write(func(*runfile.RunConfig) {}).LengthPenalty; !near(got, -0.375) {
		t.Error("length penalty", spelled(got))
	}
	for name, change := range map[string]func(*runfile.RunConfig){
		"shuffled": func(c *runfile.RunConfig) { c.Advantage.ShuffleRewards = true },
		"unshaped": func(c *runfile.RunConfig) { c.Shaping.Length = nil },
	} {
		if got := write(change).LengthPenalty; got != nil {
			t.Errorf("%s: a length penalty of %g", name, *got)
		}
	}
}

// TestStrangeEvents: an event that cannot be read is an error that names it; others
// do not belong to the fold.
func TestStrangeEvents(t *testing.T) {
	w := &written{TB: t}
	w.open(nil)
	w.turn("g000009-0", 5) // of a rollout that never started
	w.start("g000001-0", 1)
	w.start("g000001-0", 1)
	w.event(events.RolloutInvalidatedType, "g000001-0", events.RolloutInvalidated{Reason: "x"})
	w.event(events.Type("rollout.unheard_of"), "g000001-0", map[string]int{})
	same(t, "row", w.row(), Row{FirstVersion: 1, LastVersion: 1, Started: 1, InFlight: 1})
	f := w.fold()
	e := w.list[1]
	for _, typ := range []events.Type{events.TurnSampledType, events.ToolsCompletedType, events.StepScoredType,
		events.RolloutFinishedType, events.RolloutScoredType, events.RunOpenedType} {
		e.Type, e.Entity, e.Data = typ, "g000001-0", []byte(`{"turn": `)
		if err := apply(f, e); err == nil || !strings.Contains(err.Error(), e.ID) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}
