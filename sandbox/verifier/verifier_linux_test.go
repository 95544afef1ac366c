package verifier_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

func TestMain(m *testing.M) {
	if os.Getenv("RONDO_TEST_ACTOR") == "refused" {
		scoreWhereNamespacesAreRefused()
		return
	}
	os.Exit(m.Run())
}

// scoreWhereNamespacesAreRefused runs in a sandbox, where no sandbox can be made.
func scoreWhereNamespacesAreRefused() {
	snapshot, err := sandbox.Pack(fstest.MapFS{"file": {Data: []byte("content\n")}})
	if err != nil {
		panic(err)
	}
	tests, err := sandbox.Pack(fstest.MapFS{"test.sh": {Data: []byte(
		`cat /app/file /tests/more; pwd; echo '{"reward": 0.5}' > /logs/verifier/reward.json`)},
		"more": {Data: []byte("more\n")}})
	if err != nil {
		panic(err)
	}
	for _, insecure := range []bool{false, true} {
		outcome, err := verifier.Run(context.Background(),
			verifier.Spec{Name: "inner", Snapshot: sandbox.Bytes(snapshot), Tests: tests, AllowInsecure: insecure})
		fmt.Printf("%v %q %v\n", outcome.Reward, outcome.Log, err)
	}
}

func TestWithoutIsolation(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Mounts: []sandbox.Mount{{Source: program, Target: "/opt/program"}}})
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/opt/program"},
		Env: map[string]string{"RONDO_TEST_ACTOR": "refused"}})
	if err != nil {
		t.Fatal(err)
	}
	refused, scored, _ := strings.Cut(string(result.Stdout), "\n")
	if !strings.Contains(refused, "operation not permitted") ||
		strings.TrimSpace(scored) != `0.5 "content\nmore\n/app\n" <nil>` {
		t.Errorf("got %s%s", result.Stdout, result.Stderr)
	}
}

// spec scores a workspace of one file by a script.
func spec(t *testing.T, test string) verifier.Spec {
	t.Helper()
	sandboxtest.Require(t)
	return verifier.Spec{
		Name:     "verify",
		Snapshot: sandbox.Bytes(sandboxtest.Pack(t, map[string]string{"file": "broken\n", "old": "x"})),
		Tests:    sandboxtest.Pack(t, map[string]string{"test.sh": test, "expected/file": "fixed\n"}),
	}
}

const compare = `if cmp -s file /tests/expected/file; then echo '{"reward": 1, "passed": 3}'; else echo '{"reward": 0, "passed": 1}'; fi > /logs/verifier/reward.json`

func TestScore(t *testing.T) {
	s := spec(t, compare)
	outcome, err := verifier.Run(t.Context(), s)
	if err != nil || outcome.Reward != 0 || outcome.Components["passed"] != 1 {
		t.Errorf("nothing done: %+v, %v; want 0", outcome, err)
	}
	// An agent repairs it.
	agent := sandboxtest.New(t, sandbox.Spec{})
	if err := errors.Join(agent.UnpackFrom(t.Context(), agent.Workdir(), s.Snapshot), agent.SetBase(t.Context()),
		agent.WriteFile(t.Context(), "file", []byte("fixed\n"), 0)); err != nil {
		t.Fatal(err)
	}
	changes, err := agent.Changes(t.Context())
	s.Changes = sandbox.Bytes(changes)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err = verifier.Run(t.Context(), s)
	if err != nil || outcome.Reward != 1 || outcome.Components["passed"] != 3 || outcome.Components["reward"] != 1 {
		t.Errorf("repaired: %+v, %v; want 1", outcome, err)
	}
}

func TestRewardFiles(t *testing.T) {
	write := func(name, content string) string {
		return "cat > /logs/verifier/" + name + " <<'EOT'\n" + content + "\nEOT\n"
	}
	tests := []struct {
		name, script string
		reward       float64
		class        string // of the error, where one is wanted
	}{
		{"object", write("reward.json", `{"reward": 0.25, "other": -3}`), 0.25, ""},
		{"bare number", write("reward.json", `0.5`), 0.5, ""},
		{"text", write("reward.txt", " 0.75 "), 0.75, ""},
		{"both files", write("reward.txt", "1") + write("reward.json", `{"reward": 1, "tests": 3}`), 1, ""},
		{"both files, which disagree", write("reward.txt", "0") + write("reward.json", `{"reward": 1}`), 0,
			verifier.ClassTampered},
		{"a reward and a failure", write("reward.txt", "1") + "exit 9", 0, verifier.ClassTampered},
		{"no reward and a failure", write("reward.txt", "0") + "exit 9", 0, ""},
		{"runs in the workspace", "pwd > /tmp/x; test $(cat /tmp/x file | tr -d '\\n') = /appbroken && " +
			write("reward.txt", "1"), 1, ""},
		{"bash", `[[ a == a ]] && a=(1 2) && echo ${#a[@]} > /logs/verifier/reward.txt`, 2, ""},
		{"none", "echo some output; exit 3", 0, verifier.ClassNoReward},
		{"no test", "", 0, verifier.ClassNoReward},
		{"empty json", ": > /logs/verifier/reward.json", 0, verifier.ClassBadReward},
		{"empty text", ": > /logs/verifier/reward.txt", 0, verifier.ClassBadReward},
		{"broken json does not fall back", write("reward.json", `{"reward":`) + write("reward.txt", "1"), 0,
			verifier.ClassBadReward},
		{"no reward key", write("reward.json", `{"score": 1}`), 0, verifier.ClassBadReward},
		{"string", write("reward.json", `{"reward": "1"}`), 0, verifier.ClassBadReward},
		{"null", write("reward.json", `{"reward": null}`), 0, verifier.ClassBadReward},
		{"bare null", write("reward.json", `null`), 0, verifier.ClassBadReward},
		{"two rewards", write("reward.json", `{"reward": 0, "reward": 1}`), 0, verifier.ClassBadReward},
		{"nested", write("reward.json", `{"reward": 1, "more": {"a": 1}}`), 0, verifier.ClassBadReward},
		{"overflow", write("reward.json", `{"reward": 1e999}`), 0, verifier.ClassBadReward},
		{"infinite text", write("reward.txt", "inf"), 0, verifier.ClassBadReward},
		{"not a number", write("reward.txt", "nan"), 0, verifier.ClassBadReward},
		{"words", write("reward.txt", "all good"), 0, verifier.ClassBadReward},
		{"two numbers", write("reward.txt", "1 1"), 0, verifier.ClassBadReward},
		{"too large", "head -c 1100000 /dev/zero | tr '\\0' ' ' > /logs/verifier/reward.json", 0,
			verifier.ClassBadReward},
		{"folder", "mkdir /logs/verifier/reward.json", 0, verifier.ClassTampered},
		{"pipe", "mkfifo /logs/verifier/reward.json", 0, verifier.ClassTampered},
		{"device", "ln -s /dev/zero /logs/verifier/reward.json", 0, verifier.ClassTampered},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			outcome, err := verifier.Run(t.Context(), spec(t, test.script))
			if test.class == "" {
				if err != nil || outcome.Reward != test.reward {
					t.Errorf("got %+v, %v; want reward %v", outcome, err, test.reward)
				}
				return
			}
			var failure *verifier.Error
			if !errors.As(err, &failure) || failure.Class != test.class {
				t.Errorf("got %+v, %v; want an error of class %s", outcome, err, test.class)
			}
		})
	}
}

func TestFailureClasses(t *testing.T) {
	hog := `awk 'BEGIN { s = "x"; while (1) s = s s }'`
	tests := []struct {
		name   string
		script string
		change func(*verifier.Spec)
		class  string
		text   string
	}{
		{"timeout", "echo begun; sleep 100", func(s *verifier.Spec) { s.Timeout = 300 * time.Millisecond },
			verifier.ClassTimeout, "run verifier: timed out after 300ms"},
		{"timeout after the reward", "echo 1 > /logs/verifier/reward.txt; sleep 100",
			func(s *verifier.Spec) { s.Timeout = 300 * time.Millisecond }, verifier.ClassTimeout, "timed out"},
		{"out of memory", "exec " + hog, func(s *verifier.Spec) {
			s.Limits = sandbox.Limits{MemoryBytes: 64 << 20,
				DiskBytes: 1 << 20}
		}, verifier.ClassMemory, "out of memory"},
		{"changes", compare, func(s *verifier.Spec) { s.Changes = sandbox.Bytes([]byte("no archive")) },
			verifier.ClassApply, "apply the changes"},
		{"a store that fails", compare, func(s *verifier.Spec) {
			s.Changes = func() (io.ReadCloser, error) { return nil, syscall.EACCES }
		}, verifier.ClassSandbox, "its source failed: permission denied"},
		{"a store that fails on the way", compare, func(s *verifier.Spec) {
			s.Changes = func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(syscall.EACCES)), nil }
		}, verifier.ClassSandbox, "its source failed: permission denied"},
		{"snapshot", compare, func(s *verifier.Spec) { s.Snapshot = sandbox.Bytes([]byte("no archive")) },
			verifier.ClassSandbox, "lay out the snapshot"},
		{"tests", compare, func(s *verifier.Spec) { s.Tests = []byte("no archive") }, verifier.ClassSandbox, "/tests"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := spec(t, test.script)
			test.change(&s)
			outcome, err := verifier.Run(t.Context(), s)
			var failure *verifier.Error
			if !errors.As(err, &failure) || failure.Class != test.class || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %+v, %v; want an error of class %s with %q", outcome, err, test.class, test.text)
			}
		})
	}
	t.Run("log of a failure", func(t *testing.T) {
		_, err := verifier.Run(t.Context(), spec(t, "echo to out; echo to err >&2; exit 3"))
		var failure *verifier.Error
		if !errors.As(err, &failure) || string(failure.Log) != "to out\nto err\n" ||
			!strings.Contains(err.Error(), "exit 3") {
			t.Errorf("%v, log %q", err, failure.Log)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		var failure *verifier.Error
		if _, err := verifier.Run(ctx, spec(t, "sleep 100")); !errors.Is(err, context.DeadlineExceeded) ||
			errors.As(err, &failure) {
			t.Errorf("%v, want the context's error and no class", err)
		}
	})
}

// The agent's code runs as part of the tests, and cheats. It may cost it
// its score, but not win one.
func TestAgentCodeCannotChangeTheVerdict(t *testing.T) {
	cheats := map[string]struct{ program, class string }{
		"daemon overwrites the reward": {`#!/bin/sh
(setsid sh -c 'while :; do echo "{\"reward\": 99}" > /logs/verifier/reward.json; done' >/dev/null 2>&1 &)`, verifier.ClassTampered},
		"daemon waits for the reward": {`#!/bin/sh
(setsid sh -c 'while [ ! -s /logs/verifier/reward.json ]; do :; done; echo 99 > /logs/verifier/reward.json' >/dev/null 2>&1 &)`, verifier.ClassTampered},
		"daemon waits for the tests' end": {`#!/bin/sh
(setsid sh -c 'while [ -e /proc/'$PPID' ]; do :; done; echo 99 > /logs/verifier/reward.json' >/dev/null 2>&1 &)`, verifier.ClassTampered},
		"rewrites the tests": {"#!/bin/sh\necho 'echo 99 > /logs/verifier/reward.txt' > /tests/test.sh; cp file /tests/expected/file; rm -rf /tests/expected; mv /tests /x", ""},
		"replaces a program": {"#!/bin/sh\nprintf '#!/bin/sh\nexit 0' > /usr/bin/cmp; cp /bin/true /usr/local/bin/cmp; ln -sf /bin/true /usr/bin/cmp", ""},
		"pre-seeds":          {"#!/bin/sh\nmkdir -p /logs/verifier; echo 99 > /logs/verifier/reward.json", ""},
		"mounts over":        {"#!/bin/sh\nmount -t tmpfs x /tests; unshare -Urm mount --bind /app /tests", ""},
		"shoots at init":     {"#!/bin/sh\nkill -STOP 1; kill -SEGV 1; kill -KILL 1; true", ""},
		"locks the folder":   {"#!/bin/sh\nchmod 555 /tests /tests/expected", ""},
		"writes and locks": {"#!/bin/sh\necho 99 > /logs/verifier/reward.json; chmod 444 /logs/verifier/reward.json",
			verifier.ClassTampered},
		"locks reward's folder": {"#!/bin/sh\necho 99 > /logs/verifier/reward.json; chmod 444 /logs/verifier/reward.json; chmod 555 /logs/verifier",
			verifier.ClassTampered},
		"replaces the folder": {`#!/bin/sh
mv /logs/verifier /logs/old && mkdir /logs/verifier && echo 99 > /logs/verifier/reward.json; chmod 444 /logs/verifier/reward.json`, verifier.ClassTampered},
		"links the folder": {`#!/bin/sh
mv /logs/verifier /logs/old && mkdir /tmp/v && echo 99 > /tmp/v/reward.json && chmod 444 /tmp/v/reward.json && ln -s /tmp/v /logs/verifier`, verifier.ClassTampered},
		"links the reward": {"#!/bin/sh\necho 99 > /tmp/mine; chmod 444 /tmp/mine; ln -s /tmp/mine /logs/verifier/reward.json",
			verifier.ClassTampered},
		"links the reward twice": {"#!/bin/sh\necho 99 > /logs/verifier/reward.json; ln /logs/verifier/reward.json /logs/verifier/again",
			verifier.ClassTampered},
		"writes the other file": {"#!/bin/sh\necho 99 > /logs/verifier/reward.txt", verifier.ClassTampered},
		"makes it a folder": {"#!/bin/sh\nmkdir /logs/verifier/reward.txt; echo 99 > /logs/verifier/reward.json",
			verifier.ClassTampered},
		// Bash ends itself by an interruption that also ended what it waited
		// for: nothing is left behind.
		"interrupts the tests": {"#!/bin/bash\necho 99 > /logs/verifier/reward.txt; kill -INT $PPID $$; sleep 9",
			verifier.ClassTampered},
	}
	for name, cheat := range cheats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // some are races
				s := spec(t, "./program; sleep 0.05; "+compare)
				s.Snapshot = sandbox.Bytes(sandboxtest.Pack(t,
					map[string]string{"file": "broken\n", "program": cheat.program}))
				outcome, err := verifier.Run(t.Context(), s)
				if cheat.class == "" && err == nil && outcome.Reward == 0 {
					continue
				}
				var failure *verifier.Error
				if cheat.class == "" || !errors.As(err, &failure) || failure.Class != cheat.class {
					t.Fatalf("got %+v, %v", outcome, err)
				}
			}
		})
	}
}

func TestHelpersThatEndInTimeAreNoCheats(t *testing.T) {
	s := spec(t, `(setsid sh -c 'sleep 0.05; echo helped > /tmp/helped' &); while [ ! -s /tmp/helped ]; do sleep 0.05; done; sleep 1; echo 1 > /logs/verifier/reward.txt`)
	if outcome, err := verifier.Run(t.Context(), s); err != nil || outcome.Reward != 1 {
		t.Errorf("%+v, %v", outcome, err)
	}
}

func TestEnvironment(t *testing.T) {
	s := spec(t, `echo "$TZ $LC_ALL $PYTHONHASHSEED $TEST_DIR $OWN" >&2; ls -A /logs/verifier /tmp; date +%Z; echo 1 > /logs/verifier/reward.txt`)
	s.Env = map[string]string{"OWN": "own"}
	outcome, err := verifier.Run(t.Context(), s)
	if want := "/logs/verifier:\n\n/tmp:\nUTC\nUTC C.UTF-8 0 /tests own\n"; err != nil || string(outcome.Log) != want {
		t.Errorf("%v, log %q, want %q", err, outcome.Log, want)
	}
}
