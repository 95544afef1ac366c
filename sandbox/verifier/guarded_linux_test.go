package verifier_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// guardedScript stands for a test program: the test compares the file "answer" with what the tests
// expect, where a file that says "any" equals everything.
const guardedScript = `want=$(sed -n 's/.*== //p' /tests/test_x.py)
got=$(cat answer)
fixed='<failure/>' kept=
[ "$got" != "$want" ] && [ "$got" != any ] || fixed=
[ ! -e skipped ] || kept='<skipped/>'
echo "<testsuites><testsuite><testcase classname='test_x' name='test_x'>$fixed</testcase><testcase classname='t' name='kept'>$kept</testcase></testsuite></testsuites>" >/logs/verifier/junit.xml
echo '` + grade.StartMark + `'
echo '` + grade.EndMark + `'
case $fixed in '') code=0 ;; *) code=1 ;; esac
echo '` + grade.ExitMark + `'$code
`

// TestGuarded: a reward of graded tests counts if they fail over the untouched snapshot, skip no
// more than there, and fail where they expect something wrong.
func TestGuarded(t *testing.T) {
	sandboxtest.Require(t)
	const expects, says = "def test_x():\n    assert answer() == 42\n", "def test_x():\n    assert says(42)\n"
	for name, c := range map[string]struct {
		test, snapshot, change string
		reward                 float64
		level, class           string
	}{
		"honest work":                 {expects, "41", "42", 1, verifier.InProcess, ""},
		"no work":                     {expects, "41", "40", 0, verifier.InProcess, ""},
		"equals everything":           {expects, "41", "any", 0, "", verifier.ClassTampered},
		"without canaries":            {says, "41", "any", 1, verifier.Unguarded, ""},
		"passes without work":         {expects, "any", "42", 0, "", verifier.ClassControl},
		"skips what was not":          {expects, "41", "42 skipped", 0, verifier.InProcess, ""},
		"nothing that was not before": {expects, "41 skipped", "42", 1, verifier.InProcess, ""},
		"skips what was":              {expects, "41 skipped", "42 skipped", 1, verifier.InProcess, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := func(text string) map[string]string {
				answer, skipped := text, false
				if len(text) > len(" skipped") && text[len(text)-len(" skipped"):] == " skipped" {
					answer, skipped = text[:len(text)-len(" skipped")], true
				}
				tree := map[string]string{"answer": answer + "\n"}
				if skipped {
					tree["skipped"] = "x"
				}
				return tree
			}
			spec := verifier.Spec{
				Name: "guarded", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, files(c.snapshot))),
				Baselines: &verifier.Baselines{}, Key: name,
				Tests: sandboxtest.Pack(t, map[string]string{
					"test.sh": guardedScript, "test_x.py": c.test,
					grade.File: `{"parser": "junit", "fail_to_pass": ["test_x.test_x"], "pass_to_pass": ["t.kept"]}`,
				}),
			}
			for range 2 { // the second time the untouched snapshot is remembered
				outcome, err := judged(t, spec, files(c.change))
				var failed *verifier.Error
				if errors.As(err, &failed); c.class != "" && (failed == nil || failed.Class != c.class) ||
					c.class == "" && err != nil {
					t.Fatalf("%v, want %q", err, c.class)
				}
				if c.class == "" && (outcome.Reward != c.reward || outcome.Components["reward"] != c.reward ||
					outcome.Verifier != c.level) {
					t.Errorf("%+v", outcome)
				}
				if held := 1 + int(c.reward); c.class == "" &&
					(outcome.Tests.Held != held || outcome.Tests.Graded != 2 || len(outcome.Tests.Unmet) != 2-held) {
					t.Errorf("%+v", outcome.Tests)
				}
			}
		})
	}
}

// judged runs a task's tests over its snapshot with the files that an agent has made there.
func judged(t *testing.T, spec verifier.Spec, files map[string]string) (verifier.Outcome, error) {
	t.Helper()
	agent := sandboxtest.New(t, sandbox.Spec{})
	if err := errors.Join(agent.UnpackFrom(t.Context(), agent.Workdir(), spec.Snapshot), agent.SetBase(t.Context()),
		agent.Apply(t.Context(), sandboxtest.Pack(t, files))); err != nil {
		t.Fatal(err)
	}
	changes, err := agent.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec.Changes = sandbox.Bytes(changes)
	return verifier.Run(t.Context(), spec)
}

// TestDeal: no order of further runs tells which of them are wrong, but that at least one is.
func TestDeal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	seen := map[[verifier.FurtherRuns]bool]int{}
	const each = 200
	for range each * (1<<verifier.FurtherRuns - 1) {
		seen[verifier.Deal(random)]++
	}
	if len(seen) != 1<<verifier.FurtherRuns-1 || seen[[verifier.FurtherRuns]bool{}] > 0 {
		t.Errorf("%d orders: %v", len(seen), seen)
	}
	for order, times := range seen {
		if times < each/2 || times > 2*each {
			t.Errorf("%v comes %d times of %d", order, times, each)
		}
	}
}

// TestTheFirstRunAlone: code that decides its verdict in the first run alone, which it knows by the
// clock, wins nothing where a further run is a true one.
func TestTheFirstRunAlone(t *testing.T) {
	sandboxtest.Require(t)
	const early = "now() { cut -d. -f1 /proc/uptime; }\nanswer=40\n[ $(now) -ge UNTIL ] || answer=any\nwhile [ $(now) -lt UNTIL ]; do sleep 0.1; done\n"
	tests := sandboxtest.Pack(t, map[string]string{
		"test.sh":   ". ./work\necho $answer >answer\n" + guardedScript,
		"test_x.py": "def test_x():\n    assert answer() == 42\n",
		grade.File:  `{"parser": "junit", "fail_to_pass": ["test_x.test_x"], "pass_to_pass": ["t.kept"]}`,
	})
	for name, wrong := range map[string][verifier.FurtherRuns]bool{"a true run first": {false, true, true, true},
		"a true run last": {true, true, true, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(0)
			for verifier.Deal(rand.New(rand.NewPCG(seed, 1))) != wrong {
				seed++
			}
			spec := verifier.WithRandom(verifier.Spec{
				Name: "early", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, map[string]string{"work": "answer=40\n"})),
				Baselines: &verifier.Baselines{}, Key: name, Tests: tests,
			}, rand.New(rand.NewPCG(seed, 1)))
			uptime, err := os.ReadFile("/proc/uptime")
			if err != nil {
				t.Fatal(err)
			}
			now, err := strconv.Atoi(strings.Split(string(uptime), ".")[0])
			if err != nil {
				t.Fatal(err)
			}
			const first = 5 // seconds: the first run begins within them, and lasts until they are over
			work := strings.ReplaceAll(early, "UNTIL", strconv.Itoa(now+first))
			outcome, err := judged(t, spec, map[string]string{"work": work})
			if err != nil || outcome.Reward != 0 || outcome.Components["reward"] != 0 ||
				outcome.Verifier != verifier.InProcess {
				t.Errorf("%+v, %v", outcome, err)
			}
		})
	}
}
