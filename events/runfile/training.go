package runfile

import (
	"fmt"
	"math"
	"slices"
)

// Feed is one trainer's sequence of batches. The run's first feed paces its sampler; the
// others take what there is.
type Feed struct {
	Name string `json:"name" yaml:"name"`
	// GroupsPerBatch is how many groups make a batch. With TokensPerBatch it is only the
	// first guess of that number.
	GroupsPerBatch int `json:"groups_per_batch" yaml:"groups_per_batch"`
	// TokensPerBatch, when set, cuts batches by their tokens: whole groups, as
	// many as fit, at least one.
	TokensPerBatch int64 `json:"tokens_per_batch,omitempty" yaml:"tokens_per_batch"`
	// Ranks is the number of data-parallel ranks; each has a file of its own,
	// of whole groups. 0 is 1.
	Ranks int `json:"ranks,omitempty" yaml:"ranks" absent:"1"`
	// MicroBatch packs the samples of a rank; nil leaves that to the trainer.
	MicroBatch *MicroBatch `json:"micro_batch,omitempty" yaml:"micro_batch"`
	// MinReward makes an export for supervised fine-tuning: rollouts below it are masked, the
	// others' advantages are 1. Unless it says otherwise, an export keeps what is old, filters no
	// groups, and masks members as the run does. Nobody needs to consume it.
	MinReward *float64 `json:"min_reward,omitempty" yaml:"min_reward"`
	// Staleness and Filters replace the run's for this feed.
	Staleness *Staleness `json:"staleness,omitempty" yaml:"staleness"`
	Filters   *Filters   `json:"filters,omitempty" yaml:"filters"`
	// Teachers are those of the run whose log-probabilities its batches hold. A rollout
	// without them is not trained on once TeacherWait has passed since its group was complete;
	// 0 is DefaultTeacherWait.
	Teachers    []string `json:"teachers,omitempty" yaml:"teachers"`
	TeacherWait Duration `json:"teacher_wait,omitempty" yaml:"teacher_wait" absent:"10m"`
	// Hints names who says of the rollouts where they went wrong, as hints that its batches hold. A
	// rollout without any is trained on as it is, once TeacherWait has passed.
	Hints string `json:"hints,omitempty" yaml:"hints"`
}

// RankCount is the number of data-parallel ranks, at least 1.
func (f Feed) RankCount() int { return max(1, f.Ranks) }

// Export reports whether the feed collects demonstrations instead of feeding a
// trainer in step with its run.
func (f Feed) Export() bool { return f.MinReward != nil }

// StalenessOf is the bound that holds for a feed.
func (c *RunConfig) StalenessOf(f Feed) Staleness {
	switch {
	case f.Staleness != nil:
		return *f.Staleness
	case f.Export():
		return Staleness{Max: c.Staleness.Max, Policy: StaleKeep}
	}
	return c.Staleness
}

// FiltersOf are the filters that hold for a feed.
func (c *RunConfig) FiltersOf(f Feed) Filters {
	switch {
	case f.Filters != nil:
		return *f.Filters
	case f.Export():
		return Filters{MaxTokens: c.Filters.MaxTokens, Truncated: c.Filters.Truncated,
			WholeEpisodes: c.Filters.WholeEpisodes}
	}
	return c.Filters
}

// Cost models of MicroBatch.
const (
	CostTokens    = "tokens"    // linear: the tokens of a sample
	CostAttention = "attention" // linear and quadratic parts, as a transformer computes them
)

// MicroBatch packs samples first fit decreasing into micro-batches, as many for each rank.
type MicroBatch struct {
	// Tokens bounds a micro-batch; a longer sample is one by itself.
	Tokens int `json:"tokens" yaml:"tokens"`
	// Cost is the model by which ranks and micro-batches are balanced; "" is tokens.
	Cost string `json:"cost,omitempty" yaml:"cost" absent:"tokens"`
}

// Policies of Staleness.
const (
	StaleDrop = "drop" // a group that is too old is not trained on
	StaleWait = "wait" // a batch waits for the groups in flight that one more version would make too old
	StaleKeep = "keep" // it is trained on, and what is too old in it is flagged
)

// Staleness bounds how many policy versions old a group may be when its batch is consumed. It
// counts on one version for each step of the run's first feed. Versions from elsewhere that are
// published while a batch waits, and all versions for the other feeds, come on top.
type Staleness struct {
	Max int64 `json:"max" yaml:"max"`
	// Policy is what happens beyond the bound; "" is drop.
	Policy string `json:"policy,omitempty" yaml:"policy" absent:"drop"`
	// RequireVersions masks rollouts with sampled tokens whose version nobody reported, and counts
	// the age of a group from its oldest token; without it a group is as old as its dispatch.
	RequireVersions bool `json:"require_versions,omitempty" yaml:"require_versions"`
}

// RequiresVersions reports whether a feed of the run trains only on tokens of known versions.
func (c *RunConfig) RequiresVersions() bool {
	return slices.ContainsFunc(c.Feeds, func(f Feed) bool { return c.StalenessOf(f).RequireVersions })
}

// Advantage chooses the estimator of package advantage.
type Advantage struct {
	Estimator string `json:"estimator" yaml:"estimator" absent:"mean_centred, or that of the preset"`
	// Params are the estimator's; what is left out has its default.
	Params map[string]any `json:"params,omitempty" yaml:"params"`
	// SpanWeight scales the rewards that annotations give to single turns or spans, on top of the
	// rollout's advantage; 0 leaves them out.
	SpanWeight float64 `json:"span_weight,omitempty" yaml:"span_weight"`
	// ShuffleRewards is the control experiment: rewards are permuted within their group,
	// so nothing can be learnt.
	ShuffleRewards bool `json:"shuffle_rewards,omitempty" yaml:"shuffle_rewards"`
	// Preset names the system whose estimator and parameters a run file wants; opening a
	// run replaces it by them.
	Preset string `json:"-" yaml:"preset" absent:"no preset"`
}

// Shaping changes rewards before they are compared; the rewards themselves
// stay as they were scored.
type Shaping struct {
	Length       *LengthPenalty `json:"length_penalty,omitempty" yaml:"length_penalty"`
	SoftOverlong *SoftOverlong  `json:"soft_overlong,omitempty" yaml:"soft_overlong"`
}

// LengthPenalty holds the weights of prime-rl's linear penalty: what share of the group's mean
// reward the longest rollout loses.
type LengthPenalty struct {
	Output float64 `json:"output,omitempty" yaml:"output"` // sampled tokens
	Input  float64 `json:"input,omitempty" yaml:"input"`   // the other tokens
	Turns  float64 `json:"turns,omitempty" yaml:"turns"`
}

// SoftOverlong is DAPO's penalty: none up to MaxTokens − Buffer sampled tokens, then linear down to
// −Factor at MaxTokens and beyond.
type SoftOverlong struct {
	MaxTokens int     `json:"max_tokens" yaml:"max_tokens"`
	Buffer    int     `json:"buffer" yaml:"buffer"`
	Factor    float64 `json:"factor,omitempty" yaml:"factor" absent:"1"` // 0 is 1
}

// Filters say what a feed does not train on. The sampler opens other groups in
// the place of filtered ones.
type Filters struct {
	// ZeroVariance filters groups whose rewards, as they were scored, are all equal: whatever
	// shaping makes of them says nothing about the task.
	ZeroVariance bool `json:"zero_variance,omitempty" yaml:"zero_variance"`
	// PassRate filters groups whose share of passing members is outside of the window.
	PassRate *PassRate `json:"pass_rate,omitempty" yaml:"pass_rate"`
	// MinSurvivors filters groups of which fewer members have a reward; 0 is 1. The group's size
	// makes a failed member cost its whole group.
	MinSurvivors int `json:"min_survivors,omitempty" yaml:"min_survivors" absent:"1"`
	// MaxTokens masks rollouts of more tokens; 0 is no bound. Masked members still count
	// in their group's baseline.
	MaxTokens int `json:"max_tokens,omitempty" yaml:"max_tokens"`
	// Truncated masks rollouts that ran into a limit instead of finishing.
	Truncated bool `json:"truncated,omitempty" yaml:"truncated"`
	// TrainConstrained trains on tokens that were sampled under a constraint, as a grammar or a
	// forced tool call. Without it they are masked: their log-probabilities are not the policy's.
	TrainConstrained bool `json:"train_constrained,omitempty" yaml:"train_constrained"`
	// WholeEpisodes masks all rollouts of an episode of several roles where one of them
	// has failed or is masked.
	WholeEpisodes bool `json:"whole_episodes,omitempty" yaml:"whole_episodes"`
}

// PassRate is a window of pass rates; both ends belong to it.
type PassRate struct {
	Min float64 `json:"min" yaml:"min"`
	Max float64 `json:"max" yaml:"max"`
	// At is the reward at which a rollout passes; nil is 1.
	At *float64 `json:"at,omitempty" yaml:"at"`
}

// Passes is the reward at which a rollout passes.
func (p PassRate) Passes() float64 { return or(p.At, 1) }

// Curriculum draws a task with the weight Floor + (1 − Floor)·4·p·(1 − p), where p is the moving
// average of its groups' pass rates; a task that was not tried yet has weight 1.
type Curriculum struct {
	// Decay of the moving average for each completed group; nil is 0.8, and 0
	// takes the latest group alone.
	Decay *float64 `json:"decay,omitempty" yaml:"decay"`
	// Floor is the least weight; nil is 0.1.
	Floor *float64 `json:"floor,omitempty" yaml:"floor"`
	// PassAt is the reward at which a rollout passes; nil is 1.
	PassAt *float64 `json:"pass_at,omitempty" yaml:"pass_at"`
}

// Passes is the reward at which a rollout passes.
func (c Curriculum) Passes() float64 { return or(c.PassAt, 1) }

// Decays is how much of the moving average each completed group leaves.
func (c Curriculum) Decays() float64 { return or(c.Decay, 0.8) }

// Least is the least weight.
func (c Curriculum) Least() float64 { return or(c.Floor, 0.1) }

// or is what a key says, or what leaving it out means.
func or(v *float64, absent float64) float64 {
	if v == nil {
		return absent
	}
	return *v
}

// Estimators are the names that Advantage.Estimator may take; package advantage implements each.
var Estimators = []string{
	"mean_centred", "std_normalised", "rloo", "maxrl", "leave_one_out", "reinforce_plus_plus",
	"reinforce_plus_plus_baseline", "rae",
}

// validateTraining checks how rewards become batches.
func (c *RunConfig) validateTraining() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(c.Feeds) > 0 || c.Epochs > 0, "feeds: the run has none, and no epochs")
	check(len(c.Feeds) <= 64, "feeds: %d of them, at most 64", len(c.Feeds))
	seen := map[string]bool{}
	for _, f := range c.Feeds {
		check(ValidToken(f.Name), "feeds: name %q: use letters, digits, - and _", f.Name)
		check(!seen[f.Name], "feeds: %q appears twice", f.Name)
		seen[f.Name] = true
		for _, err := range f.validate() {
			errs = append(errs, fmt.Errorf("feeds: %s: %w", f.Name, err))
		}
	}
	errs = append(errs, c.Staleness.validate()...)
	errs = append(errs, c.Filters.validate()...)
	for _, f := range c.Feeds {
		least := c.FiltersOf(f).MinSurvivors
		check(c.External || least <= c.GroupSize || c.GroupSize == 1,
			"feeds: %s: filters.min_survivors %d: no group has so many members, as group_size is %d",
			f.Name, least, c.GroupSize)
	}
	check(inRange(c.Advantage.SpanWeight, -1000, 1000),
		"advantage.span_weight %g: must be -1000 to 1000", c.Advantage.SpanWeight)
	if p := c.Shaping.Length; p != nil {
		for name, w := range map[string]float64{"output": p.Output, "input": p.Input, "turns": p.Turns} {
			check(inRange(w, 0, 10), "shaping.length_penalty.%s %g: must be 0 to 10", name, w)
		}
	}
	if p := c.Shaping.SoftOverlong; p != nil {
		check(p.Buffer >= 1 && p.Buffer <= p.MaxTokens,
			"shaping.soft_overlong.buffer %d: must be 1 to max_tokens, which is %d", p.Buffer, p.MaxTokens)
		check(inRange(p.Factor, 0, 1000), "shaping.soft_overlong.factor %g: must be 0 to 1000", p.Factor)
	}
	if p := c.Curriculum; p != nil {
		decay, floor, passAt := p.Decays(), p.Least(), p.Passes()
		check(inRange(decay, 0, 1) && decay < 1, "curriculum.decay %g: must be 0 to less than 1", decay)
		check(inRange(floor, 0, 1), "curriculum.floor %g: must be 0 to 1", floor)
		check(inRange(passAt, -1e9, 1e9), "curriculum.pass_at %g: must be a number", passAt)
	}
	return errs
}

func (f Feed) validate() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(f.GroupsPerBatch >= 1 && f.GroupsPerBatch <= 10000,
		"groups_per_batch %d: must be 1 to 10000", f.GroupsPerBatch)
	check(f.TokensPerBatch >= 0 && f.TokensPerBatch <= 1<<40,
		"tokens_per_batch %d: must not be negative", f.TokensPerBatch)
	check(f.Ranks >= 0 && f.Ranks <= 1024, "ranks %d: must be 0 to 1024", f.Ranks)
	check(f.TokensPerBatch > 0 || f.GroupsPerBatch < 1 ||
		f.RankCount() <= f.GroupsPerBatch, "ranks %d: more than the %d groups of a batch, which stay whole",
		f.Ranks, f.GroupsPerBatch)
	if m := f.MicroBatch; m != nil {
		check(m.Tokens >= 1, "micro_batch.tokens %d: must be positive", m.Tokens)
		check(m.Cost == "" || m.Cost == CostTokens || m.Cost == CostAttention,
			"micro_batch.cost %q: must be %s or %s", m.Cost, CostTokens, CostAttention)
	}
	if f.MinReward != nil {
		check(inRange(*f.MinReward, -1e9, 1e9), "min_reward %g: must be a number", *f.MinReward)
	}
	if f.Staleness != nil {
		errs = append(errs, f.Staleness.validate()...)
	}
	if f.Filters != nil {
		errs = append(errs, f.Filters.validate()...)
	}
	return errs
}

func (s Staleness) validate() (errs []error) {
	if s.Max < 0 || s.Max > 1000 {
		errs = append(errs, fmt.Errorf("staleness.max %d: must be 0 to 1000", s.Max))
	}
	switch s.Policy {
	case "", StaleDrop, StaleWait, StaleKeep:
	default:
		errs = append(errs, fmt.Errorf("staleness.policy %q: must be %s, %s or %s", s.Policy,
			StaleDrop, StaleWait, StaleKeep))
	}
	return errs
}

func (f Filters) validate() (errs []error) {
	if p := f.PassRate; p != nil && !(inRange(p.Min, 0, 1) && inRange(p.Max, p.Min, 1) &&
		inRange(p.Passes(), -1e9, 1e9)) {
		errs = append(errs, fmt.Errorf("filters.pass_rate %g to %g: must be a window within 0 and 1", p.Min, p.Max))
	}
	if f.MinSurvivors < 0 || f.MaxTokens < 0 {
		errs = append(errs, fmt.Errorf("filters: min_survivors %d and max_tokens %d must not be negative",
			f.MinSurvivors, f.MaxTokens))
	}
	return errs
}

// inRange is false for what is no number.
func inRange(v, low, high float64) bool { return !math.IsNaN(v) && v >= low && v <= high }
