package grade

import (
	"strings"

	"github.com/rondo-rl/rondo/wording"
)

// Tests say how the tests ended that decide a reward, where a task's grading names them.
// No model is told of them.
type Tests struct {
	// Graded counts the tests that decide, Held those of them that ended as they must.
	Graded int `json:"graded" jsonschema:"minimum=1"`
	Held   int `json:"held" jsonschema:"minimum=0"`
	// Unmet are the others: of very many the first ones, see newTests.
	Unmet []UnmetTest `json:"unmet,omitempty" jsonschema:"maxItems=200"`
	// BadEnd: the test program did not come to its end, or failed without naming a test. That is no
	// reward, whatever each test says.
	BadEnd bool `json:"bad_end,omitempty"`
}

// UnmetTest is a test that did not end as it must.
type UnmetTest struct {
	Name string `json:"name" jsonschema:"minLength=1,maxLength=201"`
	// State is failed, error, skipped, xfail (it failed as it was expected to) or missing (the test
	// program did not report it).
	State string `json:"state" jsonschema:"enum=failed,enum=error,enum=skipped,enum=xfail,enum=missing"`
	// Regression: it passed before the rollout, and had to go on passing.
	Regression bool `json:"regression,omitempty"`
	// Message is the beginning of what the test program says of the failure, over several lines.
	Message string `json:"message,omitempty" jsonschema:"maxLength=401"`
}

// Bounds of Tests: tests that are named, bytes of a name, of a message and of all of both.
const (
	mostUnmet       = 200
	testNameBytes   = 200
	testSaidBytes   = 400
	mostGradedBytes = 24 << 10
)

// newTests makes one of the tests that did not hold. Names and messages are cut, and tests are left
// out from where all is too much: the counts tell how many.
func newTests(graded int, unmet []UnmetTest, badEnd bool) *Tests {
	t := &Tests{Graded: graded, Held: graded - len(unmet), BadEnd: badEnd}
	size := 0
	for _, test := range unmet[:min(len(unmet), mostUnmet)] {
		test.Name, test.Message = shortened(test.Name, testNameBytes),
			shortened(strings.TrimSpace(test.Message), testSaidBytes)
		if size += len(test.Name) + len(test.Message); size > mostGradedBytes {
			break
		}
		t.Unmet = append(t.Unmet, test)
	}
	return t
}

// More counts the tests that did not hold and are not named.
func (t Tests) More() int { return max(0, t.Graded-t.Held-len(t.Unmet)) }

// shortened is the beginning of a foreign text, free of this process's credentials.
func shortened(text string, most int) string {
	text = strings.ToValidUTF8(wording.Clean(text), "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Ending is the state of a test in words.
func (t UnmetTest) Ending() string {
	words := map[string]string{"xfail": "failed as expected", "missing": "not reported"}[t.State]
	if words == "" {
		words = t.State
	}
	if t.Regression {
		words += ", passed before"
	}
	return words
}
