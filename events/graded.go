package events

import (
	"fmt"

	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// StageTests are the graded tests of a rollout, or of one of its stages.
type StageTests struct {
	Stage int `json:"stage,omitempty"` // counted from 1; 0 for a task without stages
	*grade.Tests
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
