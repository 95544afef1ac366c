// Package advantage holds the pure estimators that turn rewards into advantages. Each is
// named after everything that distinguishes it, and its formula and source are above it.
// Rewards that are no finite numbers belong to members without one: their advantage is NaN,
// and they count in nobody's mean.
package advantage

import (
	"fmt"
	"strings"
)

// Estimator turns the rewards of groups into advantages.
type Estimator struct {
	group func(rewards []float64, baseline float64) (advantages []float64, after float64)
	batch func(advantages []float64, sampledTokens []int) []float64
	// remembers: the estimator compares with a baseline that it keeps for each task.
	remembers bool
}

// Group estimates the advantages of one group's members, in their order. Baseline is what the
// last group of the task left, 0 for its first; only an estimator that [Estimator.Remembers]
// looks at it and changes it.
func (e Estimator) Group(rewards []float64, baseline float64) (advantages []float64, after float64) {
	return e.group(rewards, baseline)
}

// Remembers reports whether the estimator keeps a baseline for each task.
func (e Estimator) Remembers() bool { return e.remembers }

// Batch normalises the advantages of a whole batch, one for each rollout, given how many tokens
// each sampled. For an estimator that works within groups it changes nothing.
func (e Estimator) Batch(advantages []float64, sampledTokens []int) []float64 {
	if e.batch == nil {
		return advantages
	}
	return e.batch(advantages, sampledTokens)
}

// New makes an estimator by the name and the parameters that a run file gives it; parameters that
// are left out have their defaults. The error names what is wrong and what may be there.
func New(name string, params map[string]any) (Estimator, error) {
	for _, d := range definitions {
		if d.name != name {
			continue
		}
		v, err := d.values(params)
		if err != nil {
			return Estimator{}, fmt.Errorf("advantage estimator %s: %w", name, err)
		}
		return d.build(v), nil
	}
	return Estimator{}, fmt.Errorf("there is no advantage estimator %q: use one of %s", name,
		strings.Join(Names(), ", "))
}

// Batchwise is the part of an estimator that looks at a whole batch: REINFORCE++'s normalisation
// over the sampled tokens of the rollouts that are trained on, with [Whiten]'s formula. Give it the
// group-wise advantage and the number of sampled tokens (over all samples) of each trained rollout,
// in the order of the batch. ok is false for estimators that are done within a group.
func Batchwise(name string, params map[string]any) (normalise func(advantages []float64,
	sampledTokens []int) []float64, ok bool) {
	e, err := New(name, params)
	if err != nil || e.batch == nil {
		return nil, false
	}
	return e.batch, true
}

// definition describes an estimator once for New, the run file's checks and
// `rondo advantage --list`.
type definition struct {
	name, formula string
	parameters    []Parameter
	build         func(v values) Estimator
}

var definitions = []definition{
	{"mean_centred", "r − mean(r)", nil, func(values) Estimator { return groupOnly(MeanCentred) }},
	{"std_normalised", "(r − mean(r)) / (std(r) + eps)", []Parameter{ddof(1), eps(1e-6),
		choice("eps_at", EpsOutside, "where eps stands: std + eps, √(var + eps) or max(std, eps)", EpsOutside,
			EpsInside, EpsMax), singleton}, stdNormalised},
	{"rloo", "r − mean(the others' r)", nil, func(values) Estimator { return groupOnly(RLOO) }},
	{"maxrl", "(r − mean(r)) / (mean(r) − min(0, min(r)) + eps)", []Parameter{eps(0)}, maxRL},
	{"leave_one_out", "(r − mean(the others' r)) / (std(the others' r) + 1e-6), undivided where that std is 0", nil,
		func(values) Estimator { return groupOnly(LeaveOneOut) }},
	{"reinforce_plus_plus", "r, whitened over the sampled tokens of the batch",
		[]Parameter{ddof(1), eps(1e-8)}, reinforcePlusPlus},
	{"reinforce_plus_plus_baseline", "r − mean(r), whitened over the sampled tokens of the batch",
		[]Parameter{ddof(1), eps(1e-8), singleton}, reinforcePlusPlusBaseline},
	{"rae", "r − b; b ← decay·b + (1 − decay)·r, for each task", []Parameter{
		{Name: "decay", Default: 0.95, High: 1, About: "of the baseline, for each rollout"}}, rae},
}

// aliases are names that the field uses for exactly these formulas: GRPO divides by the standard
// deviation, Dr. GRPO does not.
var aliases = map[string]string{"grpo": "std_normalised", "dr_grpo": "mean_centred"}

// Canonical is the name under which an estimator is known and recorded; any other
// name comes back as it is.
func Canonical(name string) string {
	if known, ok := aliases[name]; ok {
		return known
	}
	return name
}

func groupOnly(f func([]float64) []float64) Estimator {
	return Estimator{group: func(rewards []float64, baseline float64) ([]float64,
		float64) {
		return f(rewards), baseline
	}}
}

func stdNormalised(v values) Estimator {
	s := Std{DDOF: int(v.number("ddof")), Eps: v.number("eps"), EpsAt: v.text("eps_at"), Singleton: v.text("singleton")}
	return groupOnly(func(rewards []float64) []float64 { return StdNormalised(rewards, s) })
}

func maxRL(v values) Estimator {
	eps := v.number("eps")
	return groupOnly(func(rewards []float64) []float64 { return MaxRL(rewards, eps) })
}

func reinforcePlusPlus(v values) Estimator { return whitened(groupOnly(Raw), v) }

func reinforcePlusPlusBaseline(v values) Estimator {
	singleton := v.text("singleton")
	return whitened(groupOnly(func(rewards []float64) []float64 {
		return ReinforcePlusPlusBaseline(rewards,
			singleton)
	}), v)
}

func whitened(e Estimator, v values) Estimator {
	w := Whitening{DDOF: int(v.number("ddof")), Eps: v.number("eps")}
	e.batch = func(advantages []float64, sampledTokens []int) []float64 { return Whiten(advantages, sampledTokens, w) }
	return e
}

func rae(v values) Estimator {
	decay := v.number("decay")
	return Estimator{remembers: true, group: func(rewards []float64, baseline float64) ([]float64,
		float64) {
		return RAE(rewards, baseline, decay)
	}}
}
