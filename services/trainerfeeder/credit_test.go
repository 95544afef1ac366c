package trainerfeeder

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

func number[T any](v T) *T { return &v }

func (k *desk) annotate(rollout string, a events.RolloutAnnotated) {
	k.Happen(events.RolloutAnnotatedType, rollout, a)
}

func one(weight float64) []func(*runfile.RunConfig) {
	return []func(*runfile.RunConfig){feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1 }),
		func(cfg *runfile.RunConfig) { cfg.Advantage.SpanWeight = weight }}
}

// Tokens 3 and 4 were sampled in turn 0, token 6 in turn 1; the rollout's advantage is 0.5.
func TestAnnotationsOfTurnsAndSpans(t *testing.T) {
	for _, c := range []struct {
		name       string
		annotation events.RolloutAnnotated
		advantages []float32
		want       storage.Annotation
	}{
		{"a turn", events.RolloutAnnotated{Turn: number(0), Reward: number(2.)}, []float32{1.5, 1.5, 0.5},
			storage.Annotation{Turn: number[int32](0), Start: 3, Length: 2, Reward: number(2.)}},
		{"the last turn", events.RolloutAnnotated{Turn: number(1), Reward: number(-1.)}, []float32{0.5, 0.5, 0},
			storage.Annotation{Turn: number[int32](1), Start: 6, Length: 1, Reward: number(-1.)}},
		{"a span", events.RolloutAnnotated{Turn: number(0), Start: number(1), Length: number(1), Reward: number(2.),
			Text: "here"}, []float32{0.5, 1.5, 0.5}, storage.Annotation{Turn: number[int32](0), Start: 4, Length: 1,
			Reward: number(2.), Text: "here"}},
		{"from a token on", events.RolloutAnnotated{Turn: number(0), Start: number(1), Reward: number(2.)},
			[]float32{0.5, 1.5, 0.5}, storage.Annotation{Turn: number[int32](0), Start: 4,
				Length: 1, Reward: number(2.)}},
		{"up to a token", events.RolloutAnnotated{Turn: number(0), Length: number(1), Reward: number(2.)},
			[]float32{1.5, 0.5, 0.5}, storage.Annotation{Turn: number[int32](0), Start: 3,
				Length: 1, Reward: number(2.)}},
		{"feedback in words", events.RolloutAnnotated{Turn: number(1), Text: "do not guess",
			Values: map[string]float64{"severity": 2}}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Turn: number[int32](1), Start: 6, Length: 1, Text: "do not guess",
				Values: map[string]float64{"severity": 2}}},
		{"about the rollout", events.RolloutAnnotated{Text: "fine"}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Length: 7, Text: "fine"}},

		{"beyond the turn", events.RolloutAnnotated{Turn: number(0), Start: number(1), Length: number(2),
			Reward: number(2.)}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Turn: number[int32](0), Reward: number(2.),
				Note: "it selects 2 tokens from token 1 of turn 0, which has 2"}},
		{"behind the turn", events.RolloutAnnotated{Turn: number(1), Start: number(1), Reward: number(2.)},
			[]float32{0.5, 0.5, 0.5}, storage.Annotation{Turn: number[int32](1), Reward: number(2.),
				Note: "it selects 0 tokens from token 1 of turn 1, which has 1"}},
		{"far beyond", events.RolloutAnnotated{Turn: number(0), Start: number(math.MaxInt), Length: number(math.MaxInt),
			Reward: number(2.)}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Turn: number[int32](0), Reward: number(2.),
				Note: fmt.Sprintf("it selects %d tokens from token %d of turn 0, which has 2", math.MaxInt,
					math.MaxInt)}},
		{"no such turn", events.RolloutAnnotated{Turn: number(2), Reward: number(2.)}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Reward: number(2.), Note: "no token was sampled in turn 2"}},
		{"no turn of 32 bits", events.RolloutAnnotated{Turn: number(1 << 32), Reward: number(2.)},
			[]float32{0.5, 0.5, 0.5}, storage.Annotation{Reward: number(2.),
				Note: "no token was sampled in turn 4294967296"}},
		{"a span of no turn", events.RolloutAnnotated{Start: number(0), Reward: number(2.)}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Reward: number(2.), Note: "it selects tokens without naming a turn"}},
		{"a reward of no turn", events.RolloutAnnotated{Reward: number(2.)}, []float32{0.5, 0.5, 0.5},
			storage.Annotation{Reward: number(2.), Note: "its reward is not that of a turn"}},
		{"more than a number", events.RolloutAnnotated{Turn: number(0), Reward: number(math.MaxFloat64)},
			[]float32{0.5, 0.5, 0.5}, storage.Annotation{Turn: number[int32](0), Reward: number(math.MaxFloat64),
				Note: fmt.Sprintf("its reward would add %g to the advantages", math.MaxFloat64/2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDesk(t, one(0.5)...)
			k.open(1, 0, 1)
			k.annotate("g000001-0", c.annotation)
			k.end(1, 0, ending{reward: 1})
			s := k.files(k.batch())[0].Samples[0]
			if got := []float32{s.Advantages[3], s.Advantages[4], s.Advantages[6]}; !slices.Equal(got, c.advantages) {
				t.Errorf("advantages %v, want %v", got, c.advantages)
			}
			if !reflect.DeepEqual(s.Annotations, []storage.Annotation{c.want}) {
				t.Errorf("annotations %+v, want %+v", s.Annotations, c.want)
			}
			if s.Advantages[0] != 0 || s.Advantages[5] != 0 {
				t.Error("tokens that were not sampled have an advantage")
			}
		})
	}
}

func TestAnnotationsAddUp(t *testing.T) {
	k := newDesk(t, one(1)...)
	k.open(1, 0, 2)
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(0), Reward: number(1.)})
	k.end(1, 0, good...)
	// while its group waits
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(0), Start: number(1), Reward: number(2.)})
	k.annotate("g000001-9", events.RolloutAnnotated{Text: "of nobody"})
	samples := k.files(k.batch())[0].Samples
	if got := samples[0].Advantages; !slices.Equal(got, []float32{0, 0, 0, 1.5, 3.5, 0, 0.5}) ||
		len(samples[0].Annotations) != 2 {
		t.Errorf("advantages %v, annotations %v", got, samples[0].Annotations)
	}
	if got := samples[1].Advantages; !slices.Equal(got, []float32{0, 0, 0, -0.5, -0.5, 0, -0.5}) ||
		samples[1].Annotations != nil {
		t.Errorf("the other member has advantages %v", got)
	}
	k.annotate("g000001-0", events.RolloutAnnotated{Text: "too late"})
}

func TestRewardsOfSpansWithoutWeight(t *testing.T) {
	k := newDesk(t, one(0)...)
	k.open(1, 0, 1)
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(0), Reward: number(1.)})
	k.end(1, 0, ending{reward: 1})
	if s := k.files(k.batch())[0].Samples[0]; s.Advantages[3] != 0.5 || len(s.Annotations) != 1 {
		t.Errorf("advantages %v, annotations %v", s.Advantages, s.Annotations)
	}
}

// In a rollout of two samples a turn's remark goes to the sample that holds the turn, and one
// about the rollout to both.
func TestAnnotationsOfSplitRollouts(t *testing.T) {
	k := newDesk(t, one(1)...)
	k.open(1, 0, 1)
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(1), Reward: number(1.)})
	k.annotate("g000001-0", events.RolloutAnnotated{Text: "both"})
	k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(5), Text: "none"})
	k.end(1, 0, ending{reward: 1, split: true})
	samples := k.files(k.batch())[0].Samples
	if len(samples) != 2 || !slices.Equal(samples[0].Advantages, []float32{0, 0, 0, 0.5, 0.5}) ||
		!slices.Equal(samples[1].Advantages, []float32{0, 1.5}) {
		t.Fatalf("samples %+v", samples)
	}
	for i, want := range []string{"[both:0+5 none:0+0]", "[:1+1 both:0+2]"} {
		var got []string
		for _, a := range samples[i].Annotations {
			got = append(got, fmt.Sprintf("%s:%d+%d", a.Text, a.Start, a.Length))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("sample %d has %v, want %s", i, got, want)
		}
	}
}

// However much is said about a rollout, its batch can be written.
func TestTooManyAnnotations(t *testing.T) {
	k := newDesk(t, one(1)...)
	k.open(1, 0, 1)
	text := strings.Repeat("x", 10_000)
	for range 30 {
		k.annotate("g000001-0", events.RolloutAnnotated{Turn: number(0), Text: text})
	}
	k.end(1, 0, ending{reward: 1})
	annotations := k.files(k.batch())[0].Samples[0].Annotations
	if n := len(annotations); n < 20 || n > 27 ||
		annotations[n-1].Note != fmt.Sprintf("%d more annotations are left out: there are too many", 30-(n-1)) {
		t.Errorf("%d annotations, the last one says %q", n, annotations[n-1].Note)
	}
	var all []*trained
	for range 3 {
		all = append(all, &trained{samples: []storage.Sample{{Tokens: []int32{1}}},
			remarks: remarks{Notes: []events.RolloutAnnotated{{Text: strings.Repeat("y", maxAnnotations/2)}}}})
	}
	k.d.credit(all)
	for i, want := range []string{"", "1 more annotations are left out: there are too many",
		"1 more annotations are left out: there are too many"} {
		if got := all[i].samples[0].Annotations; len(got) != 1 || got[0].Note != want {
			t.Errorf("member %d has the note %q, want %q", i, got[0].Note, want)
		}
	}
}

// REINFORCE++ normalises over the sampled tokens of the members that are trained on,
// in the order of the rows.
func TestBatchwiseAdvantages(t *testing.T) {
	k := newDesk(t, func(cfg *runfile.RunConfig) {
		cfg.Advantage = runfile.Advantage{Estimator: "reinforce_plus_plus"}
		cfg.Filters.Truncated = true
	})
	k.group(1, 0, ending{reward: 1}, ending{reward: 9, stop: events.StopLength})
	k.group(2, 0, ending{reward: 0, prompt: 5, split: true}, ending{reward: 0})
	// The desk's group-wise advantages are 0.5, −0.5 and −0.5, with three sampled tokens each: mean
	// −1/6, and the sum of squares over nine tokens is 3·(4/9 + 1/9 + 1/9) = 2, so that the
	// variance with ddof 1 is 2/8.
	want := map[string]float64{"g000001-0": (2. / 3) / 0.5, "g000002-0": (-1. / 3) / 0.5, "g000002-1": (-1. / 3) / 0.5}
	for _, s := range k.files(k.batch())[0].Samples {
		for i, sampled := range s.LossMask {
			if sampled && math.Abs(float64(s.Advantages[i])-want[s.Rollout]) > 1e-6 {
				t.Errorf("%s: advantage %g, want %g", s.Rollout, s.Advantages[i], want[s.Rollout])
			}
		}
	}
}

// Rewards that no column of float32 can hold do not stop a feed.
func TestHugeRewards(t *testing.T) {
	k := newDesk(t, one(1)...)
	k.group(1, 0, ending{reward: 1e300}, ending{reward: -1e300})
	for i, s := range k.files(k.batch())[0].Samples {
		sign := float32(1 - 2*i)
		if s.Reward != sign*math.MaxFloat32 || s.Advantages[3] != sign*math.MaxFloat32 {
			t.Errorf("reward %g, advantage %g", s.Reward, s.Advantages[3])
		}
	}
}
