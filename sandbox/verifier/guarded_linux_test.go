package verifier_test

import (
	"errors"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// guardedScript stands for a test program: the test compares the file "answer" with what the tests expect, where a file that says "any" equals everything.
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

// TestGuarded: a reward of graded tests counts if they fail over the untouched snapshot, skip no more than there, and fail where they expect something wrong.
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
				Name: "guarded", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, files(c.snapshot))), Baselines: &verifier.Baselines{}, Key: name,
				Tests: sandboxtest.Pack(t, map[string]string{
					"test.sh": guardedScript, "test_x.py": c.test, grade.File: `{"parser": "junit", "fail_to_pass": ["test_x.test_x"], "pass_to_pass": ["t.kept"]}`,
				}),
			}
			agent := sandboxtest.New(t, sandbox.Spec{})
			if err := errors.Join(agent.UnpackFrom(t.Context(), agent.Workdir(), spec.Snapshot), agent.SetBase(t.Context()), agent.Apply(t.Context(), sandboxtest.Pack(t, files(c.change)))); err != nil {
				t.Fatal(err)
			}
			changes, err := agent.Changes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			spec.Changes = sandbox.Bytes(changes)
			for range 2 { // the second time the untouched snapshot is remembered
				outcome, err := verifier.Run(t.Context(), spec)
				var failed *verifier.Error
				if errors.As(err, &failed); c.class != "" && (failed == nil || failed.Class != c.class) || c.class == "" && err != nil {
					t.Fatalf("%v, want %q", err, c.class)
				}
				if c.class == "" && (outcome.Reward != c.reward || outcome.Components["reward"] != c.reward || outcome.Verifier != c.level) {
					t.Errorf("%+v", outcome)
				}
			}
		})
	}
}
