package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// WeightsPromoted says which version of a policy rollouts are sampled with. The last one of a
// policy counts; without any it is the newest.
type WeightsPromoted struct {
	// Version gets the rollouts; 0 is the newest one, as without any promotion.
	Version int64 `json:"version" jsonschema:"minimum=0"`
	// Share of the rollouts get Version, and the others Before; 0: all get Version.
	Share float64 `json:"share,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Before is the version that all got before, to which a rollback returns; 0: the newest,
	// or one that nobody named.
	Before int64 `json:"before,omitempty" jsonschema:"minimum=0"`
	// RolledBack is the version that was taken back.
	RolledBack int64 `json:"rolled_back,omitempty" jsonschema:"minimum=0"`
	// Judgement is the id of the weights.judged that this follows from. The intake refuses it where
	// something else was promoted since.
	Judgement string `json:"judgement,omitempty" jsonschema:"maxLength=256"`
}

// VersionFor is the version that a rollout of a run gets, 0 for the newest. It follows from their
// names and the promotion alone, so that everybody decides the same, and one that gets the version
// gets it with every greater share, too.
func (p WeightsPromoted) VersionFor(run, rollout string) int64 {
	if p.Share == 0 {
		return p.Version
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", p.Version, run, rollout))
	if float64(binary.BigEndian.Uint64(sum[:])>>11)/(1<<53) < p.Share {
		return p.Version
	}
	return p.Before
}

// Main is the version that all rollouts get but those of a share.
func (p WeightsPromoted) Main(newest int64) int64 {
	switch {
	case p.Share > 0:
		return p.Before
	case p.Version > 0:
		return p.Version
	}
	return newest
}

// Canary is the version that a share of the rollouts gets, and Main where there is none.
func (p WeightsPromoted) Canary(newest int64) int64 {
	if p.Share > 0 {
		return p.Version
	}
	return p.Main(newest)
}

// ShareOf is the share of the rollouts that get a version by a promotion.
func (p WeightsPromoted) ShareOf(version int64) float64 {
	switch {
	case p.Version == 0:
		return 0
	case p.Share == 0 && version == p.Version:
		return 1
	case p.Share > 0 && version == p.Version:
		return p.Share
	case p.Share > 0 && version == p.Before:
		return 1 - p.Share
	}
	return 0
}

// Stages of a judgement.
const (
	// JudgedGate is the evaluation on held-out tasks.
	JudgedGate = "gate"
	// JudgedCanary compares rollouts of production: those of a promotion's share with the others.
	JudgedCanary = "canary"
)

// Verdicts of a judgement.
const (
	JudgedPassed = "passed"
	JudgedFailed = "failed"
	// JudgedNoResult says that there was too little to judge by. The version does not go on.
	JudgedNoResult = "no_result"
)

// WeightsJudged says whether a version may take the place of another one. It has the rules, the
// figures and where these were taken from, so that anybody can judge again.
type WeightsJudged struct {
	Version int64  `json:"version" jsonschema:"minimum=1"`
	Against int64  `json:"against" jsonschema:"minimum=1"` // the version that was promoted
	Stage   string `json:"stage" jsonschema:"enum=gate,enum=canary"`
	Verdict string `json:"verdict" jsonschema:"enum=passed,enum=failed,enum=no_result"`
	// Reasons are why it did not pass.
	Reasons []string       `json:"reasons,omitempty" jsonschema:"maxItems=20"`
	Rules   JudgementRules `json:"rules"`
	Figures []JudgedFigure `json:"figures,omitempty" jsonschema:"maxItems=20"`
	// Attempts are those of the version that have an outcome,
	// AgainstAttempts those of the other one.
	Attempts        JudgedAttempts `json:"attempts"`
	AgainstAttempts JudgedAttempts `json:"against_attempts"`
	// Sources are the recorded rollouts that the figures are of: of a gate the evaluation of the
	// version and that of the other, of a canary the runs in production.
	Sources []JudgedSource `json:"sources" jsonschema:"maxItems=256"`
	// Promotion is the sequence of the weights.promoted that gave a canary its share.
	Promotion uint64 `json:"promotion,omitempty"`
}

// Ordinal names the judgement among those of its policy: a version is judged once in each
// stage against another one.
func (j WeightsJudged) Ordinal() string {
	return fmt.Sprintf("%s-%d-%d", j.Stage, j.Version, j.Against)
}

// JudgementRules are what a version is held to.
type JudgementRules struct {
	// By is the figure that decides: reward, or pass@1.
	By string `json:"by" jsonschema:"enum=reward,enum=pass@1"`
	// MinReward and MinPass are what the version must reach; absent: nothing.
	MinReward *float64 `json:"min_reward,omitempty"`
	MinPass   *float64 `json:"min_pass,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Better asks for a figure that is significantly better, where one that loses no more than
	// MaxLoss is enough otherwise.
	Better bool `json:"better,omitempty"`
	// MaxLoss is how far below 0 the interval of the difference may reach: what is not known to
	// be as good does not pass.
	MaxLoss float64 `json:"max_loss" jsonschema:"minimum=0"`
	// MaxFailed is the share of failed attempts above which there is no result.
	MaxFailed float64 `json:"max_failed" jsonschema:"minimum=0,maximum=1"`
	// Rollouts is how many outcomes a canary needs of either version.
	Rollouts int `json:"rollouts,omitempty" jsonschema:"minimum=0"`
	// PassAt, Confidence, Resamples and Seed are how the figures are made.
	PassAt     float64 `json:"pass_at"`
	Confidence float64 `json:"confidence"`
	Resamples  int     `json:"resamples"`
	Seed       int64   `json:"seed"`
}

// JudgedFigure is a figure of both versions.
type JudgedFigure struct {
	Name    string  `json:"name" jsonschema:"enum=reward,enum=pass@1,enum=failed"`
	Version float64 `json:"version"`
	Against float64 `json:"against"`
	// Difference is Version − Against over the tasks of both, with its interval.
	Difference float64 `json:"difference"`
	Low        float64 `json:"low"`
	High       float64 `json:"high"`
	P          float64 `json:"p"`
	// Verdict is that of the comparison: better, worse, or no difference shown.
	Verdict string `json:"verdict"`
}

// JudgedAttempts counts attempts.
type JudgedAttempts struct {
	Scored int `json:"scored" jsonschema:"minimum=0"`
	Failed int `json:"failed" jsonschema:"minimum=0"`
}

// JudgedSource is a run as it was read, through a sequence.
type JudgedSource struct {
	Run     string `json:"run"`
	Through uint64 `json:"through"`
}

// FollowsFrom reports whether a promotion is what a judgement leads to: a passed version gets
// rollouts, or all of them after a canary, and one that did not pass its canary is taken back.
func (p WeightsPromoted) FollowsFrom(j WeightsJudged) bool {
	switch {
	case j.Verdict == JudgedPassed:
		return p.Version == j.Version && p.Before == j.Against && p.RolledBack == 0 &&
			(p.Share == 0 || j.Stage == JudgedGate)
	case j.Stage == JudgedCanary:
		return p.Version == j.Against && p.Share == 0 && p.RolledBack == j.Version
	}
	return false
}
