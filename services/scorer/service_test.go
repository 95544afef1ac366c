package scorer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

const rollout = "g000001-0"

func start(t *testing.T, log *eventlog.Log) {
	t.Helper()
	env := servicetest.Env(t, log)
	servicetest.Start(t, func(ctx context.Context) error {
		return Run(ctx, env, Options{Slots: 4, Machine: tasks.Machine{ToolchainCache: t.TempDir()}})
	})
}

// open opens a run on a task with the test script, whose rollout has finished.
func open(t *testing.T, log *eventlog.Log, run, script string,
	change func(*runfile.TaskSpec, *events.RolloutFinished)) {
	t.Helper()
	openWith(t, log, run, script, func(*runfile.RunConfig) {}, change)
}

// openWith is open with another configuration of the run, and with what happened before the end.
func openWith(t *testing.T, log *eventlog.Log, run, script string, configure func(*runfile.RunConfig),
	change func(*runfile.TaskSpec, *events.RolloutFinished), before ...events.Event) {
	t.Helper()
	cfg := servicetest.Config("a")
	cfg.Limits.Tries = 2
	configure(&cfg)
	task := &cfg.Tasks[0]
	task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"}))
	task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": script}))
	finished := events.RolloutFinished{Task: "a", Trajectory: storage.Ref{Key: "runs/" + run + "/t.arrow",
		SHA256: strings.Repeat("1", 64), Size: 9}}
	if change != nil {
		change(task, &finished)
	}
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.StartRollout(t, log, run, rollout, "a")
	for _, e := range before {
		servicetest.Append(t, log, e)
	}
	servicetest.Append(t, log, servicetest.Event(t, run, events.RolloutFinishedType, rollout, "0", finished))
}

// changes is the change archive of a workspace in which a command ran.
func changes(t *testing.T, log *eventlog.Log, snapshot map[string]string, command string) storage.Ref {
	t.Helper()
	sb := sandboxtest.New(t, sandbox.Spec{Workdir: "/app"})
	if err := sb.Unpack(t.Context(), "/app", sandboxtest.Pack(t, snapshot)); err != nil {
		t.Fatal(err)
	}
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", command}}); err != nil {
		t.Fatal(err)
	}
	archive, err := sb.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return servicetest.Blob(t, log.Store(), archive)
}

const reward = `echo '{"reward": 0.5, "style": 0.25}' > /logs/verifier/reward.json` + "\n"

func TestScores(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	solved := changes(t, log, map[string]string{"a.txt": "one\n"}, "echo two > a.txt")
	open(t, log, "components", "echo looking; echo odd >&2; "+reward, nil)
	open(t, log, "untouched", "grep -q two a.txt && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n", nil)
	open(t, log, "solved", "grep -q two a.txt && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n",
		func(_ *runfile.TaskSpec, f *events.RolloutFinished) { f.Workspace, f.TextOnly = &solved, true })
	open(t, log, "environment", `[ "$A$B" = ab ] && echo 1 > /logs/verifier/reward.txt`,
		func(task *runfile.TaskSpec, _ *events.RolloutFinished) {
			task.Env, task.VerifierEnv = map[string]string{"A": "a", "B": "x"}, map[string]string{"B": "b"}
		})
	scored := map[string]events.RolloutScored{}
	cheated := changes(t, log, map[string]string{"a.txt": "one\n", "check.sh": "grep -q two a.txt\n"},
		"echo true > check.sh; ln -s /tests/test.sh link")
	open(t, log, "cheated", "sh check.sh && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n",
		func(task *runfile.TaskSpec, f *events.RolloutFinished) {
			task.Snapshot = servicetest.Blob(t, log.Store(),
				sandboxtest.Pack(t, map[string]string{"a.txt": "one\n", "check.sh": "grep -q two a.txt\n"}))
			task.Protected, f.Workspace = []string{"check.sh"}, &cheated
		})
	for run, want := range map[string]float64{"components": 0.5, "untouched": 0, "solved": 1,
		"environment": 1, "cheated": 0} {
		s := servicetest.WaitData[events.RolloutScored](t, log, run, events.RolloutScoredType, rollout)
		if s.Reward != want || s.TaskDigest != "sha256:a" || s.Trajectory.Key != "runs/"+run+"/t.arrow" {
			t.Errorf("%s: scored %+v, want reward %g", run, s, want)
		}
		scored[run] = s
	}
	s := scored["components"]
	filesystem, user := "copy", sandbox.UserShared
	if os.Geteuid() == 0 {
		filesystem, user = "overlay", sandbox.UserOwn
	}
	if s.Isolation == "" || s.Filesystem != filesystem || s.User != user || s.Build == "" || len(s.Flags) > 0 {
		t.Errorf("scored in %q on %q as %q by %q, flags %q", s.Isolation, s.Filesystem, s.User, s.Build, s.Flags)
	}
	if s.ExitCode != 0 || s.Components["style"] != 0.25 || s.Components["reward"] != 0.5 || s.Log == nil {
		t.Fatalf("scored %+v", s)
	}
	if text, err := storage.GetBlob(t.Context(), log.Store(), *s.Log); err != nil || string(text) != "looking\nodd\n" {
		t.Errorf("the log is %q: %v", text, err)
	}
	if flags := strings.Join(scored["cheated"].Flags, ", "); flags != "link_outside: link, protected_path: check.sh" {
		t.Errorf("the cheat's flags are %q", flags)
	}
	if !scored["solved"].TextOnly || scored["untouched"].TextOnly {
		t.Error("text only is not passed on")
	}
	// A delivery that comes again finds nothing to do.
	finished := servicetest.All(t, log, "solved", events.RolloutFinishedType)[0]
	facts, err := (&Service{store: log.Store()}).Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: finished})
	if err != nil || len(facts) != 0 {
		t.Errorf("scored again: %v, %v", facts, err)
	}
}

// TestGradedTestsAreStated: a verdict names the graded tests that did not hold, and so does that of
// a stage. Tests that write their reward name none.
func TestGradedTestsAreStated(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	script := "echo '<testsuite><testcase name=\"a\"><failure message=\"1 is not 2\"/></testcase><testcase name=\"b\"/></testsuite>' >/logs/verifier/junit.xml\n" +
		"echo '" + grade.StartMark + "'\necho '" + grade.EndMark + "'\necho '" + grade.ExitMark + "'1\n"
	graded := servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{
		"test.sh": script, grade.File: `{"parser": "junit", "fail_to_pass": ["a"], "pass_to_pass": ["b", "c"]}`,
	}))
	open(t, log, "graded", "", func(task *runfile.TaskSpec, _ *events.RolloutFinished) { task.Tests = graded })
	open(t, log, "written", reward, nil)
	openWith(t, log, "staged", "", func(*runfile.RunConfig) {},
		func(task *runfile.TaskSpec, _ *events.RolloutFinished) {
			task.Steps = []runfile.StepSpec{{Name: "first", Tests: graded}}
		}, servicetest.Event(t, "staged", events.StepFinishedType, rollout, "0", events.StepFinished{}))
	want := &grade.Tests{Graded: 3, Held: 1, Unmet: []grade.UnmetTest{{Name: "a", State: "failed",
		Message: "1 is not 2"}, {Name: "c", State: "missing", Regression: true}}}
	if s := servicetest.WaitData[events.RolloutScored](t, log, "graded", events.RolloutScoredType,
		rollout); !reflect.DeepEqual(s.Tests, want) {
		t.Errorf("%+v", s.Tests)
	}
	if s := servicetest.WaitData[events.StepScored](t, log, "staged", events.StepScoredType,
		rollout); !reflect.DeepEqual(s.Tests, want) {
		t.Errorf("of a stage: %+v", s.Tests)
	}
	if s := servicetest.WaitData[events.RolloutScored](t, log, "written", events.RolloutScoredType,
		rollout); s.Tests != nil {
		t.Errorf("without a grading: %+v", s.Tests)
	}
}

// TestVerifiersThatGiveNoVerdict over the untouched snapshot either fail the rollout at once:
// trying again gives none either, and none is not 0.
func TestVerifiersThatGiveNoVerdict(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	start(t, log)
	cases := map[string]struct {
		script string
		change func(*runfile.TaskSpec, *events.RolloutFinished)
		want   string
	}{
		"none":   {"echo the compiler is missing; exit 1\n", nil, "its log ends: the compiler is missing"},
		"nan":    {"echo NaN > /logs/verifier/reward.txt\n", nil, "reward"},
		"text":   {"echo '{\"reward\": \"much\"}' > /logs/verifier/reward.json\n", nil, "reward"},
		"no-key": {"echo '{\"score\": 1}' > /logs/verifier/reward.json\n", nil, "reward"},
		"timeout": {"echo waiting; sleep 60\n", func(task *runfile.TaskSpec, _ *events.RolloutFinished) {
			task.VerifierTimeout = runfile.Duration(4 * time.Second) // in which it says so, on a busy machine too
		}, "its log ends: waiting"},
	}
	for run, c := range cases {
		open(t, log, run, c.script, c.change)
	}
	for run, c := range cases {
		failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
		if failed.Stage != events.StageScorer || failed.Class != events.ClassVerifier ||
			!strings.Contains(failed.Message, c.want) || strings.Count(failed.Message, "run verifier") != 1 {
			t.Errorf("%s: failed as %+v, want %q", run, failed, c.want)
		}
		if retried := servicetest.All(t, log, run, events.RolloutRetriedType); len(retried) != 0 {
			t.Errorf("%s: tried %d times more", run, len(retried))
		}
	}
}

// TestObjectsThatAreGone are tried again, since a store may be late, and then fail the rollout.
func TestObjectsThatAreGone(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	missing := servicetest.Config("a").Tasks[0].Snapshot
	corrupt := servicetest.Blob(t, log.Store(), []byte("x"))
	corrupt.SHA256 = strings.Repeat("0", 64)
	cases := map[string]struct {
		change func(*runfile.TaskSpec, *events.RolloutFinished)
		class  string
		want   string
	}{
		"snapshot": {func(task *runfile.TaskSpec, _ *events.RolloutFinished) { task.Snapshot = missing },
			events.ClassObject, "snapshot of task a"},
		"tests": {func(task *runfile.TaskSpec, _ *events.RolloutFinished) { task.Tests = corrupt },
			events.ClassObject, "tests of task a"},
		"workspace": {func(_ *runfile.TaskSpec, f *events.RolloutFinished) { f.Workspace = &missing },
			events.ClassObject, "workspace"},
		"toolchain": {func(task *runfile.TaskSpec, _ *events.RolloutFinished) { task.Toolchains = []string{"cobol"} },
			events.ClassSandbox, "cobol"},
	}
	for run, c := range cases {
		open(t, log, run, reward, c.change)
	}
	for run, c := range cases {
		failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
		if failed.Stage != events.StageScorer || failed.Class != c.class || !strings.Contains(failed.Message, c.want) ||
			!strings.HasSuffix(failed.Message, "(2 tries)") {
			t.Errorf("%s: failed as %+v", run, failed)
		}
		retried := servicetest.All(t, log, run, events.RolloutRetriedType)
		if len(retried) != 1 || servicetest.Data[events.RolloutRetried](t, retried[0]).Class != c.class {
			t.Errorf("%s: tried again %v", run, servicetest.IDs(retried))
		}
	}
}

// TestClasses: only what may go better is tried again.
func TestClasses(t *testing.T) {
	cfg := runfile.RunConfig{Limits: runfile.Limits{Tries: 5}}
	for class, again := range map[string]bool{
		verifier.ClassTimeout: false, verifier.ClassNoReward: false, verifier.ClassBadReward: false,
		verifier.ClassTampered: false,
		verifier.ClassMemory:   false, verifier.ClassApply: false, verifier.ClassSandbox: true,
	} {
		t.Run(class, func(t *testing.T) {
			cause := fmt.Errorf("score: %w", &verifier.Error{Class: class, Err: errors.New("odd")})
			facts, err := failed(cfg, &events.Rollout{Run: "r", ID: rollout, Tail: 3}, cause)
			want := events.RolloutFailedType
			if again {
				want = events.RolloutRetriedType
			}
			if len(facts) != 1 || facts[0].Type != want || (err != nil) != again {
				t.Errorf("class %s: %v, %v", class, servicetest.IDs(facts), err)
			}
		})
	}
}

// TestLongLogs are quoted by their end.
func TestLongLogs(t *testing.T) {
	text := withLog(&verifier.Error{Err: errors.New("odd"), Log: []byte(strings.Repeat("ä", 5000) + "the end")}).Error()
	if len(text) > quoted+100 || !strings.HasSuffix(text, "the end") ||
		!strings.HasPrefix(text, "run verifier: odd; its log ends: ") {
		t.Errorf("%d bytes: %.80q", len(text), text)
	}
}
