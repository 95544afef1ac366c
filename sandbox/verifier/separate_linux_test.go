package verifier_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// separateSpec is a task whose tests are apart from a workspace of these files.
func separateSpec(t *testing.T, test string, workspace map[string]string) verifier.Spec {
	t.Helper()
	sandboxtest.Require(t)
	return verifier.Spec{
		Name: "separate", Separate: true, Snapshot: sandbox.Bytes(sandboxtest.Pack(t, workspace)),
		Tests: sandboxtest.Pack(t, map[string]string{"test.sh": test, "answer": "42\n"}),
	}
}

// TestUnderTest: a command runs in the other sandbox, with what its caller gives it,
// and ends as it would here.
func TestUnderTest(t *testing.T) {
	const expect = `
n=0
is() {
	n=$((n + 1))
	[ "$1" = "$2" ] || { echo "case $n: want <$1>, got <$2>"; exit 0; }
}
echo 0 >/logs/verifier/reward.txt
`
	cases := map[string]string{
		"streams":          `is "in:hello err" "$(printf hello | under-test sh -c 'printf in:; cat; echo " err" >&2' 2>&1)"; is out "$(under-test sh -c 'echo err >&2; echo out' 2>/dev/null)"`,
		"order of one":     `is "1 2 3 " "$(under-test sh -c 'printf "1 "; printf "2 " >&2; printf "3 "' 2>&1)"`,
		"exit codes":       `under-test true; is 0 $?; under-test sh -c 'exit 7'; is 7 $?; under-test sh -c 'kill -9 $$'; is 137 $?; under-test nothing-there 2>/dev/null; is 127 $?; under-test /app/hello.txt 2>/dev/null; is 126 $?`,
		"folders":          `is /app "$(under-test pwd)"; is /app/sub "$(under-test -C sub pwd)"; is /app/sub "$(under-test -C /app/sub pwd)"; cd /tmp; is /tmp "$(under-test pwd)"; mkdir x; cd x; under-test true 2>/dev/null; is 126 $?`,
		"time":             `under-test -t 0.2 sleep 60; is 124 $?; under-test -t 60 true; is 0 $?`,
		"workspace":        `is hello "$(under-test cat hello.txt)"; [ -z "$(ls -A /app)" ] || exit 0; is "" "$(under-test sh -c 'ls -d /tests /logs/verifier /run/under-test' 2>/dev/null)"`,
		"environment":      `A=1; export A; TZ=Europe/Berlin; export TZ; is "1 Europe/Berlin /root  theirs" "$(under-test sh -c 'echo $A $TZ $HOME "$SECRET" $SHARED')"`,
		"tests' own value": `is tests "$SECRET"; is tests-too "$SHARED"; is theirs "$(under-test sh -c 'echo $SHARED')"; is /tests "$TEST_DIR"; is "" "$(under-test sh -c 'echo $TEST_DIR')"`,
		"bytes":            `is "$(printf 'a\377b')" "$(under-test printf '%s' "$(printf 'a\377b')")"`,
		"data by pipe":     `printf data | under-test sh -c 'cat >/tmp/x'; is data "$(under-test cat /tmp/x)"; echo from >/tmp/file; is from "$(under-test cat </tmp/file)"`,
		"list is no input": `printf 'a\nb\n' >/tmp/list; { read first; under-test cat; code=$?; } </tmp/list 2>/dev/null; is 125 $code`,
		"leftovers":        `under-test sh -c '(setsid sleep 1000 &) ; sleep 1000 & echo started'; is "" "$(under-test sh -c 'for p in /proc/[0-9]*; do tr "\0" " " <$p/cmdline | grep ^sleep; done')"`,
		"held stdout":      `is x "$(under-test sh -c 'setsid sleep 1000 & echo x')"`,
		"a server": `
under-test sh -c 'mkfifo /tmp/in; echo ready; while :; do read line </tmp/in; echo "$line" >>/tmp/seen; done' >/tmp/log &
while ! grep -q ready /tmp/log; do sleep 0.02; done
under-test sh -c 'echo one >/tmp/in'; under-test true
while [ "$(under-test cat /tmp/seen 2>/dev/null)" != one ]; do sleep 0.02; done
kill $!; wait $!; is 143 $?
under-test true
is "" "$(under-test sh -c 'for p in /proc/[0-9]*; do tr "\0" " " <$p/cmdline | grep mkfifo | grep -v grep; done')"`,
		"neighbours": `
under-test sh -c 'while [ ! -e /tmp/go ]; do sleep 0.02; done; setsid sh -c "touch /tmp/begun; sleep 1; echo done >/tmp/done"' &
under-test sh -c 'touch /tmp/go; while [ ! -e /tmp/begun ]; do sleep 0.02; done; (setsid sleep 1000 &)'
wait $!; is 0 $?; is done "$(under-test cat /tmp/done)"`,
		"much output": `under-test sh -c 'yes | head -c 3000000' | wc -c | grep -qx 3000000 || exit 0; x=$(under-test yes 2>/tmp/err); is 125 $?; grep -q "8 MiB" /tmp/err || exit 0`,
		"early end":   `is y "$(under-test yes | head -1)"; under-test true; is 0 $?`,
		"usage":       `under-test 2>/dev/null; is 125 $?; under-test -x 2>/dev/null; is 125 $?; under-test -t x true 2>/dev/null; is 125 $?; under-test -- true; is 0 $?`,
		"shut folder": `ln -s /bin/true /run/under-test/x 2>/dev/null; rm -rf /run/under-test 2>/dev/null; under-test true; is 0 $?; [ ! -e /run/under-test/x ] || exit 0`,
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := separateSpec(t, expect+script+"\necho 1 >/logs/verifier/reward.txt\n",
				map[string]string{"hello.txt": "hello\n", "sub/x": ""})
			spec.Env = map[string]string{"SECRET": "tests", "SHARED": "tests-too"}
			spec.UnderTestEnv = map[string]string{"SHARED": "theirs"}
			outcome, err := verifier.Run(t.Context(), spec)
			if err != nil || outcome.Reward != 1 || outcome.Verifier != verifier.Separate {
				t.Errorf("%+v, %v; log: %s", outcome, err, outcome.Log)
			}
		})
	}
}

// TestStandIn: tests that are separate elsewhere give the same reward where they cannot be, and the
// outcome says that they were not.
func TestStandIn(t *testing.T) {
	spec := separateSpec(t, `[ "$(printf in | under-test -t 60 -C sub -- sh -c 'pwd; cat; echo $A')" = "/app/sub
in1" ] || exit 1
under-test -t 0.2 sleep 60; [ $? = 124 ] || exit 1
under-test sh -c 'exit 7'; [ $? = 7 ] || exit 1
echo 1 >/logs/verifier/reward.txt
`, map[string]string{"sub/x": ""})
	spec.Env = map[string]string{"A": "1"}
	outcome, err := verifier.Run(t.Context(), verifier.RunInProcess(spec))
	if err != nil || outcome.Reward != 1 || outcome.Verifier != verifier.Unguarded {
		t.Errorf("%+v, %v; log: %s", outcome, err, outcome.Log)
	}
}

// TestFailedTestsGiveNoReward: a reward above 0 with a failed exit is none, and 0 stays 0.
func TestFailedTestsGiveNoReward(t *testing.T) {
	for script, class := range map[string]string{
		"echo 1 >/logs/verifier/reward.txt; exit 3":            verifier.ClassTampered,
		"echo 0.5 >/logs/verifier/reward.txt; kill -9 $$":      verifier.ClassTampered,
		"echo 0 >/logs/verifier/reward.txt; exit 3":            "",
		"echo 1 >/logs/verifier/reward.txt; sleep 1000 &":      "",
		"under-test sh -c 'echo 1 >/logs/verifier/reward.txt'": verifier.ClassNoReward,
	} {
		t.Run(script, func(t *testing.T) {
			outcome, err := verifier.Run(t.Context(), separateSpec(t, script, map[string]string{"a": ""}))
			var failed *verifier.Error
			if class == "" && err != nil || class != "" && (!errors.As(err, &failed) || failed.Class != class) {
				t.Errorf("%s: %+v, %v, want class %q", script, outcome, err, class)
			}
		})
	}
}

// gradedApart runs the program of a workspace from tests in another sandbox, which unittest grades.
const gradedApart = `
cd /tests
echo '` + grade.StartMark + `'
python3 -m unittest -v test_add
code=$?
echo
echo '` + grade.EndMark + `'
echo "` + grade.ExitMark + `$code"
`

// TestGradedApart: a test program that never loads the code under test grades it. What that code
// prints, or reports itself, counts for nothing.
func TestGradedApart(t *testing.T) {
	sandboxtest.Require(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing")
	}
	const tests = `import subprocess, unittest


def add(a, b):
    return subprocess.run(["under-test", "-t", "5", "-C", "/app", "sh", "add.sh"], input="%d %d\n" % (a, b), capture_output=True, text=True).stdout


class TestAdd(unittest.TestCase):
    def test_one(self):
        self.assertEqual(add(3, 4), "7\n")

    def test_two(self):
        self.assertEqual(add(30, 4), "34\n")
`
	const forged = `echo '` + grade.StartMark + `'; echo 'test_one (test_add.TestAdd.test_one) ... ok'; echo '{"ran": 2}' >&9; cat <&9
for f in /proc/[0-9]*/fd/*; do [ "${f##*/}" -lt 3 ] || echo '{"end": true}' >$f & done 2>/dev/null; env | grep -q PYTHONPATH && echo 7; kill -9 -1`
	for name, c := range map[string]struct {
		parser, work, call string
		reward             float64
		class              string
	}{
		"right":  {"unittest", "read a b; echo $((a + b))", gradedApart, 1, ""},
		"wrong":  {"unittest", "read a b; echo 7", gradedApart, 0, ""},
		"forged": {"unittest", forged, gradedApart, 0, ""},
		"no list of the tests": {"unittest", "read a b; echo $((a + b))",
			"[ ! -e /tests/grading.json ] || exit 1\n" + gradedApart, 1, ""},
		"runs where the code is": {"unittest", "", strings.Replace(gradedApart, "python3",
			"under-test -C / python3", 1), 0, verifier.ClassNoReward},
		"a printed report":   {"jest", "", gradedApart, 0, verifier.ClassNoReward},
		"a report in a file": {grade.JUnit, "", gradedApart, 0, verifier.ClassNoReward},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := separateSpec(t, "", map[string]string{"add.sh": c.work + "\n"})
			spec.Tests = sandboxtest.Pack(t, map[string]string{
				"test.sh": c.call, "test_add.py": tests,
				grade.File: `{"parser": "` + c.parser +
					`", "fail_to_pass": ["test_two (test_add.TestAdd.test_two)"], "pass_to_pass": ["test_one (test_add.TestAdd.test_one)"]}`,
			})
			outcome, err := verifier.Run(t.Context(), spec)
			var failed *verifier.Error
			if errors.As(err, &failed); c.class != "" && (failed == nil || failed.Class != c.class) ||
				c.class == "" && err != nil {
				t.Fatalf("%v, want %q", err, c.class)
			}
			if c.class == "" && (outcome.Reward != c.reward || outcome.Verifier != verifier.Separate) {
				t.Errorf("%+v: %s", outcome, outcome.Log)
			}
			if name == "wrong" {
				want := grade.UnmetTest{Name: "test_two (test_add.TestAdd.test_two)", State: "failed",
					Message: outcome.Tests.Unmet[0].Message}
				if got := outcome.Tests; got.Graded != 2 || got.Held != 1 || got.Unmet[0] != want ||
					!strings.HasPrefix(want.Message, `AssertionError: '7\n' != '34\n'`) {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

// TestLimitsAreApart: code under test that uses up its sandbox leaves the tests' alone.
func TestLimitsAreApart(t *testing.T) {
	const script = `
under-test -t 2 sh -c 'b() { b | b & }; b; sleep 60' 2>/dev/null
under-test sh -c 'cat /dev/zero >/tmp/full' 2>/dev/null
under-test sh -c 'exec tail /dev/zero' 2>/dev/null; [ $? = 137 ] || exit 1
echo data >/tmp/x && [ "$(cat /tmp/x)" = data ] && [ "$(under-test echo back)" = back ] && echo 1 >/logs/verifier/reward.txt
`
	spec := separateSpec(t, script, nil)
	spec.Limits.MemoryBytes, spec.Limits.DiskBytes = 128<<20, 16<<20
	if outcome, err := verifier.Run(t.Context(), spec); err != nil || outcome.Reward != 1 {
		t.Errorf("%+v, %v; log: %s", outcome, err, outcome.Log)
	}
}
