package scorer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// twoLines asks for two lines in a.txt and reports how many there are.
const twoLines = `n=$(wc -l < a.txt); [ $n = 2 ] && r=1 || r=0; echo "{\"reward\": $r, \"lines\": $n}" > /logs/verifier/reward.json` + "\n"

// ended is a rollout of a run, as a replay reads it.
func ended(t *testing.T, log *eventlog.Log, run string) (eventlog.Ended, runfile.RunConfig, runfile.TaskSpec) {
	t.Helper()
	cfg, err := log.Config(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range log.Rollouts(t.Context(), run) {
		if err != nil {
			t.Fatal(err)
		}
		task, err := r.Task(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return r, cfg, task
	}
	t.Fatalf("no rollout of %s has ended", run)
	panic("unreachable")
}

// TestTheRunSaysWhatARewardIs: live, under other settings again, and
// recomposed from what was recorded.
func TestTheRunSaysWhatARewardIs(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	solved := changes(t, log, map[string]string{"a.txt": "one\n"}, "echo two >> a.txt")
	cfg := servicetest.Config("a")
	cfg.Scorer = runfile.Scoring{Weights: map[string]float64{"reward": 1, "lines": -0.25}}
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"}))
	cfg.Tasks[0].Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": twoLines}))
	servicetest.OpenRun(t, log, "r", cfg)
	servicetest.StartRollout(t, log, "r", rollout, "a")
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, rollout,
		"0", events.RolloutFinished{
			Task: "a", Workspace: &solved, Trajectory: storage.Ref{Key: "runs/r/t.arrow",
				SHA256: strings.Repeat("1", 64), Size: 9}}))
	servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType, rollout)

	r, cfg, task := ended(t, log, "r")
	if r.Scored.Reward != 0.5 {
		t.Fatalf("scored %+v", r.Scored)
	}
	check := RewardDifferences(cfg)
	for _, e := range servicetest.All(t, log, "r") {
		if found, err := check(e); len(found) > 0 || err != nil {
			t.Errorf("%+v, %v", found, err)
		}
	}
	for name, c := range map[string]struct {
		scoring runfile.Scoring
		want    float64
		err     error
	}{
		"as it was": {cfg.Scorer, 0.5, nil}, "the verifier's": {runfile.Scoring{}, 1, nil},
		"other weights": {runfile.Scoring{Weights: map[string]float64{"lines": 2}}, 4, nil},
		"none":          {runfile.Scoring{Weights: map[string]float64{"style": 2}}, 0, runfile.ErrNoComponent},
	} {
		t.Run(name, func(t *testing.T) {
			other := cfg
			other.Scorer = c.scoring
			again, err := Rerun(t.Context(), log.Store(), Options{}, other, task, &r.Rollout)
			if !errors.Is(err, c.err) || again.Reward != c.want ||
				err == nil && (again.Trajectory != r.Scored.Trajectory || again.TaskDigest != task.Digest) {
				t.Errorf("%s: again %+v, %v", name, again, err)
			}
			if c.err != nil && NoVerdict(err) == nil {
				t.Errorf("%s: %v would be tried again", name, err)
			}
			recomposed, err := Recompose(c.scoring, r.Outcome)
			if !errors.Is(err, c.err) || recomposed.Reward != c.want && err == nil {
				t.Errorf("%s: recomposed %+v, %v", name, recomposed, err)
			}
		})
	}
	// Other tests see the same workspace.
	task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t,
		map[string]string{"test.sh": "grep -c two a.txt > /logs/verifier/reward.txt; echo mended\n"}))
	again, err := Rerun(t.Context(), log.Store(), Options{},
		runfile.RunConfig{MinVerifier: runfile.VerifierUnguarded}, task, &r.Rollout)
	if err != nil || again.Reward != 1 || again.Log == nil || len(again.Components) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestOutcome: what gives no verdict fails the rollout, what may go better does not.
func TestOutcome(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	open(t, log, "r", "echo the compiler is missing; exit 1\n", nil)
	servicetest.WaitData[events.RolloutFailed](t, log, "r", events.RolloutFailedType, rollout)
	r, cfg, task := ended(t, log, "r")
	typ, data, err := Outcome(Rerun(t.Context(), log.Store(), Options{}, cfg, task, &r.Rollout))
	if failed, ok := data.(events.RolloutFailed); typ != events.RolloutFailedType || !ok ||
		failed != *r.Failed || err != nil {
		t.Errorf("%s %+v, %v; want %+v", typ, data, err, r.Failed)
	}
	task.Tests = servicetest.Config("a").Tasks[0].Tests // which are not in the store
	if typ, data, err := Outcome(Rerun(t.Context(), log.Store(), Options{}, cfg, task, &r.Rollout)); !errors.Is(err,
		storage.ErrNotFound) {
		t.Errorf("%s %+v, %v", typ, data, err)
	}
}

func TestNothingToVerify(t *testing.T) {
	log := natstest.Log(t)
	withTests := servicetest.Config("a").Tasks[0]
	without := withTests
	without.Tests = storage.Ref{}
	finished := &events.RolloutFinished{Task: "a"}
	feedback := &events.RolloutScored{Reward: 0.25, Components: map[string]float64{"feedback": 0.25}}
	for name, c := range map[string]struct {
		task runfile.TaskSpec
		r    events.Rollout
		want float64
		err  error
	}{
		"unfinished": {withTests, events.Rollout{ID: rollout}, 0, ErrNothingToVerify},
		"an outsider's": {withTests, events.Rollout{ID: "x1-0", Finished: finished,
			Scored: &events.RolloutScored{}}, 0, ErrNothingToVerify},
		"no verifier, no feedback": {without, events.Rollout{ID: rollout, Finished: finished}, 0, ErrNothingToVerify},
		"no verifier, with feedback": {without, events.Rollout{ID: rollout, Finished: finished, Scored: feedback}, 0.25,
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			scored, err := Rerun(t.Context(), log.Store(), Options{}, runfile.RunConfig{}, c.task, &c.r)
			if !errors.Is(err, c.err) || scored.Reward != c.want {
				t.Errorf("%s: %+v, %v", name, scored, err)
			}
		})
	}
	outsider := servicetest.Event(t, "r", events.RolloutScoredType, "x1-0", "0", events.RolloutScored{Reward: 0.75})
	outsider.Source = "outside/scorer"
	if kept, err := Recompose(runfile.Scoring{Weights: map[string]float64{"style": 1}}, outsider); err != nil ||
		kept.Reward != 0.75 {
		t.Errorf("an outsider's score became %+v, %v", kept, err)
	}
}

// TestCompare finds what was planted in a recorded verdict.
func TestCompare(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	open(t, log, "scored", reward+"date +%N\n", nil)
	open(t, log, "failed", "date +%N; exit 1\n", nil)
	servicetest.WaitData[events.RolloutScored](t, log, "scored", events.RolloutScoredType, rollout)
	servicetest.WaitData[events.RolloutFailed](t, log, "failed", events.RolloutFailedType, rollout)
	for _, c := range []struct {
		run   string
		plant func(*eventlog.Ended, *runfile.TaskSpec)
		want  []string
		err   error
	}{
		{"scored", func(*eventlog.Ended, *runfile.TaskSpec) {}, nil, nil},
		{"failed", func(*eventlog.Ended, *runfile.TaskSpec) {}, nil, nil},
		{"scored", func(r *eventlog.Ended, _ *runfile.TaskSpec) { r.Scored.Reward = 1 },
			[]string{"reward 1 → 0.5"}, nil},
		{"scored", func(r *eventlog.Ended, _ *runfile.TaskSpec) { r.Scored.ExitCode = 3 },
			[]string{"exit_code 3 → 0"}, nil},
		{"scored", func(r *eventlog.Ended, _ *runfile.TaskSpec) {
			r.Scored.Components = map[string]float64{"reward": 0.5, "tests": 2}
		},
			[]string{"components.style none → 0.25", "components.tests 2 → none"}, nil},
		{"scored", func(r *eventlog.Ended, _ *runfile.TaskSpec) { r.Outcome.Source = "outside" },
			nil, ErrNothingToVerify},
		{"failed", func(r *eventlog.Ended, _ *runfile.TaskSpec) { r.Failed.Class = events.ClassDeadline },
			nil, ErrNothingToVerify},
		{"failed", func(_ *eventlog.Ended, task *runfile.TaskSpec) {
			task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": reward}))
		}, []string{"outcome run verifier: exit 1: the tests wrote neither"}, nil},
		{"scored", func(_ *eventlog.Ended, task *runfile.TaskSpec) {
			task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": "exit 1\n"}))
		}, []string{"outcome reward 0.5 → run verifier: exit 1"}, nil},
	} {
		r, cfg, task := ended(t, log, c.run)
		c.plant(&r, &task)
		found, err := Compare(t.Context(), log.Store(), Options{}, cfg, task, &r)
		var got []string
		for _, d := range found {
			got = append(got, fmt.Sprintf("%s %s → %s", d.Field, d.Recorded, d.Again))
		}
		if !errors.Is(err, c.err) || !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, %v; want %q", c.run, got, err, c.want)
		}
	}
}
