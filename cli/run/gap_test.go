package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
)

// TestLogprobGapsAreShown: by step, the last statement of each, with a warning where the trainer
// is far from the sampler.
func TestLogprobGapsAreShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	show := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append([]string{"run", "show", "first", "--dir", r.Dir}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	n := 0
	consumed := func(feed string, step int64, gap *events.LogprobGap) {
		t.Helper()
		n++
		r.State(events.BatchConsumedType, feed, events.Ordinal(n), events.BatchConsumed{Step: step, LogprobGap: gap})
	}
	consumed("trainer", 1, nil)
	consumed("shadow", 1, &events.LogprobGap{MeanAbs: 7, MaxAbs: 7, Tokens: 1})
	if output := show(); strings.Contains(output, "gap") {
		t.Errorf("the first feed's trainer states none: %s", output)
	}
	consumed("trainer", 1, &events.LogprobGap{MeanAbs: 0.5, MaxAbs: 1.5, KL: 0.125, Tokens: 10})
	consumed("trainer", 1, &events.LogprobGap{MeanAbs: 0.0125, MaxAbs: 0.75, KL: 0.0005, Tokens: 4096})
	if output := show(); strings.Contains(output, "warning") ||
		!strings.Contains(output, "STEP    MEAN  LARGEST      KL  TOKENS") ||
		!strings.Contains(output, "\n   1  0.0125     0.75  0.0005    4096") {
		t.Errorf("shown as %s", output)
	}
	for step := int64(2); step <= 12; step++ {
		consumed("trainer", step, &events.LogprobGap{MeanAbs: 0.1, MaxAbs: 1, Tokens: step})
	}
	consumed("trainer", 13, &events.LogprobGap{MeanAbs: 0.25, MaxAbs: 1, KL: 0.5, Tokens: 13})
	output := show()
	for _, part := range []string{"warning: logprob gap above 0.1 nats at 1 of 13 steps", "\n   4   0.1",
		"\n  13  0.25", "13  !"} {
		if !strings.Contains(output, part) {
			t.Errorf("%q is not in %s", part, output)
		}
	}
	if strings.Contains(output, "\n   3   0.1") {
		t.Errorf("more than the latest steps are shown: %s", output)
	}
	var s RunSummary
	if err := json.Unmarshal([]byte(show("--json")), &s); err != nil || len(s.LogprobGaps) != 13 {
		t.Fatalf("%v: %+v", err, s.LogprobGaps)
	}
	if g := s.LogprobGaps[12]; g.Step != 13 || g.MeanAbs != 0.25 || g.KL != 0.5 || g.Tokens != 13 || !g.Warning ||
		s.LogprobGaps[0].Warning || s.LogprobGaps[0].Tokens != 4096 {
		t.Errorf("as JSON: %+v", s.LogprobGaps)
	}
}
