package e2e

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// exit is the exit code of a command that was run.
func exit(err error) int {
	if code, ok := errors.AsType[*exec.ExitError](err); ok {
		return code.ExitCode()
	}
	return 0
}

// sound holds an evaluation to what is promised of every run.
func sound(t *testing.T, run string, attempts int, flags ...string) {
	t.Helper()
	var a audit
	mustRun(t, &a, append([]string{"audit", run, "--json"}, flags...)...)
	if checkAudit(t, a); a.Started != attempts || a.InFlight != 0 {
		t.Errorf("run %s: want %d rollouts that are over: %+v", run, attempts, a)
	}
	recompute(t, run, []string{"querysampler", "advantagecalculator"}, flags...)
}

// TestEval measures an untrained policy without a plane, and looks at all that comes of it.
func TestEval(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "report")
	args := []string{"eval", "--policy", "small@0", "--tasks", smallPack(t), "--k", "1,4", "--turns",
		"6", "--dir", dir, "--json"}
	var r evaluation.Report
	mustRun(t, &r, append(args, "--out", out)...)
	s := r.Summaries[0]
	if s.Attempts != 8 || s.Failed != 0 || s.Tasks != 2 || len(s.PassAt) != 2 || s.PassAt[1].K != 4 ||
		s.Turns.Value < 2 || s.ToolCalls.Value < 2 || s.Tokens.Value < 100 || s.Seconds.Value <= 0 {
		t.Errorf("%+v", s)
	}
	passed := 0
	for _, task := range s.ByTask {
		for _, a := range task.Attempts {
			if a.Reward == 1 {
				passed++
			}
			if a.Trajectory == "" || a.Version != 0 || a.StopReason == "" {
				t.Errorf("attempt %+v", a)
			}
		}
	}
	if s.PassAt[0].Estimate.Value != float64(passed)/8 {
		t.Errorf("%d of 8 attempts pass, pass@1 is %+v", passed, s.PassAt[0])
	}
	sound(t, r.Run, 8, "--dir", dir)
	reportFiles(t, out, r)

	t.Run("the same command shows it again", func(t *testing.T) {
		var again evaluation.Report
		mustRun(t, &again, args...)
		if !reflect.DeepEqual(again, r) {
			t.Errorf("again %+v\nbefore %+v", again, r)
		}
	})
	t.Run("gates", func(t *testing.T) {
		if err := run(t.Context(), nil, append(args, "--pass-at", "2", "--min-pass", "0.1")...); exit(err) != 2 ||
			!strings.Contains(err.Error(), "below --min-pass 0.1") {
			t.Errorf("below the gate: %v", err)
		}
		mustRun(t, nil, append(args, "--min-pass", "0")...)
	})
	t.Run("refusals", func(t *testing.T) {
		for flags, want := range map[string]string{
			"--policy small@7":                  "no version of it is published",
			"--policy small@0 --run " + r.Run:   "already, with another configuration",
			"--from nothing":                    "there is no run",
			"--policy small@0 --tasks /nowhere": "/nowhere",
		} {
			err := run(t.Context(), nil, append([]string{"eval", "--quiet", "--dir", dir}, strings.Fields(flags)...)...)
			if exit(err) != 1 || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", flags, err)
			}
		}
	})
	t.Run("a run that was closed early passes no gate", func(t *testing.T) {
		up := start(t, "up", "--dir", dir)
		p := start(t, append(args, "--run", "early", "--in-flight", "1", "--attempts", "8", "--min-pass", "0")...)
		program.Eventually(t, func() error { return seen(p, "group 1/") })
		mustRun(t, nil, "run", "close", "early", "--dir", dir)
		<-p.Done
		if code := p.Cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.String(), "was closed before") {
			t.Errorf("exit code %d: %s", code, p)
		}
		up.Stop(t)
	})
}

// seen reports whether a process has printed a text.
func seen(p *program.Process, text string) error {
	if !strings.Contains(p.String(), text) {
		return fmt.Errorf("%q is not printed yet:\n%s", text, p)
	}
	return nil
}

// reportFiles checks that the report is there in each form.
func reportFiles(t *testing.T, dir string, want evaluation.Report) {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var got evaluation.Report
	if err := json.Unmarshal(read("report.json"), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("report.json: %v\n%+v", err, got)
	}
	for _, name := range []string{"report.md", "report.html"} {
		if text := string(read(name)); !strings.Contains(text, "pass@4") || !strings.Contains(text, want.Run) {
			t.Errorf("%s: %s", name, text)
		}
	}
	var suites struct {
		Suites []struct {
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	decoder := xml.NewDecoder(strings.NewReader(string(read("junit.xml"))))
	if err := decoder.Decode(&suites); err != nil || len(suites.Suites) == 0 || len(suites.Suites[0].Cases) != 2 {
		t.Errorf("junit.xml: %v: %+v", err, suites)
	}
	for token, err := decoder.Token(); !errors.Is(err, io.EOF); token, err = decoder.Token() {
		if space, ok := token.(xml.CharData); err != nil || !ok || strings.TrimSpace(string(space)) != "" {
			t.Fatalf("junit.xml goes on with %v, %v", token, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("files %v, %v", entries, err)
	}
}

// TestEvalKilled: an evaluation that is interrupted and killed again and again comes to
// what an unhurt one comes to.
func TestEvalKilled(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	pack := smallPack(t)
	args := func(dir string) []string {
		return []string{"eval", "--policy", "small@0", "--tasks", pack, "--k", "6", "--turns", "4", "--in-flight", "4",
			"--run", "measured", "--dir", dir, "--json"}
	}
	var unhurt, hurt evaluation.Report
	mustRun(t, &unhurt, args(t.TempDir())...)
	dir := t.TempDir()
	interrupted := start(t, args(dir)...)
	program.Eventually(t, func() error { return seen(interrupted, "attempts each") })
	interrupted.Stop(t)
	if code := interrupted.Cmd.ProcessState.ExitCode(); code != 130 ||
		!strings.Contains(interrupted.String(), "goes on when the same command") {
		t.Errorf("interrupted, it exits with %d: %s", code, interrupted)
	}
	for range nightly.Count(1, 3) {
		p := start(t, args(dir)...)
		p.KillWithin(1400 * time.Millisecond)
	}
	mustRun(t, &hurt, args(dir)...)
	sound(t, "measured", 12, "--dir", dir)
	for i, task := range hurt.Summaries[0].ByTask {
		if want := unhurt.Summaries[0].ByTask[i]; task.Task != want.Task || task.Passed != want.Passed ||
			task.Scored != want.Scored || task.Turns != want.Turns {
			t.Errorf("%+v\nunhurt %+v", task, want)
		}
	}
}

// TestEvalOfARun trains a little, and evaluates what was recorded and what was published.
func TestEvalOfARun(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, pack := t.TempDir(), smallPack(t)
	mustRun(t, nil, "demo", "--tasks", pack, "--steps", "2", "--groups-per-batch", "2", "--group-size", "3", "--seed",
		"5", "--quiet", "--dir", dir, "--json")
	up := start(t, "up", "--dir", dir)
	eval := func(t *testing.T, args ...string) (r evaluation.Report, err error) {
		t.Helper()
		err = run(t.Context(), &r, append([]string{"eval", "--quiet", "--dir", dir, "--json"}, args...)...)
		return r, err
	}
	program.Eventually(t, func() error { return run(t.Context(), nil, "run", "list", "--dir", dir) })

	t.Run("a version against the untrained policy", func(t *testing.T) {
		r, err := eval(t, "--policy", "repair-demo-5@1", "--against", "repair-demo-5@0", "--tasks", pack,
			"--k", "2", "--turns", "3")
		if err != nil || r.Version != 1 || len(r.Comparisons) != 1 || r.Comparisons[0].Tasks != 2 {
			t.Fatalf("%v: %+v", err, r)
		}
		for i, version := range []int64{1, 0} {
			if got := r.Summaries[i].Versions; len(got) != 1 || got[0] != version {
				t.Errorf("%s was sampled by versions %v", r.Summaries[i].Name, got)
			}
		}
		sound(t, r.Run, 4, "--dir", dir)
	})
	t.Run("every version", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "curve")
		r, err := eval(t, "--policy", "repair-demo-5", "--follow", "--since", "0", "--until", "2", "--tasks", pack,
			"--turns", "3", "--out", out)
		if err != nil || len(r.Curve) != 3 || r.Curve[0].Version != 0 || r.Curve[2].Version != 2 ||
			r.Summaries[0].Versions[0] != 2 {
			t.Fatalf("%v: %+v", err, r)
		}
		if html, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil ||
			!strings.Contains(string(html), "<svg") {
			t.Errorf("report.html: %v: %s", err, html)
		}
	})
	t.Run("recorded rollouts", func(t *testing.T) {
		r, err := eval(t, "--from", "demo-5")
		if err != nil || r.Summaries[0].Attempts < 12 || r.OffPolicy != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		recorded := r.Summaries[0].Reward.Value

		stricter := t.TempDir()
		writeFile(t, filepath.Join(stricter, "add/task.toml"),
			"schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"repo\"\n")
		writeFile(t, filepath.Join(stricter, "add/instruction.md"), "As before.\n")
		writeFile(t, filepath.Join(stricter, "add/repo/add.sh"), "echo\n")
		writeFile(t, filepath.Join(stricter, "add/tests/test.sh"),
			"echo '{\"reward\": 0.25}' > /logs/verifier/reward.json\n")
		r, err = eval(t, "--from", "demo-5", "--tasks", stricter, "--against", "demo-5")
		if err != nil || r.Summaries[0].ByTask[0].Reward != 0.25 ||
			r.Summaries[0].ByTask[1].Reward != r.Summaries[1].ByTask[1].Reward ||
			r.Summaries[1].Reward.Value != recorded {
			t.Errorf("%v: %+v", err, r)
		}
	})
	t.Run("the value of another policy", func(t *testing.T) {
		file, rewards := candidate(t, dir, "demo-5", nil)
		r, err := eval(t, "--from", "demo-5", "--logprobs", file)
		if err != nil || r.OffPolicy == nil || r.OffPolicy.Rollouts != rewards ||
			!near(r.OffPolicy.EffectiveSampleSize, float64(rewards)) ||
			!near(r.OffPolicy.Weighted.Value, r.OffPolicy.Recorded.Value) {
			t.Errorf("the policy itself: %v: %+v", err, r.OffPolicy)
		}
		// One that gives a token of every rollout another probability, alike: the weights cancel
		// out but in the ordinary estimate.
		file, _ = candidate(t, dir, "demo-5", func(p []float64) { p[len(p)-1] -= 0.5 })
		r, err = eval(t, "--from", "demo-5", "--logprobs", file)
		if err != nil || !near(r.OffPolicy.MeanWeight.Value, 0.6065306597) ||
			!near(r.OffPolicy.Weighted.Value, r.OffPolicy.Recorded.Value) {
			t.Errorf("another one: %v: %+v", err, r.OffPolicy)
		}
		file, _ = candidate(t, dir, "demo-5", func(p []float64) { p[0] = 0.5 })
		if _, err := eval(t, "--from", "demo-5", "--logprobs", file); exit(err) != 1 ||
			!strings.Contains(err.Error(), "line 1") {
			t.Errorf("no probability: %v", err)
		}
	})
	up.Stop(t)
}

func near(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 }

// candidate writes the log-probabilities of a run's sampled tokens, changed,
// and counts its rollouts.
func candidate(t *testing.T, dir, name string, change func([]float64)) (path string, rollouts int) {
	t.Helper()
	var lines []struct{ Rollout string }
	mustRun(t, &lines, "trajectories", "list", name, "--dir", dir, "--json")
	var text strings.Builder
	for _, line := range lines {
		var trajectory storage.Trajectory
		mustRun(t, &trajectory, "trajectories", "show", name, line.Rollout, "--dir", dir, "--json")
		var logprobs []float64
		for _, m := range trajectory.Messages {
			for i, sampled := range m.LossMask {
				if sampled {
					logprobs = append(logprobs, float64(m.Logprobs[i]))
				}
			}
		}
		if change != nil {
			change(logprobs)
		}
		data, err := json.Marshal(map[string]any{"rollout": line.Rollout, "logprobs": logprobs})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(data, '\n'))
	}
	path = filepath.Join(t.TempDir(), "candidate.jsonl")
	writeFile(t, path, text.String())
	return path, len(lines)
}
