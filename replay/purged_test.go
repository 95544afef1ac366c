package replay

import (
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// TestVerifyAndAuditPurgedRun: what has left a run's stream is audited and decided again as before
// it left, and services go on behind it.
func TestVerifyAndAuditPurgedRun(t *testing.T) {
	r := clitest.NewRecordedWith(t, func(cfg *runfile.RunConfig) {
		cfg.Log = runfile.Log{MaxBytes: 64 << 10,
			Keep: runfile.KeepOpen}
	}, clitest.Deciding...)
	r.Group(100, "fix-b", 1, 0) // stays open
	steps := 0
	for round := range 3 {
		for range 2 {
			steps++
			r.Whole(int64(steps), "fix-a", 0, 1, 0)
			r.Batch("trainer", steps)
			r.Consumed("trainer", int64(steps))
			r.Batch("shadow", steps)
			r.Consumed("shadow", int64(steps))
		}
		if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
			t.Fatal(err)
		}
		audited, verified := readAgain(t, r.Log)
		if verified.Checked[topology.TrainerFeeder+"/trainer"] < steps ||
			verified.Checked[topology.AdvantageCalculator] < steps {
			t.Fatalf("%d steps, and decided again are %v", steps, verified.Checked)
		}
		if n, err := r.Log.Archive.PurgeEnded(t.Context(), "first"); err != nil || n == 0 {
			t.Fatalf("round %d: %d rollouts left the stream, %v", round, n, err)
		}
		if has, err := r.Log.Has(t.Context(), "first",
			events.Event{Run: "first", Type: events.RolloutStartedType, Entity: "g000001-0"}.Subject()); err != nil ||
			has {
			t.Fatalf("the first rollout is on the stream: %v, %v", has, err)
		}
		auditedNow, verifiedNow := readAgain(t, r.Log)
		if !reflect.DeepEqual(audited, auditedNow) {
			t.Errorf("round %d: the audit says %+v after the purge, and said %+v", round, auditedNow, audited)
		}
		if !reflect.DeepEqual(verified, verifiedNow) {
			t.Errorf("round %d: decided again it is %+v after the purge, and was %+v", round, verifiedNow, verified)
		}
		fact, err := r.Log.Archive.PurgedFact(t.Context(), "first")
		if err != nil || fact == nil {
			t.Fatalf("nothing says that events have left the stream: %v", err)
		}
		if _, _, err := r.Log.Appender.Append(t.Context(), *fact); err != nil {
			t.Fatal(err)
		}
	}
}

// readAgain audits a run and decides it again, and finds nothing wrong.
func readAgain(t *testing.T, log *eventlog.Log) (audit.Report, Verification) {
	t.Helper()
	audited, err := audit.Check(t.Context(), log.Reader, "first")
	if err != nil || len(audited.Findings) > 0 {
		t.Fatalf("%+v, %v", audited.Findings, err)
	}
	verified, err := Verify(t.Context(), log.Reader, "first", func(uint64) {})
	if err != nil || verified.Differences > 0 {
		t.Fatalf("%+v, %v", verified, err)
	}
	return audited, verified
}
