package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// gapHouse is a log with an open run "r" whose feed "trainer" has reached step 2: 100 sampled
// tokens in the first batch, 7 in the second.
func gapHouse(t *testing.T) outsider {
	t.Helper()
	log := house(t)
	servicetest.OpenRun(t, log, "gap", servicetest.Config("a"))
	for i, sampled := range []int64{100, 7} {
		step := int64(i + 1)
		servicetest.Append(t, log, servicetest.Event(t, "gap", events.BatchReadyType, "trainer", events.Ordinal(step),
			events.BatchReady{Step: step, Sampled: sampled}))
	}
	return outsider{t, log, "gap"}
}

// TestLogprobGaps: what a trainer says of its log-probabilities is on the log as it said it, or
// refused with the reason.
func TestLogprobGaps(t *testing.T) {
	o := gapHouse(t)
	start(t, o.log)
	state := func(body string) string {
		return send(t, o.log, submission{subject: events.IntakeSubject("gap", events.BatchConsumedType, "trainer"),
			body: body}).Error
	}
	for name, c := range map[string]struct {
		gap  string
		want []string // parts of the refusal
	}{
		"negative mean":         {`{"mean_abs":-0.1,"max_abs":1,"kl":0,"tokens":1}`, []string{"logprob_gap.mean_abs"}},
		"negative largest":      {`{"mean_abs":0,"max_abs":-1,"kl":0,"tokens":1}`, []string{"logprob_gap.max_abs"}},
		"negative divergence":   {`{"mean_abs":0,"max_abs":0,"kl":-1e-9,"tokens":1}`, []string{"logprob_gap.kl"}},
		"not a number":          {`{"mean_abs":NaN,"max_abs":1,"kl":0,"tokens":1}`, []string{"not JSON"}},
		"infinite":              {`{"mean_abs":1e999,"max_abs":1e999,"kl":0,"tokens":1}`, []string{"logprob_gap.m"}},
		"a text":                {`{"mean_abs":"0.1","max_abs":1,"kl":0,"tokens":1}`, []string{"logprob_gap.mean_abs"}},
		"beyond the bound":      {`{"mean_abs":1,"max_abs":1e300,"kl":0,"tokens":1}`, []string{"logprob_gap.max_abs"}},
		"divergence beyond it":  {`{"mean_abs":1,"max_abs":1,"kl":1e300,"tokens":1}`, []string{"logprob_gap.kl"}},
		"mean over the largest": {`{"mean_abs":2,"max_abs":1,"kl":0,"tokens":1}`, []string{"mean_abs 2", "max_abs 1"}},
		"no token":              {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":0}`, []string{"logprob_gap.tokens"}},
		"fewer than none":       {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":-4}`, []string{"logprob_gap.tokens"}},
		"half a token":          {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":0.5}`, []string{"logprob_gap.tokens"}},
		"more than the batch": {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":101}`,
			[]string{"tokens 101", "only 100 sampled tokens", "step 1"}},
		"a number without end": {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":99999999999999999999}`,
			[]string{"99999999999999999999"}},
		"no divergence":  {`{"mean_abs":0,"max_abs":0,"tokens":1}`, []string{"kl"}},
		"something else": {`{"mean_abs":0,"max_abs":0,"kl":0,"tokens":1,"median":1}`, []string{"median"}},
		"a list":         {`[0.1]`, []string{"logprob_gap"}},
		"a number":       {`0.1`, []string{"logprob_gap"}},
	} {
		answer := state(`{"step":1,"logprob_gap":` + c.gap + `}`)
		if answer == "" {
			t.Errorf("%s: taken in", name)
		}
		for _, part := range c.want {
			if !strings.Contains(answer, part) {
				t.Errorf("%s: the answer %q does not say %q", name, answer, part)
			}
		}
	}
	if answer := state(`{"step":2,"logprob_gap":{"mean_abs":0,"max_abs":0,"kl":0,"tokens":8}}`); !strings.Contains(
		answer, "only 7 sampled tokens") {
		t.Errorf("more tokens than the second batch has: %q", answer)
	}
	if answer := state(`{"step":3,"logprob_gap":{"mean_abs":0,"max_abs":0,"kl":0,"tokens":1}}`); !strings.Contains(
		answer, "has only reached step 2") {
		t.Errorf("of a step that there is not: %q", answer)
	}
	if n := len(servicetest.All(t, o.log, "gap", events.BatchConsumedType)); n != 0 {
		t.Fatalf("%d wrong statements are on the log", n)
	}
	for _, body := range []string{
		`{"step":1}`, // a trainer need not measure it
		`{"step":1,"logprob_gap":{"mean_abs":0,"max_abs":0,"kl":0,"tokens":1}}`,
		// a mean of single precision
		`{"step":1,"logprob_gap":{"mean_abs":0.25000001,"max_abs":0.25,"kl":1e-05,"tokens":100}}`,
		`{"step":2,"logprob_gap":{"mean_abs":0.0125,"max_abs":1000000,"kl":1000000000,"tokens":7}}`,
	} {
		if answer := state(body); answer != "" {
			t.Errorf("%s is refused: %s", body, answer)
		}
	}
	all := servicetest.All(t, o.log, "gap", events.BatchConsumedType)
	want := events.LogprobGap{MeanAbs: 0.0125, MaxAbs: 1e6, KL: 1e9, Tokens: 7}
	if len(all) != 4 || servicetest.Data[events.BatchConsumed](t, all[0]).LogprobGap != nil ||
		*servicetest.Data[events.BatchConsumed](t, all[3]).LogprobGap != want {
		t.Errorf("on the log: %v", servicetest.IDs(all))
	}
}

// TestStaleRollouts: a trainer names rollouts of its batch that it leaves out,
// each once, and no others.
func TestStaleRollouts(t *testing.T) {
	log := house(t)
	servicetest.OpenRun(t, log, "stale", servicetest.Config("a"))
	servicetest.Append(t, log, servicetest.Event(t, "stale", events.BatchReadyType, "trainer", events.Ordinal(1),
		events.BatchReady{Step: 1, Rollouts: []string{"g000001-0", "g000001-1"}}))
	start(t, log)
	state := func(stale string) string {
		return send(t, log, submission{subject: events.IntakeSubject("stale", events.BatchConsumedType, "trainer"),
			body: `{"step":1,"stale":` + stale + `}`}).Error
	}
	for _, wrong := range []string{`["g000002-0"]`, `["g000001-0","g000001-0"]`,
		`["g000001-0","` + strings.Repeat("g", 200) + `"]`} {
		if answer := state(wrong); !strings.Contains(answer, "no rollout of the batch or is named twice") ||
			len(answer) > 300 {
			t.Errorf("%s: %q", wrong, answer)
		}
	}
	if answer := state(`"g000001-0"`); !strings.Contains(answer, "stale") {
		t.Errorf("a text: %q", answer)
	}
	if n := len(servicetest.All(t, log, "stale", events.BatchConsumedType)); n != 0 {
		t.Fatalf("%d wrong statements are on the log", n)
	}
	for _, right := range []string{`[]`, `["g000001-1"]`, `["g000001-1","g000001-0"]`} {
		if answer := state(right); answer != "" {
			t.Errorf("%s is refused: %s", right, answer)
		}
	}
	all := servicetest.All(t, log, "stale", events.BatchConsumedType)
	if len(all) != 3 || len(servicetest.Data[events.BatchConsumed](t, all[2]).Stale) != 2 {
		t.Errorf("on the log: %v", servicetest.IDs(all))
	}
}
