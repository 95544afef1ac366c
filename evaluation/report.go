package evaluation

import (
	"time"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// Report is an evaluation as a reader wants it, in JSON by its tags, and by [WriteMarkdown],
// [WriteHTML] and [WriteJUnit].
type Report struct {
	Title    string    `json:"title"`
	Policy   string    `json:"policy,omitzero"`
	Version  int64     `json:"version,omitzero"` // 0: whatever the endpoint served
	Endpoint string    `json:"endpoint,omitzero"`
	Pack     string    `json:"pack,omitzero"`
	Run      string    `json:"run,omitzero"`
	When     time.Time `json:"when"`
	// Summaries begin with the policy that the report is about; others are
	// what it is compared with.
	Summaries   []Summary    `json:"summaries"`
	Comparisons []Comparison `json:"comparisons,omitzero"`
	// Conditions are those of the summaries, in their order.
	Conditions []Conditions `json:"conditions,omitzero"`
	// Curve has a point for each version that was evaluated, by version.
	Curve     []CurvePoint `json:"curve,omitzero"`
	OffPolicy *OffPolicy   `json:"off_policy,omitzero"`
}

// CurvePoint is how good one version is.
type CurvePoint struct {
	Version  int64     `json:"version"`
	Run      string    `json:"run,omitzero"`
	When     time.Time `json:"when"`
	Tasks    int       `json:"tasks"`
	Attempts int       `json:"attempts"`
	Failed   int       `json:"failed"`
	Pass     Estimate  `json:"pass"` // pass@1
	Reward   Estimate  `json:"reward"`
	// Behaviour is how the agents behaved.
	Behaviour *behaviour.Row `json:"behaviour,omitzero"`
}

// Point is the summary as a point of a curve.
func (s Summary) Point(version int64, run string, when time.Time) CurvePoint {
	pass, _ := s.Pass(1) // without it there is no scored attempt
	return CurvePoint{Version: version, Run: run, When: when, Tasks: s.Tasks, Attempts: s.Attempts, Failed: s.Failed,
		Pass: pass, Reward: s.Reward, Behaviour: s.Behaviour}
}
