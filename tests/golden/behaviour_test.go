package golden

import (
	"testing"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/ledger"
)

// behaviour folds a recorded run.
func (r *recording) behaviour() []behaviour.Row {
	r.Helper()
	f := behaviour.New()
	if _, err := ledger.Read(r.Context(), r.log, r.run, f.Apply); err != nil {
		r.Fatal(err)
	}
	return f.Rows()
}

// TestRecordedBehaviour: how the agents of recorded runs behave is what their attempts say, which an evaluation counts in another way.
func TestRecordedBehaviour(t *testing.T) {
	for name, want := range map[string][]behaviour.Row{
		"v1": {{Started: 8, Scored: 8, Turns: &behaviour.Figure{Mean: 8, Median: 8, P90: 8}, CallsBeforeEdit: &behaviour.Figure{Rollouts: 3, Mean: 74. / 3, Median: 13, P90: 60}}},
		"v2": {{Started: 16, Scored: 16, Turns: &behaviour.Figure{Mean: 7.5, Median: 8, P90: 8}}, {FirstVersion: 1, Started: 8, Scored: 8, Turns: &behaviour.Figure{Mean: 6.625, Median: 8, P90: 8}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := restored(t, name)
			rows := r.behaviour()
			if len(rows) != len(want) {
				t.Fatalf("%d rows", len(rows))
			}
			recorded, err := evaluation.ReadRecorded(r.Context(), r.log, r.run)
			if err != nil {
				t.Fatal(err)
			}
			attempts, _ := recorded.Attempts()
			for i, row := range rows {
				compare(t, row, want[i], attempts)
			}
		})
	}
}

// compare compares a row with what is wanted and with the attempts of its version.
func compare(t *testing.T, row, want behaviour.Row, attempts []evaluation.Attempt) {
	t.Helper()
	if row.FirstVersion != want.FirstVersion || row.LastVersion != row.FirstVersion || row.Started != want.Started || row.Scored != want.Scored || row.Failed+row.InFlight > 0 {
		t.Errorf("the counts of version %d: %+v", want.FirstVersion, row)
	}
	if got := *row.Turns; got.Mean != want.Turns.Mean || got.Median != want.Turns.Median || got.P90 != want.Turns.P90 {
		t.Errorf("version %d: turns %+v", want.FirstVersion, got)
	}
	if got := row.CallsBeforeEdit; (got == nil) != (want.CallsBeforeEdit == nil) || got != nil && *got != *want.CallsBeforeEdit {
		t.Errorf("version %d: calls before the first edit %+v", want.FirstVersion, got)
	}
	n, turns, sampled, calls, failures, reward := 0, 0, 0, 0, 0, 0.0
	for _, a := range attempts {
		if a.Behaviour.Version == row.FirstVersion {
			n, turns, sampled, calls, failures, reward = n+1, turns+a.Turns, sampled+a.Sampled, calls+a.ToolCalls, failures+a.ToolFailures, reward+a.Reward
		}
	}
	mean := func(sum int) float64 { return float64(sum) / float64(n) }
	if sampled > 0 && row.SampledTokens.Mean != mean(sampled) { // the ends of rollouts did not always count them
		t.Errorf("version %d: tokens %+v, want %g", row.FirstVersion, row.SampledTokens, mean(sampled))
	}
	if n != row.Scored || row.Turns.Mean != mean(turns) || *row.Reward != reward/float64(n) || *row.FailedCallShare != float64(failures)/float64(calls) {
		t.Errorf("version %d: %d attempts, of %d calls %d failed: %+v", row.FirstVersion, n, calls, failures, row)
	}
	if row.ReasoningTurnShare != nil || row.ReasoningCharacters != nil || row.Effort != nil || row.LengthPenalty != nil {
		t.Errorf("version %d has what its time recorded none of: %+v", row.FirstVersion, row)
	}
}
