package audit

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// hinted is what a hinter has said of a rollout, and its sequence.
type hinted struct {
	events.RolloutHinted
	seq uint64
}

// hinter takes what a hinter says of a rollout: once, behind its verdict, and by a
// name that the run knows.
func (c *Checker) hinter(e events.Event, r *rolloutState) {
	said, err := events.Data[events.RolloutHinted](e)
	switch {
	case err != nil:
		c.find(RuleTurns, e, "%v", err)
	case r.outcome != events.RolloutScoredType || said.Trajectory != r.scored.Trajectory.SHA256:
		c.find(RuleTurns, e, "hints of %s are about a rollout that has no reward, or about another trajectory, %.16s",
			said.By, said.Trajectory)
	case !c.books.Config.Hinter(said.By):
		c.find(RuleTurns, e, "nobody takes the hints of %s", said.By)
	default:
		if _, twice := r.hinted[said.By]; twice {
			c.find(RuleTurns, e, "%s has given hints before", said.By)
		}
		if r.hinted == nil {
			r.hinted = map[string]hinted{}
		}
		r.hinted[said.By] = hinted{said, e.Seq}
	}
}

// hintedSample checks the hints of a row, and what teachers say of their tokens, against the facts.
func (c *Checker) hintedSample(e events.Event, feed runfile.Feed, r *rolloutState, i int, samples []storage.Sample,
	row storage.Sample) error {
	said := r.hinted[feed.Hints]
	if said.seq > e.AsOf {
		said = hinted{}
	}
	rows, err := said.Rows(samples)
	if err != nil {
		c.find(RuleTurns, e, "hints of %s about rollout %s: %v", feed.Hints, row.Rollout, err)
		return nil
	}
	if !slices.EqualFunc(rows[i], row.Hints, sameHint) {
		c.find(RuleBatch, e, "sample %d of rollout %s has other hints than %q gave", i, row.Rollout, feed.Hints)
	}
	before := 0
	for _, earlier := range rows[:i] {
		before += len(earlier)
	}
	for k, name := range feed.Teachers {
		if c.books.Config.Teacher(name).Hints == "" {
			continue
		}
		var lists [][]float32
		if ref := r.taught[name].logprobs; ref != nil && r.taught[name].seq <= e.AsOf {
			data, err := c.fetch(e, *ref)
			if data == nil {
				return err
			}
			lengths, _ := said.Lengths()
			if lists, err = events.UnpackSpans(data, lengths); err != nil {
				c.find(RuleObject, e, "teacher %s of rollout %s: %v", name, row.Rollout, err)
				continue
			}
			lists = lists[before:]
		}
		if !slices.EqualFunc(events.SpanLogprobs(len(row.Tokens), rows[i], lists), row.TeacherLogprobs[k], sameNumber) {
			c.find(RuleBatch, e, "sample %d of rollout %s has other log-probabilities of teacher %s than it gave", i,
				row.Rollout, name)
		}
	}
	return nil
}

// sameHint reports whether a row's hint is the stated one, whose text and tokens a
// large batch may leave out.
func sameHint(stated, row storage.Hint) bool {
	if row.Text == "" && row.Tokens == nil {
		stated.Text, stated.Tokens = "", nil
	}
	return stated.Text == row.Text && slices.Equal(stated.Tokens, row.Tokens) && stated.Turn == row.Turn &&
		stated.Start == row.Start && stated.Length == row.Length && stated.At == row.At
}

// sameNumber holds two that are none for the same.
func sameNumber(a, b float32) bool { return a == b || a != a && b != b }
