package storage

import (
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// validate checks what every batch file promises; the error names the sample.
func (b *Batch) validate() error {
	own := Count(b.Samples)
	switch {
	case b.Step < 0:
		return fmt.Errorf("step %d is negative", b.Step)
	case b.Rank < 0 || b.Rank >= b.Ranks:
		return fmt.Errorf("rank %d of %d", b.Rank, b.Ranks)
	case b.MicroBatches < 0 || b.MicroBatches > math.MaxInt32:
		return fmt.Errorf("%d micro-batches", b.MicroBatches)
	case own.Samples > b.Whole.Samples || own.SampledTokens > b.Whole.SampledTokens ||
		own.Rollouts > b.Whole.Rollouts || b.Ranks == 1 && own != b.Whole:
		return fmt.Errorf("%+v in this file of a batch of %+v over %d ranks", own, b.Whole, b.Ranks)
	}
	if err := checkTeachers(b.Teachers); err != nil {
		return err
	}
	if err := b.checkHinter(); err != nil {
		return err
	}
	if err := b.checkRoles(); err != nil {
		return err
	}
	for i := range b.Samples {
		s := &b.Samples[i]
		err := s.validate(b.MicroBatches)
		if err == nil {
			err = s.validateHints(b.Hinter)
		}
		if err == nil {
			err = s.validateTeachers(b.Teachers, b.Hinted)
		}
		if err != nil {
			return fmt.Errorf("sample %d (rollout %s): %w", i, s.Rollout, err)
		}
	}
	return nil
}

func (s *Sample) validate(microBatches int) error {
	n := len(s.Tokens)
	switch {
	case len(s.LossMask) != n || len(s.SamplerLogprobs) != n || len(s.Advantages) != n:
		return fmt.Errorf("%d tokens, %d entries of the loss mask, %d sampler logprobs and %d advantages; all must be as many",
			n, len(s.LossMask), len(s.SamplerLogprobs), len(s.Advantages))
	case s.Constrained != nil && len(s.Constrained) != n:
		return fmt.Errorf("%d tokens, and marks of %d that are constrained", n, len(s.Constrained))
	case s.TextOnly && n > 0:
		return fmt.Errorf("%d tokens in a sample marked text only", n)
	case s.PromptLength < 0 || int(s.PromptLength) > n:
		return fmt.Errorf("prompt length %d of %d tokens", s.PromptLength, n)
	case s.SampleIndex < 0 || s.SamplesInRollout < 0 || s.SamplesInRollout > 0 && s.SampleIndex >= s.SamplesInRollout:
		return fmt.Errorf("sample index %d of %d samples", s.SampleIndex, s.SamplesInRollout)
	case microBatches == 0 && s.MicroBatch != -1 ||
		microBatches > 0 && (s.MicroBatch < 0 || int(s.MicroBatch) >= microBatches):
		return fmt.Errorf("micro-batch %d of %d", s.MicroBatch, microBatches)
	case int(s.RolloutSampled) < countTrue(s.LossMask):
		return fmt.Errorf("%d tokens were sampled in the rollout, %d of them in this sample alone", s.RolloutSampled,
			countTrue(s.LossMask))
	case !finite(float64(s.Reward)):
		return fmt.Errorf("reward is %v", s.Reward)
	case !finite(float64(s.Temperature)) || s.Temperature < 0:
		return fmt.Errorf("temperature is %v", s.Temperature)
	}
	for name, value := range s.RewardComponents {
		if !finite(value) {
			return fmt.Errorf("reward component %q is %v", name, value)
		}
	}
	if err := checkVersions(s.PolicyVersions, n); err != nil {
		return err
	}
	if err := checkTurns(s.Turns, n); err != nil {
		return err
	}
	if err := checkAnnotations(s.Annotations, n); err != nil {
		return err
	}
	if err := checkColumns(s.Columns, n); err != nil {
		return err
	}
	if err := checkImages(s.Images); err != nil {
		return err
	}
	if err := tokencheck.IDs(s.Tokens); err != nil {
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
		if !follows(v.Start, v.Length, tokens, &end) || v.Version < -1 {
			return fmt.Errorf("policy version segment %d (start %d, length %d, version %d) does not fit after token %d of %d",
				i, v.Start, v.Length, v.Version, end, tokens)
		}
	}
	return nil
}

func checkTurns(turns []TurnSpan, tokens int) error {
	end := int64(0)
	for i, t := range turns {
		if !follows(t.Start, t.Length, tokens, &end) || t.Turn < 0 {
			return fmt.Errorf("turn span %d (start %d, length %d, turn %d) does not fit after token %d of %d", i,
				t.Start, t.Length, t.Turn, end, tokens)
		}
	}
	return nil
}

// follows reports whether a span of some tokens begins at or after end and stays within the sample,
// and moves end behind it.
func follows(start, length int32, tokens int, end *int64) bool {
	if int64(start) < *end || length <= 0 || int64(start)+int64(length) > int64(tokens) {
		return false
	}
	*end = int64(start) + int64(length)
	return true
}

func checkAnnotations(annotations []Annotation, tokens int) error {
	for i, a := range annotations {
		if a.Start < 0 || a.Length < 0 || int64(a.Start)+int64(a.Length) > int64(tokens) ||
			a.Turn != nil && *a.Turn < 0 {
			return fmt.Errorf("annotation %d (start %d, length %d) does not fit in %d tokens", i,
				a.Start, a.Length, tokens)
		}
		if a.Reward != nil && !finite(*a.Reward) {
			return fmt.Errorf("the reward of annotation %d is %v", i, *a.Reward)
		}
		for name, value := range a.Values {
			if !finite(value) {
				return fmt.Errorf("value %q of annotation %d is %v", name, i, value)
			}
		}
	}
	return nil
}

// exponent holds the bits of a float32 that are all set in NaN and the infinities.
const exponent = 0x7f800000

func checkFinite(what string, values []float32) error {
	for i, value := range values {
		if math.Float32bits(value)&exponent == exponent {
			return fmt.Errorf("entry %d of the %s is %v", i, what, value)
		}
	}
	return nil
}

func finite(value float64) bool {
	return !math.IsNaN(value) && !math.IsInf(value, 0)
}

// checkRoles checks the names of a batch's roles, and that each sample has one of them, or none.
func (b *Batch) checkRoles() error {
	if len(b.Roles) > maxRoles {
		return fmt.Errorf("%d roles (limit %d)", len(b.Roles), maxRoles)
	}
	for i, name := range b.Roles {
		if !teacherName.MatchString(name) || slices.Contains(b.Roles[:i], name) {
			return fmt.Errorf("role %.80q appears twice, or is no name of letters, digits, - and _", name)
		}
	}
	for i := range b.Samples {
		if role := b.Samples[i].Role; role != "" && !slices.Contains(b.Roles, role) {
			return fmt.Errorf("sample %d (rollout %s): role %.80q is none of %v", i,
				b.Samples[i].Rollout, role, b.Roles)
		}
	}
	return nil
}
