// Package querysampler decides which task is tried next, how much may be in flight, and when a
// rollout has had its time.
package querysampler

import (
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// Decider folds a run into what the sampler must know, and decides group_opened, rollout_started,
// rollout_failed (deadline, cancelled), run_paused and run_closed.
type Decider struct {
	run  string
	cfg  runfile.RunConfig
	feed runfile.Feed // the first one: it paces the run; an evaluation may have none
	// known are the names of the run's own tasks.
	known    map[string]bool
	maxBytes int64
}

// NewDecider makes the decider of one run.
func NewDecider(run string, cfg runfile.RunConfig) *Decider {
	d := &Decider{
		run: run, cfg: cfg, known: map[string]bool{},
		maxBytes: cfg.Log.Bytes(),
	}
	if len(cfg.Feeds) > 0 {
		d.feed = cfg.Feeds[0]
	}
	for _, t := range cfg.Tasks {
		d.known[t.Name] = true
	}
	return d
}

// Decide closes a finished run, ends what is overdue or cancelled, completes half-opened groups,
// pauses a run that must not go on, and opens groups as far as the capacity goes.
func (d *Decider) Decide(v projection.View, _ uint64, now time.Time) ([]events.Event, time.Time, error) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return nil, time.Time{}, err
	}
	var p plan
	d.endRollouts(v, &p, s, now)
	if s.Opened {
		// Also in a closed run: a group must complete to leave the books; the next decision
		// cancels its new members.
		d.completeGroups(v, &p, s, now)
	}
	switch {
	case s.Closed || !s.Opened:
	case d.cfg.Steps > 0 && s.ThroughStep >= d.cfg.Steps:
		p.add(events.New(d.run, events.RunClosedType, d.run,
			"0", events.RunClosed{Reason: fmt.Sprintf("all %d steps are trained", d.cfg.Steps)}))
	case d.cfg.Epochs > 0 && d.tried(v, &p, s):
		p.add(events.New(d.run, events.RunClosedType, d.run,
			"0", events.RunClosed{Reason: fmt.Sprintf("all tasks are tried (epochs: %d)", d.cfg.Epochs)}))
	case s.Paused:
	default:
		d.goOn(v, &p, s, now)
	}
	return p.facts, p.wake, p.err
}

// goOn opens groups, pauses a run that must not go on, or waits for room on its stream.
func (d *Decider) goOn(v projection.View, p *plan, s state, now time.Time) {
	waits, err := d.awaitsRoom(v, s)
	p.fail(err)
	if waits || err != nil {
		return
	}
	if class, why := d.mustStop(s); class != "" {
		d.pause(p, s, class, why)
		return
	}
	d.openGroups(v, p, s, now)
}

// plan collects facts, when to look again, and the first error.
type plan struct {
	facts []events.Event
	wake  time.Time
	err   error
	// underWay counts the run's own rollouts without an outcome, those that
	// the plan starts included.
	underWay int
	// asking counts those of them that wait for a turn, where that bounds the run.
	asking int
}

func (p *plan) add(e events.Event, err error) {
	p.fail(err)
	p.facts = append(p.facts, e)
}

func (p *plan) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// wakeAt asks for another decision at a time, if none is asked for before.
func (p *plan) wakeAt(t time.Time) {
	if p.wake.IsZero() || t.Before(p.wake) {
		p.wake = t
	}
}
