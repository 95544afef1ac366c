package tables

import (
	"encoding/json"
	"io"

	"github.com/rondo-rl/rondo/evaluation/steps"
)

// StepLines writes a run's training steps as lines of JSON: the run, its steps, and the end. The
// Python package reads them.
type StepLines struct{ enc *json.Encoder }

// NewStepLines begins with the line of the run.
func NewStepLines(w io.Writer, r steps.Run) (*StepLines, error) {
	l := &StepLines{json.NewEncoder(w)}
	return l, l.enc.Encode(struct {
		Kind string `json:"kind"`
		steps.Run
	}{"run", r})
}

// Step writes the line of a step.
func (l *StepLines) Step(r steps.Row) error {
	return l.enc.Encode(struct {
		Kind string `json:"kind"`
		steps.Row
	}{"step", r})
}

// End writes the last line. The rows are complete where no step can follow.
func (l *StepLines) End(complete bool) error {
	return l.enc.Encode(map[string]any{"kind": "end", "complete": complete})
}
