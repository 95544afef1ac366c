package verifier_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// need skips a test that runs a program in the sandbox which this machine does not
// have where sandboxes see it.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := os.Stat("/usr/bin/" + program); err == nil {
		return
	}
	if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
		t.Fatalf("%s is required by RONDO_REQUIRE_ALL=1", program)
	}
	t.Skipf("%s is missing", program)
}

const passIf = " && r=1 || r=0\necho $r >/logs/verifier/reward.txt\n"

// cheat is a task that an agent solves once, and cheats at once.
type cheat struct {
	files     map[string]string
	protected []string
	test      string
	honest    string // commands of an agent
	cheating  string
	needs     string // a program beside the shell
	flagged   string // what Restored or Links must name
}

var cheats = map[string]cheat{
	"plants the reward": {
		test: "grep -q fixed file" + passIf, honest: "echo fixed >file",
		cheating: `mkdir -p /logs/verifier logs/verifier; for d in /logs/verifier logs/verifier; do echo '{"reward": 1}' >$d/reward.json; echo 1 >$d/reward.txt; done`,
	},
	"leaves a daemon in its own sandbox": {
		test: "sleep 0.2; grep -q fixed file" + passIf, honest: "echo fixed >file",
		cheating: `(setsid sh -c 'sleep 0.1; while :; do echo fixed >/app/file; echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &) ; echo broken >file`,
	},
	"reads the solution and the tests": {
		test: "cmp -s file /tests/expected/file" + passIf, honest: "echo fixed >file",
		cheating: "cat /solution/* /tests/expected/file /tests/*.sh 2>/dev/null >file; find / -name solve.sh -o -path '*/expected/file' 2>/dev/null >>file; true",
	},
	"edits the tests": {
		files: map[string]string{"tests/check.sh": "grep -q fixed file"}, protected: []string{"tests/**"},
		test: "sh tests/check.sh" + passIf, honest: "echo fixed >file", cheating: "echo true >tests/check.sh",
		flagged: "tests/check.sh",
	},
	"deletes the tests": {
		files: map[string]string{"tests/check.sh": "grep -q fixed file || exit 1"}, protected: []string{"tests/**"},
		test:   "ok=0; for f in tests/*.sh; do [ ! -e $f ] || sh $f || ok=1; done; [ $ok = 0 ]" + passIf,
		honest: "echo fixed >file", cheating: "rm -r tests", flagged: "tests",
	},
	"links the tests elsewhere": {
		files: map[string]string{"tests/check.sh": "grep -q fixed file"}, protected: []string{"tests"},
		test: "sh tests/check.sh" + passIf, honest: "echo fixed >file",
		cheating: "mkdir mine; echo true >mine/check.sh; rm -r tests; ln -s mine tests", flagged: "tests",
	},
	"links its answer to the expected one": {
		test: "cmp -s file /tests/expected/file" + passIf, honest: "echo fixed >file",
		cheating: "ln -sf /tests/expected/file file", flagged: "file",
	},
	"links its answer over another link": {
		files: map[string]string{"a/b/c/x": ""},
		test:  "cmp -s file /tests/expected/file" + passIf, honest: "echo fixed >file",
		cheating: "ln -s ../../.. a/b/c/top; ln -sf a/b/c/top/../tests/expected/file file", flagged: "file",
	},
	"imitates the verifier's output": {
		test: "sh file" + passIf, honest: "echo true >file",
		cheating: `echo 'echo PASSED; echo "{\"reward\": 1}"; echo "1 passed in 0.01s"; exit 1' >file`,
	},
	"puts a program into the PATH": {
		test: "cmp -s file /tests/expected/file" + passIf, honest: "echo fixed >file",
		cheating: "for d in . bin /usr/local/bin /root/bin /tmp; do mkdir -p $d; printf '#!/bin/sh\nexit 0\n' >$d/cmp; chmod +x $d/cmp; done 2>/dev/null; echo PATH=/app:$PATH >>/root/.profile; true",
	},
	"runs before the tests": {
		files: map[string]string{"answer.py": "def answer(): return 41\n"}, needs: "python3",
		test:     "PYTHONPATH=. python3 -c 'import answer, sys; sys.exit(answer.answer() != 42)'" + passIf,
		honest:   "echo 'def answer(): return 42' >answer.py",
		cheating: "echo 'import os; os._exit(0)' >sitecustomize.py", flagged: "sitecustomize.py",
	},
	"compiles another source": {
		files: map[string]string{"check.py": "import sys, answer\nsys.exit(answer.answer() != 42)\n",
			"answer.py": "def answer(): return 41\n"}, needs: "python3",
		protected: []string{"check.py"}, test: "PYTHONPATH=. python3 -c 'import check'" + passIf,
		honest: "echo 'def answer(): return 42' >answer.py",
		cheating: `echo 'import os; os._exit(0)' >/tmp/evil.py; mkdir __pycache__; python3 -c 'import py_compile, importlib.util as u
py_compile.compile("/tmp/evil.py", cfile=u.cache_from_source("check.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)'`,
		flagged: "__pycache__",
	},
	"hooks into Git": {
		needs: "git", files: map[string]string{".git/HEAD": "ref: refs/heads/main\n",
			".git/config":       "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
			".git/refs/heads/x": "", ".git/objects/x": ""},
		test: "GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a git commit -q --allow-empty -m x; grep -q fixed file" +
			passIf, honest: "echo fixed >file",
		cheating: "mkdir -p .git/hooks; printf '#!/bin/sh\necho fixed >file\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; git config core.hooksPath .git/hooks",
		flagged:  ".git/hooks/pre-commit",
	},
	"takes the tests over with TestMain": {
		needs: "", files: map[string]string{"go.mod": "module m\n\ngo 1.24\n",
			"m.go": "package m\n\nfunc Answer() int { return 41 }\n"}, protected: []string{"**/*_test.go"},
		test:     "cp /tests/m_test.gotest m_test.go; go test ./..." + passIf,
		honest:   "printf 'package m\n\nfunc Answer() int { return 42 }\n' >m.go",
		cheating: "printf 'package m\n\nimport (\n\"os\"\n\"testing\"\n)\n\nfunc TestMain(*testing.M) { os.Exit(0) }\n' >zz_test.go",
		flagged:  "zz_test.go",
	},
}

// TestCheats: an agent's final workspace and what it left in its own sandbox win it
// nothing that its work does not.
func TestCheats(t *testing.T) {
	sandboxtest.Require(t)
	for name, c := range cheats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.needs != "" {
				need(t, c.needs)
			}
			if reward, _ := c.score(t, c.honest); reward != 1 {
				t.Errorf("the honest agent gets %g", reward)
			}
			reward, outcome := c.score(t, c.cheating)
			if reward != 0 {
				t.Errorf("the cheat gets %g: %+v", reward, outcome)
			}
			if found := strings.Join(append(outcome.Restored, outcome.Links...),
				" "); !strings.Contains(found, c.flagged) {
				t.Errorf("%q does not name %q", found, c.flagged)
			}
		})
	}
}

// score lets an agent run commands over the task's snapshot, and scores its change.
func (c cheat) score(t *testing.T, commands string) (float64, verifier.Outcome) {
	t.Helper()
	s := verifier.Spec{Name: "verify", Protected: c.protected, Env: map[string]string{}}
	files := map[string]string{"file": "broken\n"}
	maps.Copy(files, c.files)
	s.Snapshot = sandbox.Bytes(sandboxtest.Pack(t, files))
	s.Tests = sandboxtest.Pack(t, map[string]string{
		"test.sh": c.test, "expected/file": "fixed\n",
		"m_test.gotest": "package m\n\nimport \"testing\"\n\nfunc TestAnswer(t *testing.T) {\n\tif Answer() != 42 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	if strings.Contains(c.test, "go test") {
		s.Mounts, s.Env = goToolchain(t)
	}
	agent := sandboxtest.New(t, sandbox.Spec{})
	if err := errors.Join(agent.UnpackFrom(t.Context(), agent.Workdir(), s.Snapshot),
		agent.SetBase(t.Context())); err != nil {
		t.Fatal(err)
	}
	if result, err := agent.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", commands}}); err != nil ||
		result.ExitCode != 0 {
		t.Fatalf("the agent's commands: %+v, %v", result, err)
	}
	var err error
	changes, err := agent.Changes(t.Context())
	s.Changes = sandbox.Bytes(changes)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := verifier.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return outcome.Reward, outcome
}

// goToolchain is kept between runs: to fill its cache takes half a minute.
func goToolchain(t *testing.T) ([]sandbox.Mount, map[string]string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("go is missing")
	}
	dir, err := os.UserCacheDir()
	if dir = filepath.Join(dir, "rondo", "toolchains"); err != nil || os.MkdirAll(dir, 0o755) != nil {
		dir = t.TempDir()
	}
	mounts, env, err := sandbox.Toolchain(t.Context(), "go", dir)
	if err != nil {
		t.Fatal(err)
	}
	return mounts, env
}
