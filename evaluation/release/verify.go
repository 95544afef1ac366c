package release

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Verify judges again, from the rollouts that a judgement names, and says what comes out
// differently; nil where nothing does.
func Verify(ctx context.Context, log eventlog.Reader, policy string,
	recorded events.WeightsJudged) (differs []string, err error) {
	again := recorded
	if err := Judge(ctx, log, policy, &again); err != nil {
		return nil, err
	}
	if again.Verdict != recorded.Verdict {
		differs = append(differs, fmt.Sprintf("the verdict is %s, and %s is recorded", again.Verdict, recorded.Verdict))
	}
	if again.Attempts != recorded.Attempts || again.AgainstAttempts != recorded.AgainstAttempts {
		differs = append(differs, fmt.Sprintf("%+v and %+v attempts are counted, and %+v and %+v are recorded",
			again.Attempts, again.AgainstAttempts, recorded.Attempts, recorded.AgainstAttempts))
	}
	if !slices.EqualFunc(again.Figures, recorded.Figures, same) {
		differs = append(differs, fmt.Sprintf("the figures are %+v, and %+v are recorded", again.Figures,
			recorded.Figures))
	}
	return differs, nil
}

// same compares figures but for the last digits, in which processors differ.
func same(a, b events.JudgedFigure) bool {
	for _, v := range [][2]float64{{a.Version, b.Version}, {a.Against, b.Against}, {a.Difference, b.Difference},
		{a.Low, b.Low}, {a.High, b.High}, {a.P, b.P}} {
		if !(math.Abs(v[0]-v[1]) <= 1e-9*max(1, math.Abs(v[0]))) {
			return false
		}
	}
	return a.Name == b.Name && a.Verdict == b.Verdict
}
