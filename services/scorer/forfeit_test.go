package scorer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// underTest is a workspace whose run.sh the tests run: what an agent writes there runs beside them.
var underTest = map[string]string{"a.txt": "one\n", "run.sh": "exit 0\n"}

const testsOfRun = "set -e\nsh run.sh\necho 1 > /logs/verifier/reward.txt\n"

// TestForfeits: whatever an agent does to the tests is its own doing, a reward of 0
// with the reason, and no failure of the machine. The tests give a verdict over the
// untouched snapshot each time.
func TestForfeits(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	attacks := map[string]struct {
		command string // run by the agent
		class   string
	}{
		"hangs":    {"echo 'while :; do :; done' > run.sh", verifier.ClassTimeout},
		"sleeps":   {"echo 'sleep 1000' > run.sh", verifier.ClassTimeout},
		"kills":    {"echo 'kill -9 $PPID' > run.sh", verifier.ClassTampered},
		"killsall": {"echo 'kill -9 -1' > run.sh", verifier.ClassTampered},
		"daemon": {"echo 'setsid sh -c \"while :; do sleep 0.01; done\" >/dev/null 2>&1 & sleep 0.2' > run.sh",
			verifier.ClassTampered},
		"ends":    {"echo 'exit 3' > run.sh", verifier.ClassNoReward},
		"missing": {"rm run.sh", verifier.ClassNoReward},
		"memory":  {"echo 'exec tail /dev/zero' > run.sh", verifier.ClassMemory},
		"bomb":    {"echo 'b() { b | b & }; b; wait; exit 7' > run.sh", ""},
	}
	for run, a := range attacks {
		left := changes(t, log, underTest, a.command)
		open(t, log, run, testsOfRun, func(task *runfile.TaskSpec, f *events.RolloutFinished) {
			task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, underTest))
			task.VerifierTimeout, f.Workspace = runfile.Duration(time.Minute), &left
			if a.class == verifier.ClassTimeout {
				task.VerifierTimeout = runfile.Duration(5 * time.Second)
			}
		})
	}
	broken := servicetest.Blob(t, log.Store(), []byte("no archive"))
	open(t, log, "archive", testsOfRun, func(task *runfile.TaskSpec, f *events.RolloutFinished) {
		task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, underTest))
		f.Workspace = &broken
	})
	attacks["archive"] = struct{ command, class string }{"", fault.ClassWorkspace}
	for run, a := range attacks {
		s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType, rollout)
		if a.class == "" && s.Reward == 0 {
			continue // it depends on what ended first
		}
		if s.Reward != 0 || s.Forfeit == nil || s.Forfeit.Class != a.class ||
			!slices.Contains(s.Flags, "forfeit: "+a.class) || s.Trajectory.Key == "" {
			t.Errorf("%s: scored %+v, forfeit %+v", run, s, s.Forfeit)
		}
		if tries := servicetest.All(t, log, run, events.RolloutRetriedType); len(tries) != 0 {
			t.Errorf("%s: %d failed tries", run, len(tries))
		}
		sameAgain(t, log, run)
	}
}

// sameAgain computes the recorded reward and the verdict again.
func sameAgain(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	cfg, err := log.Config(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	differ := RewardDifferences(cfg)
	for _, of := range []events.Type{events.RolloutStartedType, events.RolloutScoredType} {
		for _, e := range servicetest.All(t, log, run, of) {
			e.Source = topology.Scorer
			if found, err := differ(e); err != nil || len(found) > 0 {
				t.Errorf("%s: the reward differs: %+v, %v", run, found, err)
			}
		}
	}
}

// TestForfeitedRewards: a forfeit is never worth more than honest work that fails,
// whatever the weights are.
func TestForfeitedRewards(t *testing.T) {
	half := 0.5
	low := -1.0
	for what, c := range map[string]struct {
		scoring    runfile.Scoring
		components map[string]float64
		want       float64
	}{
		"plain":   {runfile.Scoring{}, nil, 0},
		"weights": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "style": 0.5}}, nil, 0},
		"effort": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": -0.5}},
			map[string]float64{"effort": 0.5}, -0.25},
		"good for effort": {runfile.Scoring{Weights: map[string]float64{"reward": 1, "effort": 0.5}},
			map[string]float64{"effort": 0.5}, 0},
		"threshold":     {runfile.Scoring{Threshold: &half}, nil, 0},
		"low threshold": {runfile.Scoring{Threshold: &low}, nil, 0},
	} {
		t.Run(what, func(t *testing.T) {
			if got, err := c.scoring.Forfeited(c.scoring.Unreported(c.components)); err != nil || got != c.want {
				t.Errorf("%s: %g, want %g: %v", what, got, c.want, err)
			}
		})
	}
}

// TestBrokenTests give no verdict whatever the agent does: that is the
// task's fault, and no forfeit.
func TestBrokenTests(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	left := changes(t, log, underTest, "echo 'exit 3' > run.sh")
	for run, script := range map[string]string{"dies": "kill -9 $$\n", "silent": "sh run.sh; exit 0\n"} {
		open(t, log, run, script, func(task *runfile.TaskSpec, f *events.RolloutFinished) {
			task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, underTest))
			f.Workspace = &left
		})
		failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
		if failed.Class != events.ClassVerifier ||
			!strings.Contains(failed.Message, "and over the task's untouched snapshot: ") {
			t.Errorf("%s: failed as %+v", run, failed)
		}
	}
}
