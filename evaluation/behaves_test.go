package evaluation

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// behavedReport compares two policies, of which the second neither thinks nor
// edits, and follows the first.
func behavedReport(t *testing.T) Report {
	t.Helper()
	edit := int64(3)
	attempt := func(rollout string, reward float64, did behaviour.Rollout) Attempt {
		did.Reward, did.Turns, did.Samples = reward, 4, 1
		return Attempt{Rollout: rollout, Task: "fix", Reward: reward, Turns: 4, StopReason: "finished", Behaviour: &did}
	}
	a := []Attempt{
		attempt("g000001-0", 1, behaviour.Rollout{SampledTokens: 900, ThinkingTurns: 4, Characters: 2000,
			CallingTurns: 2, ParallelTurns: 1, Calls: 3, Answered: 3, FailedCalls: 1, CallsBeforeEdit: &edit}),
		attempt("g000001-1", 0, behaviour.Rollout{SampledTokens: 300, ThinkingTurns: 2,
			NewSamples: map[string]int{"drift": 2}}),
		{Rollout: "g000001-2", Task: "fix", Failed: true, Behaviour: &behaviour.Rollout{Failed: true, Turns: 50}},
		{Rollout: "g000001-3", Task: "fix"}, // nobody knows what it did
	}
	b := []Attempt{attempt("g000002-0", 1, behaviour.Rollout{SampledTokens: 100})}
	r := Report{Title: "x", When: when}
	for name, attempts := range map[string][]Attempt{"new": a, "old": b} {
		s, err := Summarise(name, attempts, Options{Resamples: 100})
		if err != nil {
			t.Fatal(err)
		}
		r.Summaries = append(r.Summaries, s)
	}
	if r.Summaries[0].Name == "old" {
		r.Summaries[0], r.Summaries[1] = r.Summaries[1], r.Summaries[0]
	}
	r.Curve = []CurvePoint{r.Summaries[1].Point(1, "eval-v1", when), r.Summaries[0].Point(2, "eval-v2", when)}
	return r
}

const behavedMarkdown = "## Behaviour\n\nMeans for each scored attempt, with medians in parentheses. Every attempt counts once, not every task.\n\n" +
	"|  | `new` | `old` |\n|---|--:|--:|\n" +
	"| turns | 4.0 (4) | 4.0 (4) |\n" +
	"| sampled tokens | 600 (300) | 100 (100) |\n" +
	"| turns with reasoning | 75% | – |\n" +
	"| characters of reasoning | 1000 (0) | – |\n" +
	"| tool calls in a turn that has any | 1.50 | – |\n" +
	"| of these turns, those with several calls | 50% | – |\n" +
	"| tool calls before the first one that changed the workspace | 3.0 (3) | – |\n" +
	"| failed tool calls | 33% | – |\n" +
	"| training samples | 1.0 (1) | 1.0 (1) |\n" +
	"| of the sampled tokens, those that can be trained on | 0% | 0% |\n" +
	"| why later samples began | `drift 2` | `–` |\n"

// TestBehaviourBesideEachOther: a report has the behaviour of both sides beside each other,
// and that of every version.
func TestBehaviourBesideEachOther(t *testing.T) {
	r := behavedReport(t)
	if got := r.Summaries[0].Behaviour; got.Started != 3 || got.Scored != 2 || got.Failed != 1 || *got.Reward != 0.5 {
		t.Errorf("counted: %+v", got)
	}
	var b bytes.Buffer
	if err := WriteMarkdown(&b, r); err != nil || !strings.Contains(b.String(), behavedMarkdown) {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), behavedMarkdown)
	}
	_, byVersion, found := strings.Cut(b.String(), "## Behaviour by version\n")
	if !found || !strings.Contains(byVersion, "| 1 | 4.0 (4) | 100 (100) | – |") ||
		!strings.Contains(byVersion, "| 2 | 4.0 (4) | 600 (300) | 75% |") {
		t.Errorf("by version: %s", byVersion)
	}
	b.Reset()
	if err := WriteMarkdown(&b, report(t)); err != nil || strings.Contains(b.String(), "Behaviour") {
		t.Errorf("a report of attempts of which nobody knows what they did: %v\n%s", err, b.String())
	}
}

// TestBehaviourScoredAgain: rewards are those of the evaluation; what effort changed the recorded
// ones by says nothing about them.
func TestBehaviourScoredAgain(t *testing.T) {
	did := behaviour.Rollout{Reward: 0.5, Turns: 2, Effort: &behaviour.RolloutEffort{Effort: 1, RewardChange: -0.5}}
	failed := behaviour.Rollout{Failed: true, Turns: 6}
	for name, c := range map[string]struct {
		attempts         []Attempt
		reward           float64
		turns            int64
		effort           bool
		scored, gaveNone int
	}{
		"as recorded": {[]Attempt{{Reward: 0.5, Behaviour: &did}, {Failed: true, Behaviour: &failed}}, 0.5, 2, true,
			1, 1},
		"another reward": {[]Attempt{{Reward: 1, Behaviour: &did}}, 1, 2, false, 1, 0},
		"scored at last": {[]Attempt{{Reward: 1, Behaviour: &failed}}, 1, 6, false, 1, 0},
		"failed now":     {[]Attempt{{Failed: true, Behaviour: &did}, {Reward: 1, Behaviour: &did}}, 1, 2, false, 1, 1},
	} {
		row := behaved(c.attempts)
		if row.Scored != c.scored || row.Failed != c.gaveNone || *row.Reward != c.reward ||
			row.Turns.Median != c.turns || (row.Effort != nil) != c.effort {
			t.Errorf("%s: %+v", name, row)
		}
	}
	if did.Reward != 0.5 || did.Effort == nil {
		t.Error("what was recorded has changed")
	}
}
