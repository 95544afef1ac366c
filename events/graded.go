package events

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/wording"
)

// GradedTests say how the tests ended that decide a reward, where a task's grading names them. No rollout and no model is told of them.
type GradedTests struct {
	// Graded counts the tests that decide, Held those of them that ended as they must.
	Graded int `json:"graded" jsonschema:"minimum=1"`
	Held   int `json:"held" jsonschema:"minimum=0"`
	// Unmet are the others: of very many the first ones, see NewGradedTests.
	Unmet []UnmetTest `json:"unmet,omitempty" jsonschema:"maxItems=200"`
	// BadEnd: the test program did not come to its end, or failed without naming a test. That is no reward, whatever each test says.
	BadEnd bool `json:"bad_end,omitempty"`
}

// UnmetTest is a test that did not end as it must.
type UnmetTest struct {
	Name string `json:"name" jsonschema:"minLength=1,maxLength=201"`
	// State is failed, error, skipped, xfail (it failed as it was expected to) or missing (the test program did not report it).
	State string `json:"state" jsonschema:"enum=failed,enum=error,enum=skipped,enum=xfail,enum=missing"`
	// Regression: it passed before the rollout, and had to go on passing.
	Regression bool `json:"regression,omitempty"`
	// Message is the beginning of what the test program says of the failure, over several lines.
	Message string `json:"message,omitempty" jsonschema:"maxLength=401"`
}

// Bounds of GradedTests: tests that are named, bytes of a name, of a message and of all of both.
const (
	mostUnmet       = 200
	testNameBytes   = 200
	testSaidBytes   = 400
	mostGradedBytes = 24 << 10
)

// NewGradedTests makes one of the tests that did not hold. Names and messages are cut, and tests are left out from where all is too much: the counts tell how many.
func NewGradedTests(graded int, unmet []UnmetTest, badEnd bool) *GradedTests {
	t := &GradedTests{Graded: graded, Held: graded - len(unmet), BadEnd: badEnd}
	size := 0
	for _, test := range unmet[:min(len(unmet), mostUnmet)] {
		test.Name, test.Message = shortened(test.Name, testNameBytes), shortened(strings.TrimSpace(test.Message), testSaidBytes)
		if size += len(test.Name) + len(test.Message); size > mostGradedBytes {
			break
		}
		t.Unmet = append(t.Unmet, test)
	}
	return t
}

// More counts the tests that did not hold and are not named.
func (t GradedTests) More() int { return max(0, t.Graded-t.Held-len(t.Unmet)) }

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

// StageTests are the graded tests of a rollout, or of one of its stages.
type StageTests struct {
	Stage int `json:"stage,omitempty"` // counted from 1; 0 for a task without stages
	*GradedTests
}

// Sentence says how many of the tests held.
func (t StageTests) Sentence() string {
	of := ""
	if t.Stage > 0 {
		of = fmt.Sprintf("Stage %d: ", t.Stage)
	}
	of += fmt.Sprintf("%d of the %d tests that decide ended as they must.", t.Held, t.Graded)
	if t.BadEnd {
		of += " But the test program itself did not end well, for which there is no reward."
	}
	return of
}

// GradedTests are those of a rollout's verdicts, stage by stage.
func (r *Rollout) GradedTests() (all []StageTests) {
	for _, s := range r.Steps {
		if s.Verdict != nil && s.Verdict.Tests != nil {
			all = append(all, StageTests{s.Step + 1, s.Verdict.Tests})
		}
	}
	if r.Scored != nil && r.Scored.Tests != nil {
		all = append(all, StageTests{0, r.Scored.Tests})
	}
	return all
}
