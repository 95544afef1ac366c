package events

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

func ended(verdicts ...map[string]float64) (steps []EndedStep) {
	for i, v := range verdicts {
		steps = append(steps, EndedStep{StepFinished: StepFinished{Step: i, Turns: i + 1},
			Verdict: &StepScored{Step: i, Components: v}})
	}
	return steps
}

func TestCompose(t *testing.T) {
	type parts = map[string]float64
	for name, c := range map[string]struct {
		strategy string
		steps    []EndedStep
		want     parts // nil: an error
	}{
		"one":  {runfile.StrategyMean, ended(parts{"reward": 0.5}), parts{"reward": 0.5}},
		"mean": {"", ended(parts{"reward": 1}, parts{"reward": 0}), parts{"reward": 0.5}},
		"missing is 0": {runfile.StrategyMean, ended(parts{"reward": 1, "style": 1}, parts{"reward": 0.5}),
			parts{"reward": 0.75, "style": 0.5}},
		"final": {runfile.StrategyFinal, ended(parts{"reward": 1, "style": 1}, parts{"reward": 0.5}),
			parts{"reward": 0.5}},
		"thirds":          {"", ended(parts{"reward": 1}, parts{"reward": 1}, parts{"reward": 1}), parts{"reward": 1}},
		"none":            {"", nil, nil},
		"without verdict": {runfile.StrategyFinal, append(ended(parts{"reward": 1}), EndedStep{}), nil},
		"too much":        {"", ended(parts{"reward": math.MaxFloat64}, parts{"reward": math.MaxFloat64}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ComposeSteps(runfile.TaskSpec{RewardStrategy: c.strategy}, c.steps)
			if (err == nil) != (c.want != nil) || err == nil && !maps.Equal(got, c.want) {
				t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
			}
		})
	}
}

func TestPasses(t *testing.T) {
	gate := runfile.StepSpec{MinReward: map[string]float64{"reward": 0.5, "style": 0}}
	for name, c := range map[string]struct {
		components map[string]float64
		want       bool
	}{
		"reached":    {map[string]float64{"reward": 0.5, "style": 0}, true},
		"too low":    {map[string]float64{"reward": 0.4, "style": 1}, false},
		"unreported": {map[string]float64{"reward": 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gate.Passes(c.components); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
	if !(runfile.StepSpec{}).Passes(nil) {
		t.Error("a step without a gate stops")
	}
}

// TestFoldSteps folds a chain with steps, and refuses those that are out of order.
func TestFoldSteps(t *testing.T) {
	link := func(typ Type, ordinal string, data any) Event {
		e, err := New("r", typ, "g000001-0", ordinal, data)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	begin := link(RolloutStartedType, "0", RolloutStarted{})
	calls := []ToolCall{{ID: "c"}}
	first, second := link(TurnSampledType, "0", TurnSampled{}),
		link(TurnSampledType, "1", TurnSampled{Turn: 1, ToolCalls: calls})
	end, verdict := link(StepFinishedType, "0", StepFinished{Turns: 1}), link(StepScoredType, "0", StepScored{})
	r, err := FoldRollout([]Event{begin, first, end, verdict, second})
	if err != nil || len(r.Steps) != 1 || r.StepToScore() != nil || r.StepOf(0) != 0 ||
		r.StepOf(1) != 1 || r.StepBegin(1) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := r.Fork(1, runfile.Limits{Turns: 9, Tokens: 9}); err == nil ||
		!strings.Contains(err.Error(), "of its step 2") {
		t.Errorf("a fork in the second step: %v", err)
	}
	for name, links := range map[string][]Event{
		"verdict on nothing":     {begin, first, verdict},
		"two verdicts":           {begin, first, end, verdict, verdict},
		"end before the verdict": {begin, first, end, link(StepFinishedType, "1", StepFinished{Step: 1, Turns: 1})},
		"second step first":      {begin, first, link(StepFinishedType, "1", StepFinished{Step: 1, Turns: 1})},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := FoldRollout(links); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	// Tries at a verdict, and at the reward behind it, are different ones.
	seen := map[string]bool{}
	for n := range 5 {
		links := []Event{begin, first, end, verdict, second}[:n+1]
		r, err := FoldRollout(links)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := r.Retry(runfile.Limits{Tries: 5}, StageScorer, ClassSandbox, errors.New("x"))
		if err != nil || seen[e.ID] {
			t.Errorf("a try behind %d facts is %s again: %v", n, e.ID, err)
		}
		seen[e.ID] = true
	}
}

// TestStepFilesAreRefs: the first step has none of its own, and another's are an object.
func TestStepFilesAreRefs(t *testing.T) {
	good := storage.Ref{Key: "blobs/a", SHA256: storage.Digest(nil)}
	for name, c := range map[string]struct {
		first, second *storage.Ref
		wrong         int
	}{
		"none": {nil, nil, 0}, "of the second": {nil, &good, 0}, "of the first": {&good, nil, 1},
		"nowhere": {nil, &storage.Ref{Key: "../a", SHA256: good.SHA256}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := 0
			step := runfile.StepSpec{Name: "s", Instruction: "x", Tests: good}
			task := runfile.TaskSpec{Steps: []runfile.StepSpec{step, step}}
			task.Steps[0].Files, task.Steps[1].Files = c.first, c.second
			task.ValidateSteps(func(ok bool, _ string, _ ...any) {
				if !ok {
					wrong++
				}
			})
			if wrong != c.wrong {
				t.Errorf("files %s: %d findings, want %d", name, wrong, c.wrong)
			}
		})
	}
}
