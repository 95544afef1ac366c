package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestReplayAs records a run and asks what other configurations had made of it.
func TestReplayAs(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := t.TempDir()
	rondoIn := func(t *testing.T, into any, args ...string) {
		t.Helper()
		mustRun(t, into, append(args, "--dir", dir, "--json")...)
	}
	rondoIn(t, nil, "demo", "--tasks", smallPack(t), "--steps", "3", "--groups-per-batch", "2", "--group-size", "4",
		"--seed", "8", "--quiet")
	var d books.Diff

	t.Run("the same configuration computes the same", func(t *testing.T) {
		rondoIn(t, nil, "replay", "demo-8", "--as", "same", "--quiet")
		verifyReplay(t, "same", dir)
		rondoIn(t, &d, "diff", "demo-8", "same")
		if d.Changed != 0 || d.OnlyA+d.OnlyB != 0 || d.Both == 0 || len(d.Batches) < 3 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("estimators", func(t *testing.T) {
		for _, name := range advantage.Names() {
			rondoIn(t, nil, "replay", "demo-8", "--as", name, "--set", "advantage.estimator="+name, "--quiet")
			sameAsOnTheCommandLine(t, dir, name)
		}
	})
	t.Run("a replay that was killed goes on", func(t *testing.T) {
		for range 3 {
			p := start(t, "replay", "demo-8", "--as", "killed", "--set", "feeds.0.groups_per_batch=1",
				"--quiet", "--dir", dir)
			p.KillWithin(400 * time.Millisecond)
		}
		rondoIn(t, nil, "replay", "demo-8", "--as", "killed", "--set", "feeds.0.groups_per_batch=1", "--quiet")
		rondoIn(t, nil, "replay", "demo-8", "--as", "unhurt", "--set", "feeds.0.groups_per_batch=1", "--quiet")
		verifyReplay(t, "killed", dir)
		rondoIn(t, &d, "diff", "killed", "unhurt")
		if len(d.Groups) > 0 || d.OnlyA+d.OnlyB > 0 ||
			slices.ContainsFunc(d.Batches, func(b books.BatchDiff) bool {
				return b.A == nil || b.B == nil ||
					b.Common != b.A.Rollouts
			}) {
			t.Errorf("%+v", d)
		}
	})
	t.Run("up to a moment", func(t *testing.T) {
		started, to := 0, ""
		for line := range strings.Lines(said(t, "events", "tail", "demo-8", "--json", "--dir", dir)) {
			var e struct {
				Seq  uint64
				Type events.Type
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if e.Type == events.RolloutStartedType {
				started++
			} else if e.Type == events.BatchReadyType {
				to = fmt.Sprint(e.Seq)
				break
			}
		}
		rondoIn(t, nil, "replay", "demo-8", "--as", "half", "--to", to, "--quiet")
		if a := verifyReplay(t, "half", dir); a.InFlight != 0 || a.Started != started || started >= 24 {
			t.Errorf("%d rollouts were started up to %s: %+v", started, to, a)
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
			err := run(t.Context(), nil, append([]string{"replay", "demo-8", "--dir", dir},
				strings.Fields(c.flag)...)...)
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

// TestArchive: a run whose stream is gone, and one that was restored into an empty server, is still
// all that is promised of it.
func TestArchive(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	mustRun(t, nil, "demo", "--tasks", smallPack(t), "--steps", "2", "--groups-per-batch", "2", "--group-size", "3",
		"--seed", "4", "--quiet", "--dir", dir, "--json")
	if err := run(t.Context(), nil, "run", "delete", "demo-4", "--dir", dir); err == nil ||
		!strings.Contains(err.Error(), "archive seal") {
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
	mustRun(t, nil, "replay", "demo-4", "--as", "from-archive", "--set", "advantage.estimator=rloo",
		"--quiet", "--dir", dir, "--json")
	verifyReplay(t, "from-archive", dir)

	// An empty server in another directory, over the same store.
	up := start(t, "up", "--dir", elsewhere, "--store", filepath.Join(dir, "objects"))
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "archive", "restore", "demo-4", "--dir", elsewhere, "--json")
	})
	verify(t, "demo-4", "--dir", elsewhere)
	up.Stop(t)
}
