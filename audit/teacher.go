package audit

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// taught is what a teacher has said of a rollout, and its sequence.
type taught struct {
	logprobs *storage.Ref
	seq      uint64
}

// teacher takes what a teacher says of a rollout: once, behind its verdict, and
// of the tokens that it has.
func (c *Checker) teacher(e events.Event, r *rolloutState) {
	said, err := events.Data[events.TeacherScored](e)
	tokens := r.episode.Tokens
	if by := c.books.Config.Teacher(said.Teacher).Hints; by != "" {
		_, tokens = r.hinted[by].Lengths()
	}
	switch {
	case err != nil:
		c.find(RuleTurns, e, "%v", err)
	case r.outcome != events.RolloutScoredType:
		c.find(RuleTurns, e, "teacher %s scores a rollout that has no reward", said.Teacher)
	case said.Trajectory != r.scored.Trajectory.SHA256 || said.Logprobs != nil && said.Tokens != tokens:
		c.find(RuleTurns, e,
			"teacher %s scores %d tokens of a trajectory %.16s, but the rollout or its hints have %d in %.16s",
			said.Teacher, said.Tokens, said.Trajectory,
			tokens, r.scored.Trajectory.SHA256)
	default:
		if _, twice := r.taught[said.Teacher]; twice {
			c.find(RuleTurns, e, "teacher %s has scored the rollout before", said.Teacher)
		}
		if r.taught == nil {
			r.taught = map[string]taught{}
		}
		r.taught[said.Teacher] = taught{said.Logprobs, e.Seq}
	}
}

// untaught is why a rollout must not be trained on of which a teacher of the feed had said
// nothing, "" where all had.
func (c *Checker) untaught(feed runfile.Feed, r *rolloutState, asOf uint64) string {
	for _, name := range feed.Teachers {
		if c.books.Config.Teacher(name).Hints != "" {
			continue // it masks nobody
		}
		if said := r.taught[name]; said.logprobs == nil || said.seq > asOf {
			return "no log-probabilities of teacher " + name
		}
	}
	return ""
}

// taughtSample checks the teachers' columns of a row against what they have said.
func (c *Checker) taughtSample(e events.Event, feed runfile.Feed, r *rolloutState, i int, samples []storage.Sample,
	row storage.Sample) error {
	if len(row.TeacherLogprobs) != len(feed.Teachers) {
		c.find(RuleBatch, e, "sample %d of rollout %s has log-probabilities of %d teachers, the feed has %d", i,
			row.Rollout, len(row.TeacherLogprobs), len(feed.Teachers))
		return nil
	}
	lengths := make([]int, len(samples))
	for k := range samples {
		lengths[k] = len(samples[k].Tokens)
	}
	if err := c.hintedSample(e, feed, r, i, samples, row); err != nil {
		return err
	}
	for k, name := range feed.Teachers {
		if c.books.Config.Teacher(name).Hints != "" {
			continue // checked with the hints
		}
		ref := r.taught[name].logprobs
		if ref == nil {
			continue // found already
		}
		data, err := c.fetch(e, *ref)
		if data == nil {
			return err
		}
		said, err := events.UnpackLogprobs(data, lengths)
		if err != nil {
			c.find(RuleObject, e, "teacher %s of rollout %s: %v", name, row.Rollout, err)
			continue
		}
		if !slices.Equal(said[i], row.TeacherLogprobs[k]) {
			c.find(RuleBatch, e, "sample %d of rollout %s has other log-probabilities of teacher %s than it gave", i,
				row.Rollout, name)
		}
	}
	return nil
}
