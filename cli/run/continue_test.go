package run

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/replay"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// learns makes a run of which there is something to take along.
func learns(cfg *runfile.RunConfig) {
	cfg.Curriculum, cfg.Seed, cfg.Staleness.Max, cfg.GroupSize = &runfile.Curriculum{}, 11, 49, 2
	cfg.Advantage = runfile.Advantage{Estimator: "rae", Params: map[string]any{"decay": 0.5}}
	cfg.Shaping.SoftOverlong = &runfile.SoftOverlong{MaxTokens: 1000, Buffer: 10}
}

// goesOn runs `rondo run continue first --as second` with flags.
func goesOn(t *testing.T, dir string, flags ...string) (continued, error) {
	t.Helper()
	out, err := clitest.Run(t, New, append([]string{"--dir", dir, "--json", "run", "continue", "first", "--as",
		"second"}, flags...)...)
	var c continued
	if err == nil {
		err = json.Unmarshal([]byte(out), &c)
	}
	return c, err
}

func openingOf(t *testing.T, log *eventlog.Log, run string) events.RunOpened {
	t.Helper()
	return servicetest.WaitData[events.RunOpened](t, log, run, events.RunOpenedType, run)
}

// TestContinue: a run that continues another one draws its tasks, and compares their first
// groups, by what that one has learnt. It is replayed and audited by its own log alone, and
// the old run stays as it is.
func TestContinue(t *testing.T) {
	r := clitest.NewRecordedWith(t, learns, clitest.Deciding...)
	r.Publish(events.Catalogue, 3)
	r.Publish("first", 3)
	r.Whole(1, "fix-a", 3, 1, 1)
	r.Whole(2, "fix-b", 3, 0, 1)
	servicetest.Wait(t, r.Log, "first", events.GroupCompletedType, "*", 2)
	r.Batch("trainer", 1)
	if _, err := goesOn(t, r.Dir); err == nil || !strings.Contains(err.Error(), "rondo run close first") {
		t.Fatalf("an open run is continued: %v", err)
	}
	servicetest.CloseRun(t, r.Log, "first")
	before := len(servicetest.All(t, r.Log, "first"))
	answer, err := goesOn(t, r.Dir)
	if err != nil || answer.PolicyVersion != 3 || answer.PassRates != 2 || answer.Baselines != 2 ||
		answer.State != "closed" {
		t.Fatalf("%+v, %v", answer, err)
	}
	learnt := openingOf(t, r.Log, "second").Continues
	if learnt.Groups != 2 || learnt.Drawn != 2 || learnt.Steps["trainer"] < 1 || *learnt.Tasks["fix-a"].PassRate != 1 ||
		*learnt.Tasks["fix-b"].PassRate != 0.5 {
		t.Errorf("it takes along %+v", learnt)
	}
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	servicetest.OpenRun(t, r.Log, "other", cfg)
	env := servicetest.Env(t, r.Log)
	servicetest.Start(t, func(ctx context.Context) error { return querysampler.Run(ctx, env) })
	hard := map[string]int{}
	second, other := drawn(t, r.Log, "second", hard), drawn(t, r.Log, "other", hard)
	if hard["second"] < 38 || hard["other"] > 35 { // of 50; the weights are 1 to 0.1, and 1 to 1
		t.Errorf("fix-b is drawn in %v of 50 groups", hard)
	}
	if second[0].PolicyVersion != 3 || other[0].PolicyVersion != 0 {
		t.Errorf("the runs begin at versions %d and %d", second[0].PolicyVersion, other[0].PolicyVersion)
	}

	r.Run = "second"
	task := second[0].Task
	for i := range 2 {
		r.Score(events.RolloutID("g000001", i), task, 3, 1)
	}
	completed := servicetest.WaitData[events.GroupCompleted](t, r.Log, "second", events.GroupCompletedType, "g000001")
	if want := 1 - *learnt.Tasks[task].Baseline; *learnt.Tasks[task].Baseline == 0 ||
		math.Abs(completed.Members[0].Advantage-want) > 1e-12 {
		t.Errorf("the first advantage of %s is %g, want %g", task, completed.Members[0].Advantage, want)
	}
	servicetest.CloseRun(t, r.Log, "second")
	servicetest.Wait(t, r.Log, "second", events.GroupCompletedType, "*", 50)
	v, err := replay.Verify(t.Context(), r.Log.Reader, "second", nil)
	if err != nil || v.Differences != 0 || v.Checked["querysampler"] < 150 || v.Checked["advantagecalculator"] != 50 {
		t.Errorf("%+v, %v", v, err)
	}
	report, err := audit.Check(t.Context(), r.Log.Reader, "second")
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("%v, %v", report.Findings, err)
	}
	for _, e := range servicetest.All(t, r.Log, "first")[before:] {
		// which composes what is left
		if e.Source != topology.TrainerFeeder+"/trainer" && e.Source != topology.TrainerFeeder+"/shadow" {
			t.Errorf("the old run has %s of %s", e.ID, e.Source)
		}
	}
	if out, err := clitest.Run(t, New, "--dir", r.Dir, "run", "show", "second"); err != nil ||
		!strings.Contains(out, "continues: first\n") {
		t.Errorf("%s, %v", out, err)
	}
}

// drawn are the first 50 groups of a run, and how many of them are of fix-b.
func drawn(t *testing.T, log *eventlog.Log, run string, hard map[string]int) (groups []events.GroupOpened) {
	t.Helper()
	for _, e := range servicetest.Wait(t, log, run, events.GroupOpenedType, "*", 50) {
		groups = append(groups, servicetest.Data[events.GroupOpened](t, e))
		if groups[len(groups)-1].Task == "fix-b" {
			hard[run]++
		}
	}
	return groups
}

// TestContinueArchived: what an archived run has learnt is in its archive. Flags change the run
// file, and what does not hold then is left out.
func TestContinueArchived(t *testing.T) {
	r := clitest.NewRecordedWith(t, learns, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 1)
	servicetest.Wait(t, r.Log, "first", events.GroupCompletedType, "*", 1)
	r.Batch("trainer", 1)
	r.Batch("shadow", 1)
	servicetest.CloseRun(t, r.Log, "first")
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	file := clitest.Write(t, t.TempDir()+"/run.yaml",
		"policy: small\nendpoint: builtin\nmin_verifier: in-process-without-canaries\ncurriculum: {}\nadvantage: {estimator: rae, params: {decay: 0.5}}\nshaping: {soft_overlong: {max_tokens: 1000, buffer: 10}}\n")
	for _, c := range []struct {
		name, flags      string
		rates, baselines int
	}{
		{"as-it-was", "", 1, 1},
		{"other-pass", "--set curriculum.pass_at=0.5", 0, 1},
		{"other-estimator", "--set advantage.estimator=rloo --set steps=7", 1, 0},
		{"no-curriculum", "--set curriculum=null", 0, 1},
		{"by-file", "--file " + file, 1, 1},
	} {
		out, err := clitest.Run(t, New, append(strings.Fields("--dir "+r.Dir+" --json run continue first --as "+c.name),
			strings.Fields(c.flags)...)...)
		var got continued
		if err == nil {
			err = json.Unmarshal([]byte(out), &got)
		}
		if err != nil || got.State != "archived" || got.PassRates != c.rates ||
			got.Baselines != c.baselines || got.Tasks != 2 {
			t.Errorf("%s: %+v, %v", c.name, got, err)
			continue
		}
		cfg := openingOf(t, r.Log, c.name).Config
		if (c.name == "other-estimator") != (cfg.Steps == 7) || (c.name == "by-file") != (cfg.GroupSize == 8) {
			t.Errorf("%s has the configuration %+v", c.name, cfg)
		}
	}
	for _, flags := range []string{"--as first", "--as _", "--as new --set nothing=1", "--as new --set steps=-1"} {
		if out, err := clitest.Run(t, New, append(strings.Fields("--dir "+r.Dir+" run continue first"),
			strings.Fields(flags)...)...); err == nil {
			t.Errorf("%s: %s", flags, out)
		}
	}
}

// TestContinueRepeated: the command makes one run, however often it is called and wherever it dies,
// also while the old run's rollouts go on.
func TestContinueRepeated(t *testing.T) {
	r := clitest.NewRecordedWith(t, learns, clitest.Deciding[1:]...)
	r.Whole(1, "fix-a", 0, 1, 1)
	_, late := r.Group(2, "fix-b", 4, 0)
	r.State(events.RunPausedType, "first", "0", events.RunPaused{})
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	// A command that died when its submission was on its way: nobody has taken it in.
	learnt, err := replay.Learnt(t.Context(), r.Log.Reader, "first", 0, cfg)
	if err != nil {
		t.Fatal(err)
	}
	dying, die := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = r.Log.Submitter.Submit(dying, eventlog.Submission{Run: "second", Type: events.RunOpenedType,
			Entity: "second", Data: events.RunOpened{Config: cfg, Continues: learnt}, ID: "died"})
	})
	env := servicetest.Env(t, r.Log)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	for i := range late {
		r.Score(late[i], "fix-b", 0, 1)
		calls.Go(func() {
			if c, err := goesOn(t, r.Dir); err != nil || c.State != "paused" {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
	die()
	calls.Wait()
	first, err := goesOn(t, r.Dir)
	if err != nil || first.Until != openingOf(t, r.Log, "second").Continues.Until {
		t.Errorf("%+v, %v", first, err)
	}
	if all := servicetest.All(t, r.Log, "second"); len(all) != 1 {
		t.Errorf("the new run has %v", servicetest.IDs(all))
	}
	if _, err := goesOn(t, r.Dir, "--set", "steps=3"); err == nil ||
		!strings.Contains(err.Error(), "another configuration") {
		t.Errorf("another configuration is taken for the same: %v", err)
	}
}
