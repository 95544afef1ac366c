package product

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/program"
)

// section is a part of README.md: its commands, and what it says that they print, "" for nothing.
func section(t *testing.T, title string) (commands []string, printed string) {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root, "examples/product/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(readme), "\n## "+title+"\n")
	text, _, ended := strings.Cut(text, "\n## ")
	if !found || !ended {
		t.Fatalf("README.md has no section %q", title)
	}
	for _, block := range regexp.MustCompile("(?s)```(sh|text)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if block[1] == "text" {
			return commands, block[2] // the commands behind it are about another product
		}
		commands = append(commands, strings.Split(strings.TrimSpace(block[2]), "\n")...)
	}
	return commands, ""
}

// figures are those parts of lines that may come out a little differently on another machine. The
// run is closed over the last session's rollout, which may have its group by then.
var figures = regexp.MustCompile(`\d+ of \d+ answers|; reward .*|\d+ events, \d+ objects|\d stale \+ 0 filtered \+ \d failed`)

// lines are what was printed, without figures and waits.
func lines(text string) (kept []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "are unproven on this machine") {
			continue // unless somebody has had lint look at them here
		}
		if line != "" && !strings.HasPrefix(line, "waiting: ") && !strings.HasPrefix(line, "rondo: ") {
			kept = append(kept, figures.ReplaceAllString(line, "…"))
		}
	}
	return kept
}

// typist runs lines of README.md with a plane and a folder of tasks of the test's own.
func typist(t *testing.T, programs map[string]string, plane,
	packs string) func(line string) (printed string, code int) {
	there := strings.NewReplacer("/srv/rondo", plane, "product-tasks", packs, "corrected-tasks", packs+"-corrected",
		"examples/product/", root+"/examples/product/")
	return func(line string) (printed string, code int) {
		t.Helper()
		args := strings.Fields(there.Replace(line))
		c := exec.CommandContext(t.Context(), programs[args[0]], args[1:]...)
		c.Env = append(os.Environ(), "PLANE="+plane, "PYTHONPATH="+root+"/clients/python")
		var told bytes.Buffer
		c.Stderr = &told
		out, err := c.Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		t.Logf("%s\n%s%s", line, out, &told)
		return string(out), c.ProcessState.ExitCode()
	}
}

// TestCorrection: the commands of README.md make a task of a query whose answer its user has
// corrected, and lint finds it sound.
func TestCorrection(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	py := python(t)
	rondo, plane, packs := program.Binary(t), filepath.Join(t.TempDir(), "plane"), filepath.Join(t.TempDir(), "tasks")
	up(t, rondo, plane)
	run := typist(t, map[string]string{"rondo": rondo, "python3": py}, plane, packs)
	commands, _ := section(t, "Make tasks of what users corrected")
	printed := ""
	for _, line := range commands {
		out, code := run(line)
		if code != 0 {
			t.Fatalf("%s: exit code %d", line, code)
		}
		printed += out
	}
	for _, part := range []string{"b1: corrected, rollout g000001-0\n",
		"1 of 1 queries became tasks in ", "corrected.qstock"} {
		if !strings.Contains(printed, part) {
			t.Errorf("the commands print %q, want %q in it", printed, part)
		}
	}
}

// TestCircle: the commands of README.md let users teach an agent. Its version passes the gate and
// the canary and is promoted; one of noise is refused by the gate, and users keep the promoted one.
// All of it is on the log, comes out the same again, and passes the audit.
func TestCircle(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	py := python(t)
	rondo, plane, packs := program.Binary(t), filepath.Join(t.TempDir(), "plane"), filepath.Join(t.TempDir(), "tasks")
	up(t, rondo, plane)
	run := typist(t, map[string]string{"rondo": rondo, "python3": py}, plane, packs)
	commands, want := section(t, "Release what users have taught")
	printed, spoilt := "", false
	for _, line := range commands {
		out, code := run(line)
		if want := map[bool]int{true: 2}[spoilt]; code != want {
			t.Fatalf("%s: exit code %d, want %d", line, code, want)
		}
		spoilt = strings.Contains(line, "spoil.py")
		printed += out
	}
	if got, want := lines(printed), lines(want); !slices.Equal(got, want) {
		t.Errorf("README.md shows without figures:\n%s\n\nand the commands print:\n%s", strings.Join(want, "\n"),
			strings.Join(got, "\n"))
	}

	log := connect(t, plane)
	judged := servicetest.All(t, log, events.Catalogue, events.WeightsJudgedType)
	var verdicts []string
	for _, e := range judged {
		j := servicetest.Data[events.WeightsJudged](t, e)
		verdicts = append(verdicts, fmt.Sprintf("%s of %d against %d: %s", j.Stage, j.Version, j.Against, j.Verdict))
	}
	if want := []string{"gate of 4 against 1: passed", "canary of 4 against 1: passed",
		"gate of 7 against 4: failed"}; !slices.Equal(verdicts, want) {
		t.Fatalf("the judgements are %q, want %q", verdicts, want)
	}
	var promoted []events.WeightsPromoted
	for _, e := range servicetest.All(t, log, events.Catalogue, events.WeightsPromotedType) {
		promoted = append(promoted, servicetest.Data[events.WeightsPromoted](t, e))
	}
	if want := []events.WeightsPromoted{
		{Version: 1},
		{Version: 4, Share: 0.5, Before: 1, Judgement: judged[0].ID},
		{Version: 4, Before: 1, Judgement: judged[1].ID},
	}; !slices.Equal(promoted, want) {
		t.Errorf("the promotions are %+v, want %+v", promoted, want)
	}
	for _, e := range servicetest.Wait(t, log, "users", events.TurnSampledType, "g000085-0", 1) {
		if turn := servicetest.Data[events.TurnSampled](t, e); turn.PolicyVersion != 4 {
			t.Errorf("%s is of version %d, want 4", e.ID, turn.PolicyVersion)
		}
	}
	runs, err := log.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range runs {
		report, err := audit.Check(t.Context(), log.Reader, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			t.Errorf("%s: %v", name, f)
		}
	}
	if len(runs) != 4 {
		t.Errorf("the runs are %v, want that of the users and the evaluations of three versions", runs)
	}
}
