package trainerfeeder

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

// maskTeacher begins why a member is not trained on of which a teacher has said nothing.
const maskTeacher = "no log-probabilities of teacher "

// waitEnd is when the feed stops to wait for what its teachers and its hinter say of a
// group that is complete now.
func (d *Decider) waitEnd(completed events.Event) (until time.Time) {
	if d.feed.Awaits() {
		until = completed.Time.Add(d.feed.TeacherWaits()).UTC()
	}
	return until
}

// applyTeacher keeps where the log-probabilities of a rollout are that may still be batched. Each
// teacher states them once.
func (d *Decider) applyTeacher(tx *projection.Tx, e events.Event) error {
	said, err := events.Data[events.TeacherScored](e)
	if err != nil || !slices.Contains(d.feed.Teachers, said.Teacher) {
		return err
	}
	keep := func(o *outcome) {
		if o.Teachers == nil {
			o.Teachers = map[string]*storage.Ref{}
		}
		o.Teachers[said.Teacher] = said.Logprobs
	}
	return keepOutcome(tx, e, keep)
}

// keepOutcome notes what is said of a rollout that may still be batched.
func keepOutcome(tx *projection.Tx, e events.Event, keep func(*outcome)) error {
	if err := change(tx, episodes+e.Entity, func(r *episode) { keep(&r.outcome) }); err != nil {
		return err
	}
	place, ok, err := projection.Get[string](tx, placeOf+events.GroupOf(e.Entity))
	if !ok || err != nil {
		return err
	}
	if err := noteChange(tx, e); err != nil {
		return err
	}
	return change(tx, waiting+place, func(g *pending) {
		for i := range g.Members {
			if g.Members[i].Rollout == e.Entity {
				keep(&g.Members[i].outcome)
			}
		}
	})
}

// untaught names the first of the feed's teachers whose log-probabilities of a member are not
// there, "" where all are. A teacher that takes hints masks nobody: without what it says a
// rollout is trained on as it is.
func (d *Decider) untaught(m member) string {
	for _, name := range d.feed.Teachers {
		if m.Teachers[name] == nil && d.cfg.Teacher(name).Hints == "" {
			return name
		}
	}
	return ""
}

// awaitsTeachers reports whether a teacher, or the hinter, may still say something of a member that
// is trained on then. Nobody asks one about a run that is closed.
func (d *Decider) awaitsTeachers(g pending, s state, now time.Time) bool {
	if s.Closed || !now.Before(g.Until) {
		return false
	}
	return slices.ContainsFunc(g.Members, func(m member) bool {
		return d.maskSampled(m) == "" &&
			(d.feed.Hints != "" && m.Hints == nil || slices.ContainsFunc(d.feed.Teachers, func(name string) bool {
				_, said := m.Teachers[name]
				asked := d.cfg.Teacher(name).Hints == "" || m.Hints != nil && *m.Hints > 0
				return asked && !said
			}))
	})
}

// teach gives a member's samples what the feed's teachers say of their tokens.
func (d *Decider) teach(ctx context.Context, m member, said *events.RolloutHinted, samples []storage.Sample) error {
	lengths := make([]int, len(samples))
	for i := range samples {
		lengths[i] = len(samples[i].Tokens)
	}
	for _, name := range d.feed.Teachers {
		ref := m.Teachers[name]
		if d.cfg.Teacher(name).Hints != "" {
			if err := d.teachSpans(ctx, ref, said, samples); err != nil {
				return fmt.Errorf("teacher %s of %s: %w", name, m.Rollout, err)
			}
			continue
		}
		data, err := storage.GetBlob(ctx, d.store, *ref)
		var said [][]float32
		if err == nil {
			said, err = events.UnpackLogprobs(data, lengths)
		}
		if err != nil {
			return fmt.Errorf("teacher %s of %s: %w", name, m.Rollout, err)
		}
		for i := range samples {
			samples[i].TeacherLogprobs = append(samples[i].TeacherLogprobs, said[i])
		}
	}
	return nil
}
