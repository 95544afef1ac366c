// Package release decides when a version of a policy takes the place of another one: after an
// evaluation on held-out tasks, and a comparison of rollouts in production. It is pure but for what
// it reads from the log: the same facts always lead to the same judgement.
package release

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Figures that may decide.
const (
	ByReward = "reward"
	ByPass   = "pass@1"

	failed = "failed"
)

// Judge fills in the figures and the verdict of a judgement whose versions, stage, rules and
// sources are named. Judging and checking a judgement both call it.
func Judge(ctx context.Context, log eventlog.Reader, policy string, j *events.WeightsJudged) error {
	j.Figures, j.Reasons, j.Verdict = nil, nil, ""
	if j.Stage == events.JudgedCanary {
		version, against, err := readCanary(ctx, log, policy, *j)
		if err != nil {
			return err
		}
		return judgeCanary(j, version, against)
	}
	if len(j.Sources) != 2 {
		return fmt.Errorf("a gate is judged by two evaluations, not by %d", len(j.Sources))
	}
	var sides [2][]evaluation.Attempt
	var missing []string
	for i, source := range j.Sources {
		f, err := evaluation.ReadThrough(ctx, log, source.Run, source.Through)
		if err != nil {
			return err
		}
		of := []int64{j.Version, j.Against}[i]
		if f.Config.Policy != policy || f.Config.PolicyVersion == nil ||
			*f.Config.PolicyVersion != of || f.Config.Epochs == 0 {
			return fmt.Errorf("run %s is no evaluation of %s@%d", source.Run, policy, of)
		}
		sides[i], _ = f.Attempts()
		if lacks := f.Missing(); lacks != "" {
			missing = append(missing, fmt.Sprintf("run %s: %s", source.Run, lacks))
		}
	}
	return judgeGate(j, sides[0], sides[1], missing)
}

// judgeGate compares two evaluations. missing says what keeps them from being results.
func judgeGate(j *events.WeightsJudged, version, against []evaluation.Attempt, missing []string) error {
	j.Attempts, j.AgainstAttempts = count(version), count(against)
	if missing = append(missing, tooLittle(j)...); len(missing) > 0 {
		j.Verdict, j.Reasons = events.JudgedNoResult, missing
		return nil
	}
	c, err := evaluation.Compare(version, against, fmt.Sprint(j.Version), fmt.Sprint(j.Against), options(j.Rules))
	if err != nil {
		j.Verdict, j.Reasons = events.JudgedNoResult, []string{err.Error()}
		return nil
	}
	if least := leastTasks(j.Rules.Confidence); c.Reward.Tasks < least {
		j.Verdict, j.Reasons = events.JudgedNoResult, []string{fmt.Sprintf(
			"both tried %d tasks: fewer than %d can't show a loss, not even one on each of them", c.Reward.Tasks,
			least)}
		return nil
	}
	j.Figures = []events.JudgedFigure{figure(ByReward, c.Reward), figure(ByPass, c.PassAt[0])}
	conclude(j)
	return nil
}

// leastTasks is how many tasks it takes for a loss to be significant. The paired test swaps the
// signs of n tasks' differences: a loss on all of them has p = 2·2⁻ⁿ.
func leastTasks(confidence float64) int {
	return int(math.Ceil(1 - math.Log2(1-confidence) - 1e-9))
}

// judgeCanary compares the rollouts in production.
func judgeCanary(j *events.WeightsJudged, version, against []evaluation.Attempt) error {
	j.Attempts, j.AgainstAttempts = count(version), count(against)
	reasons := tooLittle(j)
	for _, side := range []struct {
		of       int64
		attempts events.JudgedAttempts
	}{{j.Version, j.Attempts}, {j.Against, j.AgainstAttempts}} {
		if n := side.attempts.Scored + side.attempts.Failed; n < j.Rules.Rollouts {
			reasons = append(reasons, fmt.Sprintf("version %d has %d of %d outcomes in production", side.of, n,
				j.Rules.Rollouts))
		}
	}
	lost := func(a evaluation.Attempt) float64 {
		if a.Failed {
			return 1
		}
		return 0
	}
	passed := func(a evaluation.Attempt) float64 {
		if a.Reward >= j.Rules.PassAt-1e-9 {
			return 1
		}
		return 0
	}
	for _, f := range []struct {
		name           string
		a, b           []evaluation.Attempt
		of             func(evaluation.Attempt) float64
		moreIsNotWorse bool
	}{
		{ByReward, scored(version), scored(against), func(a evaluation.Attempt) float64 { return a.Reward }, true},
		{ByPass, scored(version), scored(against), passed, true},
		{failed, version, against, lost, false},
	} {
		d, err := evaluation.CompareArms(f.a, f.b, f.of, options(j.Rules))
		if errors.Is(err, evaluation.ErrApart) {
			if f.name == j.Rules.By {
				reasons = append(reasons, fmt.Sprintf("%s: %v", f.name, err))
			}
			continue
		}
		if err != nil {
			return err
		}
		if !f.moreIsNotWorse {
			d.Verdict = map[string]string{evaluation.Better: evaluation.Worse, evaluation.Worse: evaluation.Better,
				evaluation.NotShown: evaluation.NotShown}[d.Verdict]
		}
		j.Figures = append(j.Figures, figure(f.name, d))
	}
	conclude(j)
	if len(reasons) > 0 && j.Verdict == events.JudgedPassed {
		j.Verdict = events.JudgedNoResult
	}
	j.Reasons = append(j.Reasons, reasons...)
	return nil
}

// conclude holds the figures to the rules.
func conclude(j *events.WeightsJudged) {
	blank := ""
	for _, f := range j.Figures {
		least, name := j.Rules.MinReward, f.Name
		if name == ByPass {
			least = j.Rules.MinPass
		}
		if name != failed && least != nil && f.Version < *least-1e-9 {
			j.Reasons = append(j.Reasons, fmt.Sprintf("%s is %.4g, below %.4g", name, f.Version, *least))
		}
		if name == failed && f.Verdict == evaluation.Worse {
			j.Reasons = append(j.Reasons, fmt.Sprintf("%.4g of the rollouts failed, and %.4g of the others (p = %.3g)",
				f.Version, f.Against, f.P))
		}
		if name != j.Rules.By {
			continue
		}
		switch {
		case f.Verdict == evaluation.Worse:
			j.Reasons = append(j.Reasons, fmt.Sprintf("%s is significantly worse, by %.4g (p = %.3g)", name,
				-f.Difference, f.P))
		case j.Rules.Better && f.Verdict != evaluation.Better:
			j.Reasons = append(j.Reasons, fmt.Sprintf("%s is not significantly better: %+.4g (p = %.3g)", name,
				f.Difference, f.P))
		}
		if f.Low == f.High && f.Verdict == evaluation.NotShown {
			blank = fmt.Sprintf("%s differs by %.4g on each task: an interval that is a point shows nothing", name,
				f.Difference)
		}
		if most := j.Rules.MaxLoss; f.Low < -most-1e-9 {
			j.Reasons = append(j.Reasons, fmt.Sprintf("%s may be lower by %.4g, more than %.4g", name, -f.Low, most))
		}
	}
	switch {
	case len(j.Reasons) > 0:
		j.Verdict = events.JudgedFailed
	case blank != "":
		j.Verdict, j.Reasons = events.JudgedNoResult, []string{blank}
	default:
		j.Verdict = events.JudgedPassed
	}
}

// tooLittle says what is missing for any figure.
func tooLittle(j *events.WeightsJudged) (reasons []string) {
	for _, side := range []struct {
		of       int64
		attempts events.JudgedAttempts
	}{{j.Version, j.Attempts}, {j.Against, j.AgainstAttempts}} {
		n := side.attempts.Scored + side.attempts.Failed
		switch {
		case side.attempts.Scored == 0:
			reasons = append(reasons, fmt.Sprintf("no attempt of version %d was scored", side.of))
		case float64(side.attempts.Failed) > j.Rules.MaxFailed*float64(n)+1e-9:
			reasons = append(reasons, fmt.Sprintf("%d of %d attempts of version %d failed, more than %.4g of all",
				side.attempts.Failed, n, side.of, j.Rules.MaxFailed))
		}
	}
	return reasons
}

func count(attempts []evaluation.Attempt) (n events.JudgedAttempts) {
	n.Scored = len(scored(attempts))
	n.Failed = len(attempts) - n.Scored
	return n
}

func scored(attempts []evaluation.Attempt) (list []evaluation.Attempt) {
	for _, a := range attempts {
		if !a.Failed {
			list = append(list, a)
		}
	}
	return list
}

func figure(name string, d evaluation.Difference) events.JudgedFigure {
	return events.JudgedFigure{
		Name: name, Version: d.A, Against: d.B, Difference: d.Difference.Value, Low: d.Difference.Low,
		High: d.Difference.High, P: d.P, Verdict: d.Verdict,
	}
}

func options(r events.JudgementRules) evaluation.Options {
	return evaluation.Options{K: []int{1}, PassAt: r.PassAt, Confidence: r.Confidence,
		Resamples: r.Resamples, Seed: r.Seed}
}
