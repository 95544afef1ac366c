package storage

import "slices"

// Samples gives one training sample for each segment, in the order in which the segments begin.
// Advantages, rewards, staleness and packing are the caller's to fill in. The prompt of a sample
// is what precedes its first sampled token. A sample is truncated when its last generation ended
// with finish reason "length".
func (t *Trajectory) Samples() []Sample {
	lengths, place := map[int32]int{}, map[int32]int{}
	for i := range t.Messages {
		lengths[t.Messages[i].Segment] += len(t.Messages[i].TokenIDs)
	}
	var samples []Sample
	for i := range t.Messages {
		m := &t.Messages[i]
		at, known := place[m.Segment]
		if !known {
			at = len(samples)
			place[m.Segment] = at
			samples = append(samples, t.sample(at, lengths[m.Segment]))
			samples[at].Masked = t.Masked[m.Segment]
		}
		samples[at].add(m)
	}
	sampled := int32(0)
	for i := range samples {
		sampled += int32(countTrue(samples[i].LossMask))
	}
	for i := range samples {
		samples[i].SamplesInRollout, samples[i].RolloutSampled = int32(len(samples)), sampled
		samples[i].PromptLength = promptLength(samples[i].LossMask)
		sortColumns(samples[i].Columns)
		if s := &samples[i]; s.Constrained != nil {
			s.Constrained = append(s.Constrained, make([]bool, len(s.Tokens)-len(s.Constrained))...)
		}
	}
	return samples
}

// MaskConstrained takes the tokens of a rollout's samples that were sampled under a constraint out
// of the loss. They stay marked.
func MaskConstrained(samples []Sample) {
	sampled := int32(0)
	for i := range samples {
		s := &samples[i]
		for k, constrained := range s.Constrained {
			if constrained {
				s.LossMask[k], s.SamplerLogprobs[k] = false, 0
			}
		}
		sampled += int32(countTrue(s.LossMask))
	}
	for i := range samples {
		samples[i].RolloutSampled = sampled
	}
}

// Why a sample of a rollout that is trained on is left out of a batch: none of its tokens counts.
const (
	LeftUnsampled   = "no sampled tokens"
	LeftConstrained = "constrained"
	// LeftMasked is that of a rollout of which the run masks all conversations. That of a sample
	// names the rule behind it.
	LeftMasked = "conversations"
)

// Trained are the indexes of the samples with a token that is trained on, and why each other
// one has none, by its index.
func Trained(samples []Sample) (kept []int, left map[int]string) {
	for i := range samples {
		switch s := &samples[i]; {
		case slices.Contains(s.LossMask, true):
			kept = append(kept, i)
			continue
		case left == nil:
			left = map[int]string{}
		}
		switch s := &samples[i]; {
		case s.Masked != "":
			left[i] = LeftMasked + ": " + s.Masked
		case slices.Contains(s.Constrained, true):
			left[i] = LeftConstrained
		default:
			left[i] = LeftUnsampled
		}
	}
	return kept, left
}

// sample makes an empty sample with room for some tokens.
func (t *Trajectory) sample(index, tokens int) Sample {
	s := Sample{Run: t.Run, Group: t.Group, Rollout: t.Rollout, Task: t.Task, StopReason: t.StopReason,
		TextOnly: t.TextOnly, DispatchVersion: t.DispatchVersion, SampleIndex: int32(index), MicroBatch: -1}
	if tokens > 0 {
		s.Tokens, s.SamplerLogprobs, s.LossMask = make([]int32, 0, tokens),
			make([]float32, 0, tokens), make([]bool, 0, tokens)
	}
	return s
}

func (s *Sample) add(m *Message) {
	for start, end := range runs(m.LossMask) {
		for span, version := range m.versionsOf(start, end) {
			s.addSpan(int32(len(s.Tokens)+span[0]), int32(span[1]-span[0]), version, m.Turn)
		}
	}
	if m.Role == rolePrompt && len(s.Tokens) == 0 {
		s.Images = nil // of the messages before it, which are among its own
	}
	s.Images = append(s.Images, m.Images...)
	s.Columns = addColumns(s.Columns, m.Columns)
	if m.ConstrainedTokens() > 0 {
		s.Constrained = append(append(s.Constrained, make([]bool, len(s.Tokens)-len(s.Constrained))...), m.LossMask...)
	}
	s.Tokens = append(s.Tokens, m.TokenIDs...)
	s.SamplerLogprobs = append(s.SamplerLogprobs, m.Logprobs...)
	s.LossMask = append(s.LossMask, m.LossMask...)
	if m.FinishReason != "" {
		s.Truncated = m.FinishReason != "stop" && m.FinishReason != "tool_calls"
	}
}

// runs yields the stretches of true entries, each with its end.
func runs(mask []bool) func(yield func(start, end int) bool) {
	return func(yield func(start, end int) bool) {
		for i := 0; i < len(mask); i++ {
			if !mask[i] {
				continue
			}
			start := i
			for i < len(mask) && mask[i] {
				i++
			}
			if !yield(start, i) {
				return
			}
		}
	}
}

// addSpan notes who sampled some tokens, and in which turn. What continues the
// last span makes it longer.
func (s *Sample) addSpan(start, length int32, version int64, turn int32) {
	if n := len(s.PolicyVersions); n > 0 && s.PolicyVersions[n-1].Version == version &&
		s.PolicyVersions[n-1].Start+s.PolicyVersions[n-1].Length == start {
		s.PolicyVersions[n-1].Length += length
	} else {
		s.PolicyVersions = append(s.PolicyVersions, VersionSegment{Start: start, Length: length, Version: version})
	}
	if n := len(s.Turns); n > 0 && s.Turns[n-1].Turn == turn && s.Turns[n-1].Start+s.Turns[n-1].Length == start {
		s.Turns[n-1].Length += length
	} else {
		s.Turns = append(s.Turns, TurnSpan{Start: start, Length: length, Turn: turn})
	}
}

func promptLength(lossMask []bool) int32 {
	for i, sampled := range lossMask {
		if sampled {
			return int32(i)
		}
	}
	return int32(len(lossMask))
}
