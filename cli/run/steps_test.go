package run

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
)

// The rows of a finished run are the same from its stream and from its archive.
func TestStepsOfARunThatIsGone(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	for step := range 2 {
		r.Whole(int64(step+1), "fix-a", 0, 1, 0)
		r.Batch("trainer", step+1)
		r.Batch("shadow", step+1)
		r.Consumed("trainer", int64(step+1))
		r.Consumed("shadow", int64(step+1))
	}
	r.State(events.RunClosedType, "first", "0", events.RunClosed{Reason: "done"})
	steps := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append([]string{"run", "steps", "first", "--dir", r.Dir}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	before := steps("--json")
	if strings.Count(before, `"kind":"step"`) != 2 ||
		!strings.HasSuffix(before, `{"complete":true,"kind":"end"}`+"\n") {
		t.Errorf("rows:\n%s", before)
	}
	if followed := steps("--json", "--follow"); followed != before { // and it ends
		t.Errorf("followed:\n%s", followed)
	}
	if table := steps(); !strings.HasPrefix(table, "STEP  TAKEN") || strings.Count(table, "\n") != 3 {
		t.Errorf("table:\n%s", table)
	}
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if after := steps("--json", "--follow"); after != before {
		t.Errorf("from the archive:\n%s\nfrom the log:\n%s", after, before)
	}
}
