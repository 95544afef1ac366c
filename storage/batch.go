package storage

// VersionSegment says which policy version sampled the tokens [Start, Start+Length) of a sample.
type VersionSegment struct {
	Start, Length int32
	Version       int64 // -1: nobody reported it
	// Stale: the version was further behind than the feed's bound when the batch was made. The feed
	// keeps such tokens and says so.
	Stale bool
}

// StaleAt reports whether the tokens are more than max versions older than a policy
// version. What nobody reported counts as the version with which the rollout was started,
// the oldest that it can be.
func (v VersionSegment) StaleAt(version, dispatched, max int64) bool {
	if v.Version < 0 {
		return version-dispatched > max
	}
	return version-v.Version > max
}

// TurnSpan says that the tokens [Start, Start+Length) of a sample were sampled
// in a turn of its rollout.
type TurnSpan struct{ Start, Length, Turn int32 }

// Annotation is a remark about a sample, a turn of it, or a span of a turn's sampled tokens. Start
// and Length are positions among the sample's tokens.
type Annotation struct {
	Turn   *int32             `json:"turn,omitempty"`
	Start  int32              `json:"start"`
	Length int32              `json:"length"`
	Reward *float64           `json:"reward,omitempty"`
	Text   string             `json:"text,omitempty"`
	Values map[string]float64 `json:"values,omitempty"`
	// Note says why the annotation counts for nothing: it names tokens that the turn does not
	// have. Its length is 0 then.
	Note string `json:"note,omitempty"`
}

// Sample is one row of a batch file: one training sample. The per-token slices are as long as
// Tokens and are not shifted: entry i belongs to token i.
type Sample struct {
	Run, Group, Rollout, Task string
	Role                      string // of an episode of several rollouts, one of Batch.Roles
	StopReason                string
	SampleIndex               int32 // among the samples of the rollout
	SamplesInRollout          int32
	PromptLength              int32 // tokens before the first sampled one
	Truncated                 bool  // the last generation was cut: the model did not end it
	TextOnly                  bool  // the sampler gave no token ids: there are no tokens
	// Masked is the rule of the run for which a trajectory's sample is not trained on, "" for none.
	// No sample of a batch has one.
	Masked string

	Tokens          []int32
	LossMask        []bool    // true where the model sampled the token
	SamplerLogprobs []float32 // natural logarithm; 0 where not sampled
	Advantages      []float32 // 0 where not sampled
	// Constrained is true where the model sampled the token from another distribution than the
	// policy's, as under a grammar; nil where that is so of none. A feed takes such tokens out of
	// LossMask, unless the run trains on them.
	Constrained []bool

	PolicyVersions   []VersionSegment // ascending, not overlapping; sampled tokens only
	Reward           float32
	RewardComponents map[string]float64 // JSON object in the file
	DispatchVersion  int64              // policy version when the rollout was started
	Staleness        int32              // policy version when the batch was made, minus DispatchVersion
	RolloutSampled   int32              // tokens that the model sampled, over all samples of the rollout
	MicroBatch       int32              // of the file's rank; -1: not packed
	Temperature      float32            // that the sampler was asked for
	Turns            []TurnSpan         // ascending, not overlapping; sampled tokens only
	Annotations      []Annotation       // JSON array in the file
	Columns          []TokenColumn      // by name, then ascending, not overlapping; JSON array in the file
	Images           []Image            // of the prompts, in their order; JSON array in the file
	Hints            []Hint             // ascending, not overlapping; JSON array in the file
	// TeacherLogprobs are each of Batch.Teachers' natural logarithms of the tokens' probabilities,
	// as long as Tokens; 0 for the first token. One that takes hints has NaN for all tokens that no
	// hint is about, and where it has said nothing.
	TeacherLogprobs [][]float32
}

// Batch is what one rank of one training step of one feed reads.
type Batch struct {
	Run, Feed string
	Step      int64
	// Rank from 0 of Ranks data-parallel ranks, each with a file of its own; a trainer that is
	// one process is rank 0 of 1.
	Rank, Ranks int
	// MicroBatches is how many each rank has, the last ones possibly without samples;
	// 0: samples are not packed.
	MicroBatches int
	// Whole counts the step's samples over all ranks.
	Whole Counts
	// Roles are those of the run's episodes; a file of a batch without any has no column for them.
	Roles []string
	// Teachers are those whose log-probabilities the samples have; a file of a batch without any
	// has no columns for them.
	Teachers []string
	// Hinter has stated the samples' hints, and Hinted are the teachers that take them; a file of a
	// batch without a hinter has no column for them.
	Hinter  string
	Hinted  []string
	Samples []Sample
}

// Counts are what means over a whole step are divided by.
type Counts struct{ Samples, SampledTokens, Rollouts int64 }

// Count counts samples. Those of one rollout are together.
func Count(samples []Sample) Counts {
	c := Counts{Samples: int64(len(samples))}
	for i := range samples {
		c.SampledTokens += int64(countTrue(samples[i].LossMask))
		if i == 0 || samples[i].Rollout != samples[i-1].Rollout {
			c.Rollouts++
		}
	}
	return c
}

// Plus adds the counts of another rank.
func (c Counts) Plus(o Counts) Counts {
	return Counts{Samples: c.Samples + o.Samples, SampledTokens: c.SampledTokens + o.SampledTokens,
		Rollouts: c.Rollouts + o.Rollouts}
}
