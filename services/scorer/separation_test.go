package scorer

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestSeparation: a score says how far its tests were from the code under test, and a run
// that demands more gets none.
func TestSeparation(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	// the workspace is not where separate tests are
	const passes = "[ -e a.txt ] && r=0.5 || r=1\necho $r > /logs/verifier/reward.txt\n"
	separate := func(task *runfile.TaskSpec, _ *events.RolloutFinished) {
		task.Verifier, task.Env, task.VerifierEnv = runfile.VerifierSeparate, map[string]string{"SHARED": "yes"},
			map[string]string{"SECRET": "tests"}
	}
	open(t, log, runfile.VerifierUnguarded, passes, nil)
	open(t, log, "separate",
		"[ \"$(under-test sh -c 'cat a.txt; echo $SHARED$SECRET')\" = \"$(printf 'one\\nyes')\" ] && [ $SECRET = tests ] || exit 1\n"+passes, separate)
	for run, want := range map[string]float64{runfile.VerifierUnguarded: 0.5, runfile.VerifierSeparate: 1} {
		if s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType,
			rollout); s.Reward != want || s.Verifier != run {
			t.Errorf("%s: scored %+v", run, s)
		}
	}
	demanding := func(run string, change func(*runfile.TaskSpec, *events.RolloutFinished)) {
		openWith(t, log, run, passes, func(cfg *runfile.RunConfig) { cfg.MinVerifier = "" }, change)
	}
	demanding("too-little", nil)
	demanding("enough", separate)
	if f := servicetest.WaitData[events.RolloutFailed](t, log, "too-little", events.RolloutFailedType,
		rollout); f.Class != events.ClassSeparation || f.Stage != events.StageScorer {
		t.Errorf("failed %+v", f)
	}
	if s := servicetest.WaitData[events.RolloutScored](t, log, "enough", events.RolloutScoredType,
		rollout); s.Verifier != runfile.VerifierSeparate {
		t.Errorf("scored %+v", s)
	}
}
