package trainerfeeder

import (
	"maps"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// TestConstrainedTokens: tokens that were sampled under a constraint are marked, and not
// trained on, unless the run says so. A rollout of nothing else is masked, and a group of
// such rollouts is dropped.
func TestConstrainedTokens(t *testing.T) {
	some := []ending{{reward: 1, constrained: 2}, {reward: 0, constrained: 3}}
	bonus := func(k *desk) { // of the constrained turn
		k.Happen(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(1), 0),
			events.RolloutAnnotated{Turn: new(0), Reward: new(1.0)})
	}
	one := func(c *runfile.RunConfig) { c.Feeds[0].GroupsPerBatch, c.Advantage.SpanWeight = 1, 1 }

	k := newDesk(t, one)
	k.open(1, 0, 2)
	bonus(k)
	k.end(1, 0, some...)
	ready := k.batch()
	if want := events.RolloutID(events.GroupID(1), 1); ready.Masked[want] != maskConstrained ||
		len(ready.Rollouts) != 1 || ready.Sampled != 1 {
		t.Errorf("masked %v, rollouts %v, %d tokens sampled", ready.Masked, ready.Rollouts, ready.Sampled)
	}
	s := k.files(ready)[0].Samples[0]
	if !slices.Equal(s.LossMask, []bool{false, false, false, false, false, false, true}) ||
		!slices.Equal(s.Constrained, []bool{false, false, false, true, true, false, false}) ||
		!slices.Equal(s.SamplerLogprobs, []float32{0, 0, 0, 0, 0, 0, -0.3}) ||
		!slices.Equal(s.Advantages, []float32{0, 0, 0, 0, 0, 0, 0.5}) || s.RolloutSampled != 1 {
		t.Errorf("a sample of which two tokens are constrained: %+v", s)
	}

	k = newDesk(t, one, func(c *runfile.RunConfig) { c.Filters.TrainConstrained = true })
	k.group(1, 0, some...)
	ready = k.batch()
	files := k.files(ready)[0].Samples
	if len(ready.Masked) > 0 || ready.Sampled != 6 || !slices.Equal(files[1].Constrained, files[1].LossMask) {
		t.Errorf("a run that trains on them: %v, %d tokens, %+v", ready.Masked, ready.Sampled, files[1])
	}

	k = newDesk(t, one)
	k.group(1, 0, ending{reward: 1, constrained: 3}, ending{constrained: 3})
	facts := k.Settle()
	if len(facts) != 1 || facts[0].Type != events.GroupDroppedType {
		t.Fatalf("a group of constrained rollouts: %v", facts)
	}
	dropped, err := events.Data[events.GroupDropped](facts[0])
	if err != nil || dropped.Detail != "no member can be trained on: constrained" {
		t.Errorf("%+v, %v", dropped, err)
	}
}

// TestSamplesWithoutLoss: a sample of which no token is trained on is in no batch, and the
// fact says which one and why.
func TestSamplesWithoutLoss(t *testing.T) {
	k := newDesk(t, func(c *runfile.RunConfig) { c.Feeds[0].GroupsPerBatch = 1 })
	k.group(1, 0, ending{reward: 1, split: true, constrained: 2}, ending{split: true})
	ready := k.batch()
	first := events.RolloutID(events.GroupID(1), 0)
	if len(ready.LeftOut) != 1 || ready.LeftOut[first+"/0"] != maskConstrained ||
		ready.Samples != 3 || ready.Sampled != 4 {
		t.Errorf("left out %v, %d samples, %d tokens", ready.LeftOut, ready.Samples, ready.Sampled)
	}
	for _, s := range k.files(ready)[0].Samples {
		if !slices.Contains(s.LossMask, true) || s.Rollout == first && (s.SampleIndex != 0 || s.SamplesInRollout != 1) {
			t.Errorf("sample %d of %d of %s: %v", s.SampleIndex, s.SamplesInRollout, s.Rollout, s.LossMask)
		}
	}
}

// TestMaskedConversations: a conversation that the run does not train on is in no batch, and the
// fact says by which rule. The rollout's other tokens have its whole advantage. A rollout of
// nothing else is masked, and a group of such rollouts is dropped.
func TestMaskedConversations(t *testing.T) {
	k := newDesk(t, func(c *runfile.RunConfig) { c.Feeds[0].GroupsPerBatch = 1 })
	k.group(1, 0, ending{reward: 1, split: true, masked: true}, ending{masked: true}, ending{split: true})
	ready := k.batch()
	first, second := events.RolloutID(events.GroupID(1), 0), events.RolloutID(events.GroupID(1), 1)
	if !maps.Equal(ready.LeftOut, map[string]string{first + "/0": "conversations: titles"}) ||
		!maps.Equal(ready.Masked, map[string]string{second: maskMasked}) || ready.Samples != 3 || ready.Sampled != 4 {
		t.Errorf("left out %v, masked %v, %d samples, %d tokens", ready.LeftOut, ready.Masked,
			ready.Samples, ready.Sampled)
	}
	s := k.files(ready)[0].Samples[0]
	if !slices.Equal(s.Tokens, []int32{6, 7}) || !slices.Equal(s.LossMask, []bool{false, true}) ||
		!slices.Equal(s.Advantages, []float32{0, 0.5}) || s.RolloutSampled != 1 {
		t.Errorf("the sample that is trained on: %+v", s)
	}

	k = newDesk(t, func(c *runfile.RunConfig) { c.Feeds[0].GroupsPerBatch = 1 })
	k.group(1, 0, ending{reward: 1, masked: true}, ending{masked: true})
	facts := k.Settle()
	if len(facts) != 1 || facts[0].Type != events.GroupDroppedType {
		t.Fatalf("a group of masked rollouts: %v", facts)
	}
	dropped, err := events.Data[events.GroupDropped](facts[0])
	if err != nil || dropped.Detail != "no member can be trained on: conversations" {
		t.Errorf("%+v, %v", dropped, err)
	}
}
