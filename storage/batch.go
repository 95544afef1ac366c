package storage

import (
	"fmt"
	"math"
)

// VersionSegment says which policy version sampled the tokens [Start, Start+Length) of a sample.
type VersionSegment struct {
	Start, Length int32
	Version       int64
}

// Sample is one row of a batch file: one training sample. The per-token slices are as long as Tokens and are not shifted: entry i
// belongs to token i.
type Sample struct {
	Run, Group, Rollout, Task string
	StopReason                string
	SampleIndex               int32 // among the samples of the rollout
	SamplesInRollout          int32
	PromptLength              int32 // tokens before the first sampled one
	Truncated                 bool  // the last generation hit its length limit
	TextOnly                  bool  // the sampler gave no token ids: there are no tokens

	Tokens          []int32
	LossMask        []bool    // true where the model sampled the token
	SamplerLogprobs []float32 // natural logarithm; 0 where not sampled
	Advantages      []float32 // 0 where not sampled

	PolicyVersions   []VersionSegment // ascending, not overlapping; sampled tokens only
	Reward           float32
	RewardComponents map[string]float64 // JSON object in the file
	DispatchVersion  int64              // policy version when the rollout was started
	Staleness        int32              // policy version when the batch was made, minus DispatchVersion
}

// Batch is what one training step of one feed reads.
type Batch struct {
	Run, Feed string
	Step      int64
	Samples   []Sample
}

// validate checks what every batch file promises; the error names the sample.
func (b *Batch) validate() error {
	if b.Step < 0 {
		return fmt.Errorf("step %d is negative", b.Step)
	}
	for i := range b.Samples {
		if err := b.Samples[i].validate(); err != nil {
			return fmt.Errorf("sample %d (rollout %s): %w", i, b.Samples[i].Rollout, err)
		}
	}
	return nil
}

func (s *Sample) validate() error {
	n := len(s.Tokens)
	switch {
	case len(s.LossMask) != n || len(s.SamplerLogprobs) != n || len(s.Advantages) != n:
		return fmt.Errorf("%d tokens, %d entries of the loss mask, %d sampler logprobs and %d advantages; all must be as many",
			n, len(s.LossMask), len(s.SamplerLogprobs), len(s.Advantages))
	case s.TextOnly && n > 0:
		return fmt.Errorf("%d tokens in a sample marked text only", n)
	case s.PromptLength < 0 || int(s.PromptLength) > n:
		return fmt.Errorf("prompt length %d of %d tokens", s.PromptLength, n)
	case s.SampleIndex < 0 || s.SamplesInRollout < 0 || s.SamplesInRollout > 0 && s.SampleIndex >= s.SamplesInRollout:
		return fmt.Errorf("sample index %d of %d samples", s.SampleIndex, s.SamplesInRollout)
	case !finite(float64(s.Reward)):
		return fmt.Errorf("reward is %v", s.Reward)
	}
	for name, value := range s.RewardComponents {
		if !finite(value) {
			return fmt.Errorf("reward component %q is %v", name, value)
		}
	}
	if err := checkVersions(s.PolicyVersions, n); err != nil {
		return err
	}
	if err := checkTokens(s.Tokens); err != nil {
		return err
	}
	if err := checkFinite("sampler logprobs", s.SamplerLogprobs); err != nil {
		return err
	}
	return checkFinite("advantages", s.Advantages)
}

func checkVersions(segments []VersionSegment, tokens int) error {
	end := int64(0)
	for i, v := range segments {
		start, length := int64(v.Start), int64(v.Length)
		if start < end || length <= 0 || start+length > int64(tokens) || v.Version < 0 {
			return fmt.Errorf("policy version segment %d (start %d, length %d, version %d) does not fit after token %d of %d",
				i, v.Start, v.Length, v.Version, end, tokens)
		}
		end = start + length
	}
	return nil
}

func checkTokens(tokens []int32) error {
	for i, token := range tokens {
		if token < 0 {
			return fmt.Errorf("token %d has the id %d", i, token)
		}
	}
	return nil
}

func checkFinite(what string, values []float32) error {
	for i, value := range values {
		if !finite(float64(value)) {
			return fmt.Errorf("entry %d of the %s is %v", i, what, value)
		}
	}
	return nil
}

func finite(value float64) bool {
	return !math.IsNaN(value) && !math.IsInf(value, 0)
}
