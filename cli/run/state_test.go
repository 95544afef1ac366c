package run

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestPauseAndResume follows a run through its states, as an operator sees them.
func TestPauseAndResume(t *testing.T) {
	r := clitest.NewRecorded(t, intake.Run)
	command := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append(args, "--dir", r.Dir)...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return output
	}
	shown := func(state, reason string) {
		t.Helper()
		var s RunSummary
		if err := json.Unmarshal([]byte(command("run", "show", "first", "--json")), &s); err != nil {
			t.Fatal(err)
		}
		if s.State != state || s.Reason != reason {
			t.Errorf("the run is %s (%s), want %s (%s)", s.State, s.Reason, state, reason)
		}
		if output := command("run", "show", "first"); !strings.Contains(output, "run first is "+state) ||
			reason != "" && !strings.Contains(output, state+": "+reason) {
			t.Errorf("it is shown as %s", output)
		}
	}
	shown("open", "")
	if output := command("run", "pause", "first", "--reason", "the server moves"); output != "run first is paused\n" {
		t.Errorf("pausing prints %q", output)
	}
	shown("paused", "the server moves")
	command("run", "resume", "first")
	shown("open", "")
	command("run", "pause", "first")
	shown("paused", "paused by the operator")
	command("run", "close", "first")
	shown("closed", "closed by the operator")
	for _, args := range [][]string{{"run", "pause", "first"}, {"run", "resume", "first"}} {
		if _, err := clitest.Run(t, New, append(args, "--dir", r.Dir)...); err == nil ||
			!strings.Contains(err.Error(), "run first is closed") {
			t.Errorf("%v of a closed run: %v", args, err)
		}
	}
	if _, err := clitest.Run(t, New, "run", "pause", "second", "--dir", r.Dir); err == nil ||
		!strings.Contains(err.Error(), "rondo run list") {
		t.Errorf("pausing a run that is not there: %v", err)
	}
}

// TestOpenAnExternalRun needs neither tasks nor an endpoint.
func TestOpenAnExternalRun(t *testing.T) {
	r := clitest.NewRecorded(t, intake.Run)
	file := clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"), "policy: p\nexternal: true\n")
	if _, err := clitest.Run(t, New, "run", "open", "outside", "--file", file, "--dir", r.Dir); err != nil {
		t.Fatal(err)
	}
	opened := servicetest.WaitData[events.RunOpened](t, r.Log, "outside", events.RunOpenedType, "outside")
	if c := opened.Config; !c.External || len(c.Tasks) != 0 || c.Endpoint != "" {
		t.Errorf("opened as %+v", c)
	}
}
