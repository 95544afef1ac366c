package golden

import (
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// behaviour folds a recorded run.
func (r *recording) behaviour() []behaviour.Row {
	r.Helper()
	l := books.New(r.run)
	f := behaviour.New(&l.Rollouts)
	if err := l.Read(r.Context(), r.log.Reader, f.Apply); err != nil {
		r.Fatal(err)
	}
	return f.Rows()
}

// TestRecordedBehaviour: how the agents of a recorded run behave is what their attempts say, which
// an evaluation counts in another way.
func TestRecordedBehaviour(t *testing.T) {
	want := []behaviour.Row{
		{Started: 16, Scored: 16, Turns: &behaviour.Figure{Mean: 11.3125, Median: 12, P90: 12},
			CallsBeforeEdit: &behaviour.Figure{Rollouts: 1, Mean: 35, Median: 35, P90: 35}},
		{FirstVersion: 1, Started: 8, Scored: 8, Turns: &behaviour.Figure{Mean: 11.875, Median: 12, P90: 12}},
	}
	r := restored(t, "v1")
	rows := r.behaviour()
	if len(rows) != len(want) {
		t.Fatalf("%d rows", len(rows))
	}
	recorded, err := evaluation.ReadRecorded(r.Context(), r.log.Reader, r.run)
	if err != nil {
		t.Fatal(err)
	}
	attempts, _ := recorded.Attempts()
	for i, row := range rows {
		compare(t, row, want[i], attempts)
	}
}

// compare compares a row with what is wanted and with the attempts of its version.
func compare(t *testing.T, row, want behaviour.Row, attempts []evaluation.Attempt) {
	t.Helper()
	if row.FirstVersion != want.FirstVersion || row.LastVersion != row.FirstVersion || row.Started != want.Started ||
		row.Scored != want.Scored || row.Failed+row.InFlight > 0 {
		t.Errorf("the counts of version %d: %+v", want.FirstVersion, row)
	}
	if got := *row.Turns; got.Mean != want.Turns.Mean || got.Median != want.Turns.Median || got.P90 != want.Turns.P90 {
		t.Errorf("version %d: turns %+v", want.FirstVersion, got)
	}
	if got := row.CallsBeforeEdit; (got == nil) != (want.CallsBeforeEdit == nil) ||
		got != nil && *got != *want.CallsBeforeEdit {
		t.Errorf("version %d: calls before the first edit %+v", want.FirstVersion, got)
	}
	n, turns, sampled, calls, failures, reward := 0, 0, 0, 0, 0, 0.0
	for _, a := range attempts {
		if a.Behaviour.Version == row.FirstVersion {
			n, turns, sampled, calls, failures, reward = n+1, turns+a.Turns, sampled+a.Sampled, calls+a.ToolCalls,
				failures+a.ToolFailures, reward+a.Reward
		}
	}
	mean := func(sum int) float64 { return float64(sum) / float64(n) }
	if row.SampledTokens.Mean != mean(sampled) {
		t.Errorf("version %d: tokens %+v, want %g", row.FirstVersion, row.SampledTokens, mean(sampled))
	}
	if n != row.Scored || row.Turns.Mean != mean(turns) || *row.Reward != reward/float64(n) ||
		*row.FailedCallShare != float64(failures)/float64(calls) {
		t.Errorf("version %d: %d attempts, of %d calls %d failed: %+v", row.FirstVersion, n, calls, failures, row)
	}
	if row.ReasoningTurnShare != nil || row.ReasoningCharacters != nil || row.Effort != nil ||
		row.LengthPenalty != nil {
		t.Errorf("version %d has what the built-in policy has none of: %+v", row.FirstVersion, row)
	}
}
