package trainerfeeder

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// maxAnnotations bounds the annotations of one batch, in bytes of their JSON:
// batch files have a limit.
const maxAnnotations = 16 << 20

// credit gives the sampled tokens of a batch's members, in the order of its rows, their advantages,
// and its samples their annotations.
func (d *Decider) credit(members []*trained) {
	left := maxAnnotations
	for i, base := range d.bases(members) {
		d.creditMember(members[i], base, &left)
	}
}

// bases are the members' advantages: what their groups gave them, normalised over the batch where
// the estimator does that. In an export all are 1.
func (d *Decider) bases(members []*trained) []float64 {
	bases, sampled := make([]float64, len(members)), make([]int, len(members))
	for i, m := range members {
		bases[i], sampled[i] = m.Advantage, m.sampled()
		if d.feed.Export() {
			bases[i] = 1
		}
	}
	if normalise, ok := advantage.Batchwise(d.cfg.Advantage.Estimator, d.cfg.Advantage.Params); ok && !d.feed.Export() {
		return d.byRole(members, bases, sampled, normalise)
	}
	return bases
}

// byRole normalises the advantages of each role among themselves.
func (d *Decider) byRole(members []*trained, bases []float64, sampled []int,
	normalise func([]float64, []int) []float64) []float64 {
	places := map[string][]int{}
	for i, m := range members {
		role := events.RoleOf(d.cfg, events.GroupOf(m.Rollout), m.Index)
		places[role] = append(places[role], i)
	}
	for _, at := range places {
		values, counts := make([]float64, len(at)), make([]int, len(at))
		for k, i := range at {
			values[k], counts[k] = bases[i], sampled[i]
		}
		for k, v := range normalise(values, counts) {
			bases[at[k]] = v
		}
	}
	return bases
}

func (d *Decider) creditMember(t *trained, base float64, left *int) {
	turns := turnsOf(t.samples)
	spans := map[int32][]advantage.Span{}
	for _, n := range t.remarks.Notes {
		a, span, copies, why := d.locate(n, turns, len(t.samples))
		if *left -= jsonSize(a) * copies; *left < 0 {
			t.remarks.Left++
			continue
		}
		if why != "" {
			a.Note = why
			t.annotate(0, a)
			continue
		}
		if n.Turn == nil {
			t.annotateAll(a)
			continue
		}
		turn := turns[int32(*n.Turn)]
		turn.pieces(span.Start, span.Length, func(sample int, start, length int32) {
			piece := a
			piece.Start, piece.Length = start, length
			t.annotate(sample, piece)
		})
		if n.Reward != nil {
			spans[int32(*n.Turn)] = append(spans[int32(*n.Turn)], span)
		}
	}
	if t.remarks.Left > 0 {
		t.annotate(0, storage.Annotation{Note: fmt.Sprintf("%d more annotations are left out: there are too many",
			t.remarks.Left)})
	}
	d.advantages(t, base, turns, spans)
}

// advantages fills the per-token advantages.
func (d *Decider) advantages(t *trained, base float64, turns map[int32]*turn, spans map[int32][]advantage.Span) {
	for i := range t.samples {
		s := &t.samples[i]
		s.Advantages = make([]float32, len(s.Tokens))
		for k, sampled := range s.LossMask {
			if sampled {
				s.Advantages[k] = number32(base)
			}
		}
	}
	weight := d.cfg.Advantage.SpanWeight
	if weight == 0 || d.feed.Export() {
		return
	}
	for at, list := range spans {
		values := advantage.Tokens(base, turns[at].length, list, weight)
		turns[at].pieces(0, turns[at].length, func(sample int, start, length int32) {
			for k := range length {
				if t.samples[sample].LossMask[start+k] {
					t.samples[sample].Advantages[start+k] = number32(values[k])
				}
			}
			values = values[length:]
		})
	}
}

// turn is where the tokens of one model generation are: usually one span of one sample.
type turn struct {
	length int
	places []tokenSpan
}

type tokenSpan struct {
	sample        int
	start, length int32
}

func turnsOf(samples []storage.Sample) map[int32]*turn {
	turns := map[int32]*turn{}
	for i := range samples {
		for _, span := range samples[i].Turns {
			t := turns[span.Turn]
			if t == nil {
				t = &turn{}
				turns[span.Turn] = t
			}
			t.length += int(span.Length)
			t.places = append(t.places, tokenSpan{sample: i, start: span.Start, length: span.Length})
		}
	}
	return turns
}

// pieces yields where some of the turn's sampled tokens are.
func (t *turn) pieces(start, length int, piece func(sample int, start, length int32)) {
	for _, p := range t.places {
		from, to := max(0, start), min(int(p.length), start+length)
		if from < to {
			piece(p.sample, p.start+int32(from), int32(to-from))
		}
		start -= int(p.length)
	}
}

// largestBonus is what a span's reward, weighed, may add to an advantage.
const largestBonus = 1e30

// locate says which sampled tokens of its turn an annotation is about and to how many places in the
// rollout's samples it goes, or why it counts for nothing.
func (d *Decider) locate(n events.RolloutAnnotated, turns map[int32]*turn,
	samples int) (a storage.Annotation, span advantage.Span, copies int, why string) {
	a = storage.Annotation{Reward: n.Reward, Text: n.Text, Values: n.Values}
	switch {
	case n.Turn == nil && (n.Start != nil || n.Length != nil):
		return a, span, 1, "it selects tokens without naming a turn"
	case n.Turn == nil && n.Reward != nil:
		return a, span, 1, "its reward is not that of a turn"
	case n.Turn == nil:
		return a, span, samples, ""
	}
	number := int32(*n.Turn)
	t := turns[number]
	if t == nil || int(number) != *n.Turn {
		return a, span, 1, fmt.Sprintf("no token was sampled in turn %d", *n.Turn)
	}
	a.Turn = &number
	if n.Start != nil {
		span.Start = *n.Start
	}
	span.Length = t.length - span.Start
	if n.Length != nil {
		span.Length = *n.Length
	}
	if span.Start < 0 || span.Length < 1 || span.Start > t.length || span.Length > t.length-span.Start {
		return a, span, 1, fmt.Sprintf("it selects %d tokens from token %d of turn %d, which has %d",
			max(span.Length, 0), span.Start, number, t.length)
	}
	if n.Reward != nil {
		span.Reward = *n.Reward
	}
	if bonus := float64(span.Reward * d.cfg.Advantage.SpanWeight); math.Abs(bonus) > largestBonus {
		return a, span, 1, fmt.Sprintf("its reward would add %g to the advantages", bonus)
	}
	return a, span, len(t.places), ""
}

// number32 is the nearest number of a file's columns, which hold neither NaN nor infinities.
func number32(v float64) float32 {
	if math.IsNaN(v) {
		return 0
	}
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, v)))
}

func (t *trained) annotate(sample int, a storage.Annotation) {
	if sample < len(t.samples) {
		t.samples[sample].Annotations = append(t.samples[sample].Annotations, a)
	}
}

// annotateAll attaches a remark about the whole rollout to each of its samples.
func (t *trained) annotateAll(a storage.Annotation) {
	for i := range t.samples {
		a.Length = int32(len(t.samples[i].Tokens))
		t.annotate(i, a)
	}
}

func jsonSize(a storage.Annotation) int {
	text, err := json.Marshal(a)
	if err != nil {
		return maxAnnotations // it cannot be written, so it is left out
	}
	return len(text)
}
