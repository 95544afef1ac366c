package utilisation

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/slots"
)

// asker is a generator, by the slots and the fleet's ramp of the real one.
type asker struct {
	turns  slots.Tenant
	ramp   *fleet.Ramp
	inside []*rollout // turns that have a slot and wait for the server
	asked  []*request
}

// request is a turn under way at the server.
type request struct {
	rollout *rollout
	since   int // the ramp's setbacks when it began
}

func newAskers(n int, now func() time.Time) (all []*asker) {
	for range n {
		a := &asker{turns: slots.NewWithClock(generator.DefaultOptions().Slots, now).Tenant("run"),
			ramp: fleet.NewRamp(fleet.DefaultOptions().Slots)}
		all = append(all, a)
	}
	return all
}

// takes gives a slot to a turn, if one is free.
func (a *asker) takes(r *rollout) bool {
	asked := a.turns.Ask(1)
	select {
	case l := <-asked.Lease():
		a.turns.End(l, 0)
		a.inside = append(a.inside, r)
		return true
	default:
		a.turns.Forget(asked)
		return false
	}
}

// dispatch gives slots to the turns that wait, by the rules of the generators, which take turns,
// and places at the server by those of their fleets.
func (w *world) dispatch() {
	for refused := 0; len(w.queue) > 0 && refused < len(w.generators); {
		a := w.generators[w.next]
		w.next = (w.next + 1) % len(w.generators)
		if refused++; a.takes(w.queue[0]) {
			w.queue, refused = w.queue[1:], 0
		}
	}
	now, next := w.clock(), time.Time{}
	for _, a := range w.generators {
		for len(a.inside) > 0 && a.ramp.Enter(now) {
			r := a.inside[0]
			a.inside = a.inside[1:]
			w.ask(a, r)
		}
		at := a.ramp.Next(now)
		if len(a.inside) > 0 && at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.IsZero() && (!w.woken.After(now) || next.Before(w.woken)) {
		w.woken = next
		w.after(next.Sub(now).Seconds(), w.dispatch)
	}
}

// ask sends a turn to the server.
func (w *world) ask(a *asker, r *rollout) {
	q := &request{rollout: r, since: a.ramp.Setbacks()}
	if w.down {
		w.after(refuses, func() { w.broke(a, q) })
		return
	}
	a.asked = append(a.asked, q)
	asked := w.engine.now
	w.engine.start(&sequence{
		conversation: r.conversation(), prompt: r.context, answer: r.turns[r.turn].tokens,
		first: func() { w.measure(&w.firstToken, w.engine.now-asked) },
		over: func() {
			a.asked = slices.DeleteFunc(a.asked, func(o *request) bool { return o == q })
			a.ramp.Answered(w.clock())
			a.turns.Settled(true)
			w.answered(r)
		},
	})
}

// A restart of the server, in seconds: how long it loads its model, and how long it
// takes to refuse a connection.
const (
	restartSeconds = 120
	refuses        = 0.001
)

// restart ends everything at the server. It is not there for a while, and then as new.
func (w *world) restart() {
	w.down = true
	w.engine.drop()
	for _, a := range w.generators {
		asked := a.asked
		a.asked = nil
		for _, q := range asked {
			w.broke(a, q)
		}
	}
	w.after(restartSeconds, func() {
		w.down = false
		w.dispatch()
	})
}

// broke is the end of a request whose server has gone: the turn is sampled again.
func (w *world) broke(a *asker, q *request) {
	a.ramp.Broke(w.clock(), q.since)
	a.inside = append(a.inside, q.rollout)
	w.dispatch()
}

// servers is what the first of the generators knows of the server, and what that says of its load.
func (w *world) servers() []fleet.Server {
	s := w.generators[0].ramp.Server("http://server/v1")
	if !w.down {
		running := len(w.engine.active.items) + len(w.engine.prompts)
		s.Load = &inference.Load{
			Running: min(knee, running), Waiting: max(0, running-knee) + len(w.engine.queued),
			KVUsage: min(1, w.engine.used/memory),
		}
	}
	return []fleet.Server{s}
}
