package swebench

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// instance is one of SWE-bench's kind, made ready to be attacked.
type instance struct {
	task            *tasks.Task
	snapshot, tests []byte
	mounts          []sandbox.Mount
	env             map[string]string
}

// prepare imports an instance after change, and packs it.
func prepare(t *testing.T, source, repo string, change func(*Instance)) instance {
	t.Helper()
	list, err := readAll(source)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d instances, %v", len(list), err)
	}
	change(&list[0])
	dir := t.TempDir()
	if err := list[0].Write(t.Context(), dir, Repositories{list[0].Repo: repo}); err != nil {
		t.Fatal(err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	i := instance{task: loaded[0]}
	if i.snapshot, err = sandbox.Pack(i.task.Snapshot); err != nil {
		t.Fatal(err)
	}
	if i.tests, err = sandbox.Pack(i.task.Tests); err != nil {
		t.Fatal(err)
	}
	if len(i.task.Toolchains) > 0 {
		if i.mounts, i.env, err = sandbox.Toolchain(t.Context(), i.task.Toolchains[0], cacheDir(t)); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// score lets an agent run commands in the workspace and grades what it leaves.
func (i instance) score(t *testing.T, commands string) (reward float64, class, log string) {
	t.Helper()
	agent := sandboxtest.New(t, sandbox.Spec{Workdir: workdir})
	if err := errors.Join(agent.Unpack(t.Context(), workdir, i.snapshot), agent.SetBase(t.Context())); err != nil {
		t.Fatal(err)
	}
	if result, err := agent.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", commands}}); err != nil ||
		result.ExitCode != 0 {
		t.Fatalf("%s%s, %v", result.Stdout, result.Stderr, err)
	}
	changes, err := agent.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := verifier.Run(t.Context(), verifier.Spec{
		Name: "verify", Workdir: workdir, Snapshot: sandbox.Bytes(i.snapshot), Changes: sandbox.Bytes(changes),
		Tests: i.tests, Protected: i.task.Protected, Mounts: i.mounts, Env: i.env,
	})
	if failure := (*verifier.Error)(nil); errors.As(err, &failure) {
		return 0, failure.Class, failure.Error() + string(failure.Log)
	}
	return outcome.Reward, "", string(outcome.Log)
}

// attack scores an attack. One that forges in some runs and not in others, as a thread
// that comes too late does, guesses which runs are true: it wins one verdict in
// fifteen, and not three in a row.
func (i instance) attack(t *testing.T, commands string) (reward float64, class, log string) {
	t.Helper()
	for range 3 {
		if reward, class, log = i.score(t, commands); reward == 0 {
			break
		}
	}
	return reward, class, log
}

// TestAttacksOnPython: code under test in the process of its tests wins nothing, as it passes
// canaries, too, wherever it decides its verdict.
func TestAttacksOnPython(t *testing.T) {
	sandboxtest.Require(t)
	need(t, "python3", "git")
	const fix = "sed -i 's/lower())/lower()).strip(\"-\")/' slugs.py"
	programs := map[string]instance{"unittest": prepare(t, "testdata/instances.jsonl",
		"testdata/repos/slugs", func(*Instance) {})}
	if havePytest(t) {
		programs["pytest"] = prepare(t, "testdata/instances.jsonl", "testdata/repos/slugs", func(i *Instance) {
			i.LogParser, i.TestCommand = "parse_log_pytest_v2", "python3 -m pytest -rA tests/test_slugs.py"
			i.FailToPass, i.PassToPass = Names{"tests/test_slugs.py::TestSlugs::test_edges"},
				Names{"tests/test_slugs.py::TestSlugs::test_words", "tests/test_slugs.py::TestSlugs::test_umlauts"}
		})
	}
	if havePytest(t) {
		programs["junit"] = prepare(t, "testdata/instances.jsonl", "testdata/repos/slugs", func(i *Instance) {
			i.LogParser, i.TestCommand = "junit",
				"python3 -m pytest -rA --junitxml=/logs/verifier/junit.xml tests/test_slugs.py"
			i.FailToPass, i.PassToPass = Names{"tests.test_slugs.TestSlugs.test_edges"},
				Names{"tests.test_slugs.TestSlugs.test_words", "tests.test_slugs.TestSlugs.test_umlauts"}
		})
	}
	// Lists of Django's tests name a test by its description where it has one.
	const described, title = "unittest, described", "Dashes at both ends are dropped."
	programs[described] = prepare(t, "testdata/instances.jsonl", "testdata/repos/slugs", func(i *Instance) {
		i.TestPatch = strings.Replace(strings.Replace(i.TestPatch, "+7,9 @@", "+7,10 @@", 1),
			"    def test_edges(self):\n", "    def test_edges(self):\n+        \"\"\""+title+"\"\"\"\n", 1)
		i.FailToPass = Names{title}
	})
	for program, i := range programs {
		for name, commands := range map[string]string{"the fix": fix,
			"a commit of the fix": fix + "; git -c user.name=a -c user.email=a commit -qam fixed"} {
			t.Run(program+"/"+name, func(t *testing.T) {
				t.Parallel()
				for range nightly.Count(1, 3) {
					if reward, class, log := i.score(t, commands); reward != 1 {
						t.Fatalf("reward %g %s: %s", reward, class, log)
					}
				}
			})
		}
		for name, a := range pythonAttacks {
			// By day the attacks that know the description or move it: to the others a
			// test with one is a test.
			if program == described && !nightly.On() && !strings.Contains(a.commands, title) &&
				!strings.Contains(a.commands, "__doc__") {
				continue
			}
			t.Run(program+"/"+name, func(t *testing.T) {
				t.Parallel()
				if reward, class, log := i.attack(t, a.commands); reward != 0 ||
					a.class != "" && class != a.class && program != "junit" {
					t.Errorf("reward %g %s, want 0 %s: %s", reward, class, a.class, log)
				}
			})
		}
	}
}

// TestShadowedModules: what the reporter loads is the standard library's, whatever stands in the
// folders that PYTHONPATH names.
func TestShadowedModules(t *testing.T) {
	sandboxtest.Require(t)
	need(t, "python3", "git")
	const command = "PYTHONPATH=$PYTHONPATH:/testbed:.: python3 -m unittest -v tests.test_slugs"
	i := prepare(t, "testdata/instances.jsonl", "testdata/repos/slugs", func(i *Instance) { i.TestCommand = command })
	const shadow = "mkdir unittest; for m in json socket atexit threading functools types unittest/__init__ unittest/case; do echo 'print(\"SHADOW\")' >$m.py; done"
	const fix = "; sed -i 's/lower())/lower()).strip(\"-\")/' slugs.py"
	if reward, class, log := i.score(t, shadow+fix); reward != 1 || strings.Contains(log, "SHADOW") {
		t.Errorf("reward %g %s: %s", reward, class, log)
	}
}

// havePytest tells whether sandboxes see a pytest.
func havePytest(t *testing.T) bool {
	t.Helper()
	if _, err := os.Stat("/usr/lib/python3/dist-packages/pytest"); err == nil {
		return true
	}
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatal("Debian's python3-pytest is required by RONDO_REQUIRE_ALL=1")
	}
	t.Log("without pytest: Debian's python3-pytest is missing")
	return false
}
