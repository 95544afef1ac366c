package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/run"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestMain(m *testing.M) {
	if os.Getenv("RONDO_TEST_MAIN") != "" {
		os.Exit(Main()) // this program as the command itself; see program
	}
	if os.Getenv(hangs) != "" {
		ctx, _ := interruptible(context.Background())
		fmt.Println("works")
		<-ctx.Done()
		fmt.Println("ends")
		select {}
	}
	os.Exit(m.Run())
}

// TestOutputThatFails: who keeps a report on a full disk learns that there is none.
func TestOutputThatFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	var said strings.Builder
	command := exec.Command(os.Args[0], "version")
	command.Env = append(os.Environ(), "RONDO_TEST_MAIN=1")
	command.Stdout, command.Stderr = full, &said
	if err := command.Run(); err == nil || command.ProcessState.ExitCode() != 1 ||
		!strings.Contains(said.String(), "no space left on device") {
		t.Errorf("%v: %s", err, said.String())
	}
}

// hangs is a variable that makes this program a command that never ends.
const hangs = "RONDO_TEST_HANGS"

// TestSecondSignalEnds: a command that hangs where it ends, as on a full
// disk, is not there for ever.
func TestSecondSignalEnds(t *testing.T) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), hangs+"=1")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	says := bufio.NewScanner(output)
	says.Scan()
	for says.Text() == "works" {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		says.Scan()
	}
	if says.Text() != "ends" {
		t.Fatalf("it says %q", says.Text())
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	natstest.Eventually(t, "a later signal ends it", func() bool {
		_ = command.Process.Signal(os.Interrupt)
		return len(ended) > 0
	})
	if err := <-ended; err == nil || command.ProcessState.Exited() {
		t.Errorf("it was not the signal that ended it: %v", err)
	}
}

// rondo runs a command line of the whole program in this process.
func rondo(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	return clitest.RunProgram(t, New(), args...)
}

func TestMistakesAreNamed(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		servicetest.OpenRun(t, log, "first", servicetest.Config("a"))
	})
	nowhere := t.TempDir()
	file := func(text string) string { return clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"), text) }
	minimal := "policy: p\nendpoint: builtin\n"
	for name, c := range map[string]struct {
		args []string
		want []string // parts of the error
	}{
		"an empty command":        {[]string{""}, []string{`unknown command ""`}},
		"an empty command of run": {[]string{"run", ""}, []string{`unknown command ""`}},
		"run file with an unknown key": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file(minimal + "grop_size: 4\n")}, []string{"run.yaml", "grop_size"}},
		"unknown key within": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file(minimal + "limits:\n  turnz: 4\n")}, []string{"run.yaml", "turnz"}},
		"run file with a wrong value": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file(minimal + "group_size: 0\n")}, []string{"run x", "group_size 0", "1 to 1024"}},
		"run file with several of them": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file("policy: a b\nendpoint: nowhere\n")}, []string{`policy "a b"`, `endpoint "nowhere"`}},
		"run file with a wrong type": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file(minimal + "group_size: many\n")}, []string{"run.yaml", "group_size"}},
		"run file with a bare duration": {[]string{"run", "open", "x", "--dir", dir, "--file",
			file(minimal + "limits:\n  timeout: 90\n")}, []string{"run.yaml", "90"}},
		"run file that is none": {[]string{"run", "open", "x", "--dir", dir, "--file", file("{{{")},
			[]string{"run.yaml"}},
		"run file without content": {[]string{"run", "open", "x", "--dir", dir, "--file", file("")},
			[]string{"run.yaml: it is empty"}},
		"no run file": {[]string{"run", "open", "x", "--dir", dir, "--file",
			filepath.Join(nowhere, "none.yaml")}, []string{"read run file", "none.yaml"}},
		"name of a run":          {[]string{"run", "open", "a b", "--dir", dir}, []string{`"a b"`, "letters"}},
		"reserved name of a run": {[]string{"run", "open", "IN", "--dir", dir}, []string{`"IN"`}},
		"task without a verifier": {[]string{"run", "open", "x", "--dir", dir, "--tasks",
			clitest.TaskFolder(t, "tests/test.sh")}, []string{"fix-it", "tests/test.sh"}},
		"task without an instruction": {[]string{"run", "open", "x", "--dir", dir, "--tasks",
			clitest.TaskFolder(t, "instruction.md")}, []string{"fix-it", "instruction.md"}},
		"no task pack": {[]string{"run", "open", "x", "--dir", dir, "--tasks",
			filepath.Join(nowhere, "none")}, []string{"none"}},
		"empty task pack": {[]string{"run", "open", "x", "--dir", dir, "--tasks", nowhere},
			[]string{"task"}},
		"unknown task": {[]string{"tasks", "show", "nothing"},
			[]string{`"nothing"`, "rondo tasks show"}},
		"missing argument": {[]string{"run", "show"},
			[]string{"RUN is missing: see `rondo run show --help`"}},
		"nats without a store": {[]string{"run", "list", "--nats", "nats://127.0.0.1:1"},
			[]string{"--store"}},
		"service without a store": {[]string{"service", "intake", "--nats", "nats://127.0.0.1:1"},
			[]string{"--store", "rondo up"}},
		"service without nats": {[]string{"service", "intake", "--store", nowhere}, []string{"--nats"}},
		"unknown service": {[]string{"service", "intaker", "--nats", "x", "--store", "y"},
			[]string{"intaker"}},
		"no service": {[]string{"service"}, []string{"NAME is missing"}},
		"nats that is not there": {[]string{"run", "list", "--nats", "nats://user:secret@127.0.0.1:1",
			"--store", t.TempDir()}, []string{"127.0.0.1:1"}},
		"no plane": {[]string{"run", "list", "--dir", nowhere},
			[]string{nowhere, "rondo up", "--dir"}},
		"audit of an unknown run": {[]string{"audit", "second", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"audit of a stream of our own": {[]string{"audit", "IN", "--dir", dir}, []string{`"IN"`}},
		"show of an unknown run": {[]string{"run", "show", "second", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"replay of an unknown run": {[]string{"replay", "second", "--verify", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"replay of what": {[]string{"replay", "first", "--dir", dir}, []string{"--verify"}},
		"tail of an unknown run": {[]string{"events", "tail", "second", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"trajectories of an unknown run": {[]string{"trajectories", "list", "second", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"trajectory of an unknown run": {[]string{"trajectories", "show", "second", "g000001-0", "--dir", dir},
			[]string{`"second"`, "rondo run list"}},
		"export of an unknown run": {[]string{"trajectories", "export", "second", "--dir", dir, "--out",
			nowhere}, []string{`"second"`, "rondo run list"}},
		"export of an unknown reward": {[]string{"trajectories", "export", "first", "--dir", dir, "--out", nowhere,
			"--min-reward", "much"}, []string{"--min-reward", "much"}},
		"trajectory of an unknown one": {[]string{"trajectories", "show", "first", "g000001-0", "--dir", dir},
			[]string{"g000001-0", "rondo trajectories list first"}},
		"schema of an unknown type": {[]string{"events", "schema", "rollout.exploded"},
			[]string{"rollout.exploded", "rollout.scored"}},
		"event of an unknown type": {[]string{"events", "publish", "paused", "first", "--run", "first", "--dir",
			dir}, []string{`"paused"`, "rondo events schema"}},
		"event that is no JSON": {[]string{"events", "publish", "run.paused", "first", "--run", "first",
			"--dir", dir, "--data", "{"}, []string{"run.paused of first", "JSON"}},
		"durability that is no interval": {[]string{"up", "--dir", nowhere, "--durability", "soon"},
			[]string{`--durability "soon"`, "always", "100ms"}},
		"durability below nothing": {[]string{"up", "--dir", nowhere, "--durability", "-1s"},
			[]string{`--durability "-1s"`}},
		"durability of the demo": {[]string{"demo", "--dir", nowhere, "--durability", "0"},
			[]string{`--durability "0"`}},
		"demo of no steps": {[]string{"demo", "--dir", nowhere, "--steps", "0"}, []string{"--steps 0"}},
		"demo elsewhere, without a store": {[]string{"demo", "--nats", "nats://127.0.0.1:1"},
			[]string{"--nats needs --store"}},
		"demo on no tasks": {[]string{"demo", "--dir", nowhere, "--tasks",
			filepath.Join(nowhere, "none")}, []string{"none"}},
		"unknown command":               {[]string{"strat"}, []string{"strat", "see `rondo --help`"}},
		"command with a letter too few": {[]string{"audt"}, []string{"did you mean \"audit\"?"}},
		"verb with letters in disorder": {[]string{"run", "shwo"}, []string{"did you mean \"show\"?"}},
		"argument of a command without": {[]string{"top", "first"}, []string{"\"first\" is one argument too many"}},
		"a name with a letter too few":  {[]string{"rn"}, []string{"did you mean \"run\"?"}},
		"flag that is missing": {[]string{"weights", "fetch", "p", "--dir", dir},
			[]string{"--to is missing: see `rondo weights fetch --help`"}},
		"name, where no server answers": {[]string{"run", "open", "a b", "--file",
			file("policy: p\nendpoint: http://127.0.0.1:1/v1\n")}, []string{`"a b"`, "letters"}},
		"argument too many": {[]string{"run", "show", "first", "second"},
			[]string{`"second" is one argument too many`}},
		"second argument missing": {[]string{"trajectories", "show", "first"}, []string{"ROLLOUT is missing"}},
		"flag that wants a number": {[]string{"demo", "--steps", "many"},
			[]string{"--steps", "want a whole number"}},
		"flag that wants a duration": {[]string{"index", "sync", ".", "--every", "7x"},
			[]string{"--every", "90s, 5m or 7d"}},
		"unknown flag": {[]string{"run", "list", "--jsn"},
			[]string{"--jsn", "see `rondo run list --help`"}},
		"config that is not there": {[]string{"run", "list", "--config", filepath.Join(nowhere, "none.yaml")},
			[]string{"--config", "none.yaml"}},
		"config with an unknown flag": {[]string{"run", "list", "--config", file("durabilty: always\n")},
			[]string{"run.yaml", "durabilty", `did you mean "durability"?`}},
		"config with a wrong value": {[]string{"run", "list", "--config", file("json: perhaps\n")},
			[]string{"--json", "run.yaml", "perhaps"}},
		"config with a list of one value": {[]string{"run", "list", "--config", file("json: [true]\n")},
			[]string{"--json", "run.yaml", "no list"}},
		"config without a value": {[]string{"run", "list", "--config", file("store:\n")},
			[]string{"--store", "run.yaml", "want a text"}},
		"config that is none": {[]string{"run", "list", "--config", file("- a\n- b\n")},
			[]string{"run.yaml"}},
		"store with an unknown scheme": {[]string{"run", "list", "--dir", dir, "--store", "ftp://x"},
			[]string{"store", "ftp"}},
		"closing where nothing runs here": {[]string{"run", "close", "first", "--dir", nowhere}, []string{"rondo up"}},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := rondo(t, c.args...)
			if err == nil {
				t.Errorf("%s: it went well: %s", name, output)
				return
			}
			if code := app.ExitCode(err); code != 1 {
				t.Errorf("%s: exit code %d", name, code)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q: %v", name, part, err)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error tells the password: %v", name, err)
			}
		})
	}
	entries, err := os.ReadDir(nowhere)
	if err != nil || len(entries) != 0 {
		t.Errorf("commands that failed left %v: %v", entries, err)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {errors.New("odd"), 1}, {&app.ExitError{Code: app.ExitFindings, Err: errors.New("2 findings")}, 2},
		{fmt.Errorf("audit: %w", &app.ExitError{Code: app.ExitFindings, Err: errors.New("2 findings")}), 2},
		{context.Canceled, 130}, {fmt.Errorf("read: %w", context.Canceled), 130},
		{context.DeadlineExceeded, 1},
	} {
		var text strings.Builder
		app.PrintError(&text, c.err, true)
		if got := app.ExitCode(c.err); got != c.code {
			t.Errorf("exit code of %v is %d, want %d", c.err, got, c.code)
		}
		var said struct {
			Error string
			Code  int
		}
		if c.err != nil && (json.Unmarshal([]byte(text.String()), &said) != nil ||
			said.Error == "" || said.Code != c.code) {
			t.Errorf("%v is told as %s", c.err, text.String())
		}
	}
}

// TestWhereFlagsComeFrom: the command line wins over the environment, which wins over the file.
func TestWhereFlagsComeFrom(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		servicetest.OpenRun(t, log, "first", servicetest.Config("a"))
	})
	other := clitest.FilledPlane(t, nil)
	config := clitest.Write(t, filepath.Join(t.TempDir(), "rondo.yaml"),
		fmt.Sprintf("dir: %s\njson: true\ndurability: 100ms\n", dir))
	runs := func(args ...string) (n int, asJSON bool) {
		t.Helper()
		output, err := rondo(t, append([]string{"run", "list"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var list []run.RunSummary
		if json.Unmarshal([]byte(output), &list) == nil {
			return len(list), true
		}
		return strings.Count(output, "\n") - 1, false
	}
	expect := func(what string, wantRuns int, wantJSON bool, args ...string) {
		t.Helper()
		if n, asJSON := runs(args...); n != wantRuns || asJSON != wantJSON {
			t.Errorf("%s: %d runs, JSON %v; want %d, %v", what, n, asJSON, wantRuns, wantJSON)
		}
	}
	expect("flags", 1, false, "--dir", dir)
	expect("file", 1, true, "--config", config)
	expect("flag over file", 1, false, "--config", config, "--json=false")
	expect("flag over file for the directory", 0, true, "--config", config, "--dir", other)
	t.Setenv("RONDO_DIR", other)
	expect("environment", 0, false)
	expect("environment over file", 0, true, "--config", config)
	expect("flag over environment", 1, false, "--dir", dir)
	t.Setenv("RONDO_CONFIG", config)
	expect("file of the environment", 0, true)
	t.Setenv("RONDO_JSON", "perhaps")
	if _, err := rondo(t, "run", "list"); err == nil || !strings.Contains(err.Error(), "--json from the environment") {
		t.Errorf("a wrong value in the environment: %v", err)
	}
	t.Setenv("RONDO_JSON", "")
	t.Setenv("RONDO_CONFIG", "")
	t.Setenv("RONDO_RUN", "first") // a required flag
	if _, err := rondo(t, "events", "publish", "run.paused", "x", "--dir", dir, "--data", "{"); err == nil ||
		strings.Contains(err.Error(), "--run is missing") {
		t.Errorf("a required flag in the environment: %v", err)
	}
}

// TestAuditShowsWhatWasRefused: dead letters of the run, of its policy's
// weights, and nobody else's.
func TestAuditShowsWhatWasRefused(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		cfg := servicetest.Config("a")
		cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(), []byte("s"))
		cfg.Tasks[0].Tests = cfg.Tasks[0].Snapshot
		servicetest.OpenRun(t, log, "first", cfg)
		cfg.Policy = "large"
		servicetest.OpenRun(t, log, "second", cfg)
		letter := func(entity, stream, subject, reason string) {
			servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.DeadLetteredType, entity, "0",
				events.DeadLettered{Stream: stream, Sequence: 7, Consumer: "c", Subject: subject, Reason: reason}))
		}
		letter("1", "RONDO_IN", "rondo.in.first.batch.trainer.consumed", "step 9: too far")
		letter("2", "RONDO_first", "rondo.v1.first.rollout.g000001-0.started", "poison")
		letter("3", "RONDO_IN", "rondo.in._.weights.small.submitted", "files: missing")
		letter("4", "RONDO_IN", "rondo.in.firsts.run.firsts.paused", "there is no run")
		letter("5", "RONDO_IN", "rondo.in.nonsense", "subject")
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsRejectedType, "small",
			"x", events.WeightsRejected{Version: 3, Reason: "header lies"}))
	})
	reasons := func(run string) string {
		t.Helper()
		output, err := rondo(t, "audit", run, "--dir", dir, "--json")
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			DeadLetters []audit.DeadLetter `json:"dead_letters"`
		}
		if err := json.Unmarshal([]byte(output), &report); err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, d := range report.DeadLetters {
			list = append(list, d.Reason)
		}
		return strings.Join(list, "; ")
	}
	for run, want := range map[string]string{
		"first":  "step 9: too far; poison; files: missing; version 3: header lies",
		"second": "",
		"_":      "step 9: too far; poison; files: missing; there is no run; subject; version 3: header lies",
	} {
		t.Run(run, func(t *testing.T) {
			if got := reasons(run); got != want {
				t.Errorf("audit of %s shows %q, want %q", run, got, want)
			}
		})
	}
	for run, want := range map[string]string{"first": "dead letter: rondo.in.first.batch.trainer.consumed at sequence 7 of RONDO_IN: step 9: too far\n",
		"_": "6 dead letters\n"} {
		if output, err := rondo(t, "audit", run, "--dir", dir); err != nil || !strings.Contains(output, want) {
			t.Errorf("audit of %s prints %q: %v", run, output, err)
		}
	}
}

// TestFaultsThatAreFound end with a code of their own, and with the report.
func TestFaultsThatAreFound(t *testing.T) {
	dir := clitest.FilledPlane(t, func(log *eventlog.Log) {
		servicetest.OpenRun(t, log, "first", servicetest.Config("a")) // whose objects are not there
		servicetest.StartRollout(t, log, "first", "g000001-0", "a")
		servicetest.Append(t, log, servicetest.Event(t, "first", events.RolloutScoredType, "g000001-0",
			"0", events.RolloutScored{Reward: 1}))
	})
	output, err := rondo(t, "audit", "first", "--dir", dir, "--json")
	if app.ExitCode(err) != app.ExitFindings || !strings.Contains(output, `"rule":"object"`) ||
		!strings.Contains(output, `"rule":"turns"`) {
		t.Errorf("exit code %d, %s", app.ExitCode(err), output)
	}
	if output, err = rondo(t, "tasks", "lint", filepath.Dir(clitest.TaskFolder(t,
		"tests/test.sh"))); app.ExitCode(err) != app.ExitFindings ||
		!strings.Contains(output, "tests/test.sh: missing") {
		t.Errorf("lint of a task without a verifier: %v\n%s", err, output)
	}
}

func TestRedacted(t *testing.T) {
	for url, want := range map[string]string{
		"nats://a:4222": "nats://a:4222", "nats://u:p@a:4222,tls://b": "…@a:4222,tls://b", "token@c": "…@c", "": "",
	} {
		t.Run(url, func(t *testing.T) {
			if got := app.Redacted(url); got != want {
				t.Errorf("%q becomes %q, want %q", url, got, want)
			}
		})
	}
}

func TestLettersThatConcernARun(t *testing.T) {
	d := audit.DeadLetter{Stream: events.IntakeStream, Subject: "rondo.in._.weights..submitted"}
	if d.Concerns("r", "") {
		t.Error("a run without a policy is concerned by all weights")
	}
	if (audit.DeadLetter{Stream: "RONDO_r2"}).Concerns("r", "p") ||
		!(audit.DeadLetter{Stream: "RONDO_r"}).Concerns("r", "p") {
		t.Error("runs are mixed up")
	}
}

// TestHelpIsInUsersWords: no help shows a type of Go or an empty list as a default.
func TestHelpIsInUsersWords(t *testing.T) {
	goType := regexp.MustCompile(`(?m)^ +(?:-\w, |    )--\S+ (string\w*|u?ints?|float\w*)\b|\(default (\[\]|0s)\)`)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if found := goType.FindString(cmd.UsageString()); found != "" {
			t.Errorf("%s --help shows %q", cmd.CommandPath(), found)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(New())
	if out, err := rondo(t, "--version"); err != nil || !strings.HasPrefix(out, "rondo ") ||
		!strings.Contains(out, "(go") {
		t.Errorf("--version prints %q, %v", out, err)
	}
}
