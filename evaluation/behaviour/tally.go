package behaviour

import (
	"maps"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// Row is how a policy behaves, at one version or at several that follow each other. What the log
// does not say is absent. All figures are of the scored rollouts.
type Row struct {
	FirstVersion int64 `json:"first_version"` // at dispatch
	LastVersion  int64 `json:"last_version"`
	Started      int   `json:"started"`
	Scored       int   `json:"scored"`
	Failed       int   `json:"failed"` // by the infrastructure
	InFlight     int   `json:"in_flight"`
	// Reward is the mean.
	Reward        *float64 `json:"reward,omitempty"`
	Turns         *Figure  `json:"turns,omitempty"`
	SampledTokens *Figure  `json:"sampled_tokens,omitempty"`
	// ReasoningTurnShare is the part of the turns that have reasoning;
	// ReasoningCharacters are those of a rollout.
	ReasoningTurnShare  *float64 `json:"reasoning_turn_share,omitempty"`
	ReasoningCharacters *Figure  `json:"reasoning_characters,omitempty"`
	// CallsPerTurn is of the turns that have calls, ParallelTurnShare the part of
	// these that have several.
	CallsPerTurn      *float64 `json:"calls_per_turn,omitempty"`
	ParallelTurnShare *float64 `json:"parallel_turn_share,omitempty"`
	// CallsBeforeEdit are those before the first call that changed the workspace, of the
	// rollouts that have changed it.
	CallsBeforeEdit *Figure `json:"calls_before_edit,omitempty"`
	// FailedCallShare is of the calls that were answered.
	FailedCallShare *float64 `json:"failed_call_share,omitempty"`
	Samples         *Figure  `json:"samples,omitempty"`
	// TrainableShare is the part of the sampled tokens that stand in samples and were
	// neither masked nor constrained.
	TrainableShare *float64 `json:"trainable_share,omitempty"`
	// MaskedTokens counts the sampled tokens of conversations that are not trained on, by the rule
	// of the run that says so.
	MaskedTokens map[string]int `json:"masked_tokens,omitempty"`
	// OtherModels counts those that another model than the policy has sampled, by its name.
	OtherModels map[string]int `json:"other_models,omitempty"`
	// NewSamples counts the samples behind the first by why they began.
	NewSamples  map[string]int `json:"new_samples,omitempty"`
	StopReasons map[string]int `json:"stop_reasons,omitempty"`
	Effort      *Effort        `json:"effort,omitempty"`
	// LengthPenalty is the mean of what shaping took from, or gave to, the
	// rewards of completed groups.
	LengthPenalty *float64 `json:"length_penalty,omitempty"`
}

// Effort is what the scorer's effort penalty makes of rewards. Both are means.
type Effort struct {
	Rollouts int     `json:"rollouts"`
	Mean     float64 `json:"mean"`
	// RewardChange is the reward minus what it would be at an effort of 0.
	RewardChange float64 `json:"reward_change"`
}

// Tally counts rollouts. The order in which they are added does not matter.
// The zero value has none.
type Tally struct {
	versions                                 [2]int64
	started, scored, failed                  int
	reward, effort, effortChange, penalty    total
	turns, tokens, characters, edit, samples spread
	thinking, calling, parallel              int64 // turns
	calls, answered, failedCalls             int64
	sampled, trainable                       int64 // tokens, of the rollouts that count them
	newSamples, stops, masked, others        map[string]int
}

// Start counts a rollout that has begun at a version.
func (t *Tally) Start(version int64) {
	if t.started == 0 {
		t.versions = [2]int64{version, version}
	}
	t.versions = [2]int64{min(t.versions[0], version), max(t.versions[1], version)}
	t.started++
}

// Add counts what a rollout that has begun did, once it is over.
func (t *Tally) Add(r Rollout) {
	if r.Failed {
		t.failed++
		return
	}
	t.scored++
	t.reward.add(r.Reward)
	t.turns.add(int64(r.Turns))
	if r.SampledTokens > 0 {
		t.tokens.add(r.SampledTokens)
		t.sampled, t.trainable = events.AddTokens(t.sampled, r.SampledTokens),
			events.AddTokens(t.trainable, min(r.Trainable, r.SampledTokens))
	}
	t.characters.add(r.Characters)
	t.thinking += int64(r.ThinkingTurns)
	t.calling += int64(r.CallingTurns)
	t.parallel += int64(r.ParallelTurns)
	t.calls, t.answered, t.failedCalls = t.calls+r.Calls, t.answered+r.Answered, t.failedCalls+r.FailedCalls
	if r.CallsBeforeEdit != nil {
		t.edit.add(*r.CallsBeforeEdit)
	}
	if r.Samples > 0 {
		t.samples.add(r.Samples)
	}
	for cause, n := range r.NewSamples {
		t.newSamples = count(t.newSamples, cause, n)
	}
	for rule, n := range r.Masked {
		t.masked = count(t.masked, rule, n)
	}
	for model, n := range r.Others {
		t.others = count(t.others, model, n)
	}
	t.stops = count(t.stops, r.StopReason, 1)
	if r.Effort != nil {
		t.effort.add(r.Effort.Effort)
		t.effortChange.add(r.Effort.RewardChange)
	}
}

// merge adds what another tally has counted.
func (t *Tally) merge(o *Tally) {
	if t.started == 0 {
		t.versions = o.versions
	}
	t.versions = [2]int64{min(t.versions[0], o.versions[0]), max(t.versions[1], o.versions[1])}
	t.started, t.scored, t.failed = t.started+o.started, t.scored+o.scored, t.failed+o.failed
	t.reward.merge(o.reward)
	t.effort.merge(o.effort)
	t.effortChange.merge(o.effortChange)
	t.penalty.merge(o.penalty)
	t.turns.merge(o.turns)
	t.tokens.merge(o.tokens)
	t.characters.merge(o.characters)
	t.edit.merge(o.edit)
	t.samples.merge(o.samples)
	t.sampled, t.trainable = events.AddTokens(t.sampled, o.sampled), events.AddTokens(t.trainable, o.trainable)
	t.thinking, t.calling, t.parallel = t.thinking+o.thinking, t.calling+o.calling, t.parallel+o.parallel
	t.calls, t.answered, t.failedCalls = t.calls+o.calls, t.answered+o.answered, t.failedCalls+o.failedCalls
	for cause, n := range o.newSamples {
		t.newSamples = count(t.newSamples, cause, n)
	}
	for rule, n := range o.masked {
		t.masked = count(t.masked, rule, n)
	}
	for model, n := range o.others {
		t.others = count(t.others, model, n)
	}
	for reason, n := range o.stops {
		t.stops = count(t.stops, reason, n)
	}
}

// Row is what the tally comes to.
func (t *Tally) Row() Row { return t.row(t.thinking > 0) }

// row leaves out thoughts where nothing that is shown beside it has any: whether a model has none,
// or its server gives none, is not on the log.
func (t *Tally) row(thoughts bool) Row {
	r := Row{
		FirstVersion: t.versions[0], LastVersion: t.versions[1], Started: t.started, Scored: t.scored, Failed: t.failed,
		InFlight: t.started - t.scored - t.failed,
		Reward:   t.reward.mean(), Turns: t.turns.figure(), SampledTokens: t.tokens.figure(),
		CallsPerTurn: share(t.calls, t.calling), ParallelTurnShare: share(t.parallel, t.calling),
		CallsBeforeEdit: t.edit.figure(), FailedCallShare: share(t.failedCalls, t.answered),
		Samples: t.samples.figure(), TrainableShare: share(t.trainable, t.sampled),
		MaskedTokens: maps.Clone(t.masked), OtherModels: maps.Clone(t.others), NewSamples: maps.Clone(t.newSamples),
		StopReasons: maps.Clone(t.stops), LengthPenalty: t.penalty.mean(),
	}
	if thoughts {
		r.ReasoningTurnShare, r.ReasoningCharacters = share(t.thinking, t.turns.sum), t.characters.figure()
	}
	if effort, change := t.effort.mean(), t.effortChange.mean(); effort != nil && change != nil {
		r.Effort = &Effort{Rollouts: t.effort.n, Mean: *effort, RewardChange: *change}
	}
	return r
}

// share is nil where there is nothing to have a share of.
func share(part, all int64) *float64 {
	if all == 0 {
		return nil
	}
	s := float64(part) / float64(all)
	return &s
}

// Bounds of what is counted by name: outsiders give reasons of their own.
const (
	maxNames  = 32
	maxName   = 64 // bytes
	otherName = "other"
)

// count counts a name in a map that begins as nil; "" is nothing to count. Of too many names
// the last ones in the alphabet are counted as other: which ones these are does not follow
// from the order of events.
func count(counts map[string]int, name string, n int) map[string]int {
	if name == "" {
		return counts
	}
	if counts == nil {
		counts = map[string]int{}
	}
	counts[clip(name)] += n
	most := maxNames
	if _, found := counts[otherName]; found {
		most++
	}
	if len(counts) > most {
		last := ""
		for name := range counts {
			if name != otherName {
				last = max(last, name)
			}
		}
		n := counts[last]
		delete(counts, last)
		counts[otherName] += n
	}
	return counts
}

func clip(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
}
