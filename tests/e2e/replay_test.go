package e2e

import (
	"bytes"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/ledger"
)

// TestReplayAs records a run and asks what other configurations had made of it.
func TestReplayAs(t *testing.T) {
	needSandbox(t)
	dir := t.TempDir()
	rondoIn := func(t *testing.T, into any, args ...string) {
		t.Helper()
		mustRun(t, into, append(args, "--dir", dir, "--json")...)
	}
	rondoIn(t, nil, "demo", "--tasks", smallPack(t), "--steps", "3", "--groups-per-batch", "2", "--group-size", "4", "--seed", "8", "--quiet")
	var d ledger.Diff

	t.Run("the same configuration computes the same", func(t *testing.T) {
		rondoIn(t, nil, "replay", "demo-8", "--as", "same", "--quiet")
		verifyReplay(t, "same", dir)
		rondoIn(t, &d, "diff", "demo-8", "same")
		if d.Changed != 0 || d.OnlyA+d.OnlyB != 0 || d.Both == 0 || len(d.Batches) < 3 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("estimators", func(t *testing.T) {
		for _, name := range []string{"mean_centred", "std_normalised", "rloo", "maxrl", "leave_one_out"} {
			rondoIn(t, nil, "replay", "demo-8", "--as", name, "--set", "advantage.estimator="+name, "--quiet")
			sameAsOnTheCommandLine(t, dir, name)
		}
	})
	t.Run("a replay that was killed goes on", func(t *testing.T) {
		for i := range 3 {
			p := start(t, "replay", "demo-8", "--as", "killed", "--set", "feeds.0.groups_per_batch=1", "--quiet", "--dir", dir)
			time.Sleep(time.Duration(50+100*i) * time.Millisecond) // a chance, not a condition
			p.kill()
		}
		rondoIn(t, nil, "replay", "demo-8", "--as", "killed", "--set", "feeds.0.groups_per_batch=1", "--quiet")
		rondoIn(t, nil, "replay", "demo-8", "--as", "unhurt", "--set", "feeds.0.groups_per_batch=1", "--quiet")
		verifyReplay(t, "killed", dir)
		rondoIn(t, &d, "diff", "killed", "unhurt")
		if len(d.Groups) > 0 || d.OnlyA+d.OnlyB > 0 || slices.ContainsFunc(d.Batches, func(b ledger.BatchDiff) bool { return b.A == nil || b.B == nil || b.Common != b.A.Rollouts }) {
			t.Errorf("%+v", d)
		}
	})
	t.Run("up to a moment", func(t *testing.T) {
		rondoIn(t, nil, "replay", "demo-8", "--as", "half", "--to", "150", "--quiet")
		if a := verifyReplay(t, "half", dir); a.InFlight != 0 || a.Started >= 24 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for _, c := range []struct{ flag, want string }{
			{"--as=same --set=staleness.max=0", "already"},
			{"--as=new --set=sampling.temperature=2", "keeps the rollouts"},
			{"--as=new --set=advantage.estimator=ppo", `"ppo"`},
			{"--as=new --set=advantage.estimatr=rloo", "estimatr"},
			{"--as=new --set=feeds.7.ranks=2", `"7"`},
			{"--as=new --set=staleness", "path=value"},
			{"--as=new --from=turns", "scores, advantages or batches"},
			{"--as=new --set=scorer.threshold=1", "add --from scores"},
			{"--as=new --set=scorer={threshold:1}", "add --from scores"},
			{"--as=new --from=scores --set=scorer.weights.style=1", `"style"; there are ["reward"]`},
			{"--as=new --from=scores --set=scorer.treshold=1", "treshold"},
			{"--as=new --rerun-verifiers", "--from scores"},
			{"--as=new --from=batches --tasks=.", "--from scores"},
			{"--as=new --from=scores --tasks=.", "--tasks"},
			{"--verify --rollouts=3", "--rollouts does not go"},
			{"--verify --tools", "say what to do"},
			{"--tools --rollouts=0", "positive"},
			{"--tools --rollouts=g000001-99", "no rollout [g000001-99]"},
			{"--tools --slots=0", "--slots 0"},
			{"--as=a.b", "letters, digits"},
			{"--as=new --verify", "say what to do"},
		} {
			err := run(t.Context(), nil, append([]string{"replay", "demo-8", "--dir", dir}, strings.Fields(c.flag)...)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.flag, err)
			}
		}
	})
}

// verifyReplay holds a replay to what is promised of every run.
func verifyReplay(t *testing.T, name, dir string) (a audit) {
	t.Helper()
	mustRun(t, &a, "audit", name, "--json", "--dir", dir)
	checkAudit(t, a)
	recompute(t, name, []string{"advantagecalculator"}, "--dir", dir)
	return a
}

// sameAsOnTheCommandLine compares a run's advantages with what `rondo advantage` makes of its rewards.
func sameAsOnTheCommandLine(t *testing.T, dir, estimator string) {
	t.Helper()
	var in, want struct {
		Groups [][]*float64 `json:"groups"`
	}
	var got [][]events.Member
	for _, g := range completed(t, dir, estimator) {
		var rewards []*float64
		for _, m := range g.Members {
			if m.Failed {
				rewards = append(rewards, nil)
			} else {
				rewards = append(rewards, &m.Reward)
			}
		}
		in.Groups, got = append(in.Groups, rewards), append(got, g.Members)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), rondo, "advantage", "--estimator", estimator)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &want); err != nil || len(want.Groups) != len(got) || len(got) == 0 {
		t.Fatalf("%d groups instead of %d: %v\n%s", len(want.Groups), len(got), err, out)
	}
	for i, group := range want.Groups {
		for k, advantage := range group {
			if m := got[i][k]; m.Failed != (advantage == nil) || !m.Failed && math.Abs(m.Advantage-*advantage) > 1e-12 {
				t.Errorf("%s: %s has %g", estimator, m.Rollout, m.Advantage)
			}
		}
	}
}

// completed reads a run's completed groups.
func completed(t *testing.T, dir, name string) (groups []events.GroupCompleted) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), rondo, "events", "tail", name, "--type", string(events.GroupCompletedType), "--json", "--dir", dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var e struct {
			Data events.GroupCompleted `json:"data"`
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		groups = append(groups, e.Data)
	}
	return groups
}

// TestArchive: a run whose stream is gone, and one that was restored into an empty server, is still all that is promised of it.
func TestArchive(t *testing.T) {
	needSandbox(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	mustRun(t, nil, "demo", "--tasks", smallPack(t), "--steps", "2", "--groups-per-batch", "2", "--group-size", "3", "--seed", "4", "--quiet", "--dir", dir, "--json")
	if err := run(t.Context(), nil, "run", "delete", "demo-4", "--dir", dir); err == nil || !strings.Contains(err.Error(), "archive seal") {
		t.Errorf("a run that is not archived was deleted: %v", err)
	}
	mustRun(t, nil, "archive", "seal", "demo-4", "--dir", dir, "--json")
	mustRun(t, nil, "archive", "verify", "demo-4", "--dir", dir, "--json")
	mustRun(t, nil, "run", "delete", "demo-4", "--dir", dir, "--json")
	var states []struct{ Run, State string }
	mustRun(t, &states, "run", "list", "--dir", dir, "--json")
	if len(states) != 1 || states[0].State != "archived" {
		t.Errorf("runs: %+v", states)
	}
	verify(t, "demo-4", "--dir", dir)
	mustRun(t, nil, "trajectories", "show", "demo-4", "g000001-0", "--dir", dir)
	mustRun(t, nil, "replay", "demo-4", "--as", "from-archive", "--set", "advantage.estimator=rloo", "--quiet", "--dir", dir, "--json")
	verifyReplay(t, "from-archive", dir)

	// An empty server in another directory, over the same store.
	up := start(t, "up", "--dir", elsewhere, "--store", filepath.Join(dir, "objects"))
	eventually(t, time.Minute, func() error {
		return run(t.Context(), nil, "archive", "restore", "demo-4", "--dir", elsewhere, "--json")
	})
	verify(t, "demo-4", "--dir", elsewhere)
	up.stop(t)
}
