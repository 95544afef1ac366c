package audit

import (
	"fmt"
	"math"
	"slices"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// samples checks the rows of a batch: tokens against the trajectories, advantages and
// annotations against the facts.
func (c *Checker) samples(e events.Event, feed runfile.Feed, ready events.BatchReady, files []*storage.Batch) error {
	rows := map[string][]storage.Sample{}
	for _, f := range files {
		for _, s := range f.Samples {
			rows[s.Rollout] = append(rows[s.Rollout], s)
		}
	}
	bases := c.bases(feed, ready, rows)
	for i, id := range ready.Rollouts {
		r := c.rollouts[id]
		if r == nil {
			continue // found already
		}
		if err := c.trajectory(e, feed, ready, r, rows[id]); err != nil {
			return err
		}
		c.credit(e, feed, id, r, rows[id], bases[i])
	}
	return nil
}

// trajectory checks that the rows of a rollout are its trajectory's samples.
func (c *Checker) trajectory(e events.Event, feed runfile.Feed, ready events.BatchReady, r *rolloutState,
	rows []storage.Sample) error {
	data, err := c.fetch(e, r.scored.Trajectory)
	if data == nil {
		return err
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		c.find(RuleObject, e, "%v", err)
		return nil
	}
	samples := trajectory.Samples()
	if i := events.OtherImages(samples, events.SegmentImages(r.shown, r.left, trajectory.TextOnly)); i >= 0 {
		c.find(RuleBatch, e, "sample %d of rollout %s has other images than its turns show", i, trajectory.Rollout)
	}
	if !c.books.Config.FiltersOf(feed).TrainConstrained {
		storage.MaskConstrained(samples)
	}
	kept, left := storage.Trained(samples)
	if len(kept) != len(rows) {
		c.find(RuleBatch, e, "rollout %s has %d samples in the files, %d in its trajectory that are trained on",
			trajectory.Rollout, len(rows), len(kept))
		return nil
	}
	for i := range samples {
		if at := fmt.Sprintf("%s/%d", trajectory.Rollout, i); ready.LeftOut[at] != left[i] {
			c.find(RuleMembers, e, "sample %s is left out as %q; its tokens say %q", at, ready.LeftOut[at], left[i])
		}
	}
	version, bound := ready.MinVersion+ready.Staleness, c.books.Config.StalenessOf(feed).Max
	for n, i := range kept {
		s, row := samples[i], rows[n]
		for k := range s.PolicyVersions {
			s.PolicyVersions[k].Stale = s.PolicyVersions[k].StaleAt(version, row.DispatchVersion, bound)
		}
		if err := c.taughtSample(e, feed, r, i, samples, row); err != nil {
			return err
		}
		if !slices.Equal(s.Tokens, row.Tokens) || !slices.Equal(s.LossMask, row.LossMask) ||
			!slices.Equal(s.SamplerLogprobs, row.SamplerLogprobs) ||
			!slices.Equal(s.Constrained, row.Constrained) ||
			!slices.Equal(s.PolicyVersions, row.PolicyVersions) || !slices.Equal(s.Turns, row.Turns) ||
			!slices.Equal(s.Columns, row.Columns) ||
			!slices.Equal(s.Images, row.Images) ||
			s.RolloutSampled != row.RolloutSampled || int(row.SampleIndex) != n {
			c.find(RuleBatch, e, "sample %d of rollout %s is not that of its trajectory", i, row.Rollout)
		}
		if slices.ContainsFunc(row.Turns, func(span storage.TurnSpan) bool {
			return slices.Contains(r.left,
				int(span.Turn))
		}) {
			c.find(RuleBatch, e,
				"sample %d of rollout %s has turns that are no part of the episode: its agent left %v behind", i,
				row.Rollout, r.left)
		}
		if rule, is := r.maskedIn(row); is {
			c.find(RuleBatch, e, "sample %d of rollout %s trains on turns that rule %s of the run masks", i,
				row.Rollout, rule)
		}
		if row.Reward != number32(r.reward) || row.DispatchVersion != r.version ||
			int64(row.Staleness) != version-r.version {
			c.find(RuleBatch, e,
				"rollout %s: reward %g, dispatch version %d, staleness %d in the files; the facts say %g, %d, %d",
				row.Rollout, row.Reward, row.DispatchVersion, row.Staleness, r.reward, r.version, version-r.version)
		}
	}
	return nil
}

// bases are the advantages of the fact's rollouts before annotations count.
func (c *Checker) bases(feed runfile.Feed, ready events.BatchReady, rows map[string][]storage.Sample) []float64 {
	given := map[string]float64{}
	for _, id := range ready.Groups {
		if g := c.groups[id]; g != nil {
			for _, m := range g.members {
				given[m.Rollout] = m.Advantage
			}
		}
	}
	bases, sampled := make([]float64, len(ready.Rollouts)), make([]int, len(ready.Rollouts))
	for i, id := range ready.Rollouts {
		bases[i] = given[id]
		for _, s := range rows[id] {
			for _, m := range s.LossMask {
				if m {
					sampled[i]++
				}
			}
		}
		if feed.Export() {
			bases[i] = 1
		}
	}
	estimator := c.books.Config.Advantage
	if normalise, ok := advantage.Batchwise(estimator.Estimator, estimator.Params); ok && !feed.Export() {
		return normalise(bases, sampled)
	}
	return bases
}

// largestBonus is what a span's reward, weighed, may add to an advantage; an annotation
// beyond it counts for nothing.
const largestBonus = 1e30

// position is one token of one of a rollout's samples.
type position struct{ sample, token int }

// credit computes a rollout's advantages again, token by token, and looks for its annotations.
func (c *Checker) credit(e events.Event, feed runfile.Feed, id string, r *rolloutState,
	rows []storage.Sample, base float64) {
	turns := map[int][]position{}
	spans := map[int][]advantage.Span{}
	for i, s := range rows {
		for _, span := range s.Turns {
			for k := range span.Length {
				turns[int(span.Turn)] = append(turns[int(span.Turn)], position{i, int(span.Start + k)})
			}
		}
	}
	for _, a := range r.remarks {
		if a.seq > e.AsOf {
			continue
		}
		turn, span, counts := annotatedSpan(a.RolloutAnnotated, turns)
		counts = counts && math.Abs(span.Reward*c.books.Config.Advantage.SpanWeight) <= largestBonus
		there, noted := annotated(a.RolloutAnnotated, rows, turns[turn], span, counts)
		if !there && !noted {
			c.find(RuleAdvantage, e, "rollout %s: the annotation at sequence %d is not in the files as it was stated",
				id, a.seq)
		}
		if there && counts && a.Reward != nil {
			spans[turn] = append(spans[turn], span)
		}
	}
	want := make([][]float32, len(rows))
	for i, s := range rows {
		want[i] = make([]float32, len(s.Tokens))
		for k, sampled := range s.LossMask {
			if sampled {
				want[i][k] = number32(base)
			}
		}
	}
	if weight := c.books.Config.Advantage.SpanWeight; weight != 0 && !feed.Export() {
		for turn, list := range spans {
			for k, value := range advantage.Tokens(base, len(turns[turn]), list, weight) {
				if at := turns[turn][k]; rows[at.sample].LossMask[at.token] {
					want[at.sample][at.token] = number32(value)
				}
			}
		}
	}
	for i, s := range rows {
		if !slices.Equal(s.Advantages, want[i]) {
			c.find(RuleAdvantage, e, "sample %d of rollout %s has other advantages than the facts give it", i, id)
		}
	}
}

// annotatedSpan says which sampled tokens an annotation selects; counts is false when it
// selects none that there are.
func annotatedSpan(a events.RolloutAnnotated, turns map[int][]position) (turn int, span advantage.Span, counts bool) {
	if a.Turn == nil {
		return -1, span, false
	}
	n := len(turns[*a.Turn])
	if a.Start != nil {
		span.Start = *a.Start
	}
	span.Length = n - span.Start
	if a.Length != nil {
		span.Length = *a.Length
	}
	if a.Reward != nil {
		span.Reward = *a.Reward
	}
	return *a.Turn, span, span.Length >= 1 && span.Start <= n && span.Length <= n-span.Start
}

// annotated looks for an annotation in the rows. noted: it is there with a note that says why it
// counts for nothing, or the rows say that some are left out.
func annotated(a events.RolloutAnnotated, rows []storage.Sample, turn []position, span advantage.Span,
	counts bool) (there, noted bool) {
	for i, s := range rows {
		for _, b := range s.Annotations {
			same := b.Text == a.Text && (a.Reward == nil) == (b.Reward == nil) &&
				(a.Reward == nil || *a.Reward == *b.Reward)
			switch {
			case b.Note != "":
				noted = noted || same && !counts || b.Text == "" && b.Reward == nil
			case same && counts:
				at := turn[span.Start]
				there = there || b.Turn != nil && int(*b.Turn) == *a.Turn && at.sample == i && int(b.Start) == at.token
			case same:
				there = there || a.Turn == nil && b.Turn == nil && b.Start == 0 && int(b.Length) == len(s.Tokens)
			}
		}
	}
	return there, noted
}

// number32 is the nearest number of a file's columns, which hold neither NaN nor infinities.
func number32(v float64) float32 {
	if math.IsNaN(v) {
		return 0
	}
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, v)))
}
