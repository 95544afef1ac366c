package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestLogIsShown: who looks at a run sees how full its log is, and how far it is archived; of a
// deleted stream nothing is said.
func TestLogIsShown(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecordedWith(t, func(c *runfile.RunConfig) { c.Log.MaxBytes = 64 << 20 })
	show := func() string {
		t.Helper()
		output, err := clitest.Run(t, New, "run", "show", "first", "--dir", r.Dir)
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return output
	}
	if output := show(); !strings.Contains(output, "\nlog: 0.0 MiB of 64 MiB (0.") ||
		!strings.Contains(output, "%), nothing archived\n") {
		t.Errorf("run show: %s", output)
	}
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if output := show(); !strings.Contains(output, "archived to event 1 of 1 at 20") {
		t.Errorf("run show of an archived run: %s", output)
	}
	output, err := clitest.Run(t, New, "run", "show", "first", "--json", "--dir", r.Dir)
	var s RunSummary
	if err != nil || json.Unmarshal([]byte(output), &s) != nil || s.Log == nil || s.Log.MaxBytes != 64<<20 ||
		s.Log.Bytes == 0 || s.Log.Fill <= 0 || s.Log.Archived != 1 {
		t.Errorf("%v: %s", err, output)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if output := show(); strings.Contains(output, "\nlog:") {
		t.Errorf("of a deleted stream: %s", output)
	}
}
