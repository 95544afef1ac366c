package utilisation

import (
	"errors"
	"time"

	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline/slots"
	"github.com/rondo-rl/rondo/services/generator"
)

// world is what a schedule schedules: the engine, a generator in front of it, tools, verifiers and a trainer, in virtual time.
type world struct {
	engine engine
	later  pending
	load   load

	turns  slots.Tenant // the generator's
	ramp   *fleet.Ramp
	queue  []*rollout // turns that wait for a slot, as they came
	inside []*rollout // turns that have a slot and wait for the server
	woken  time.Time  // when the ramp is looked at next

	// sampled and ended are the schedule's; ended is called when the verifier has come to an end, too.
	sampled func(*rollout)
	ended   func(*rollout)

	version    int64
	trainTime  float64
	warm, last int64 // steps after which the measurement begins and ends
	from, to   moment
	stale      []int64 // groups that were trained on while it was measured, by their staleness
	trained    moment  // all that was trained on, of it at from and to
	err        error
}

// moment is what was counted up to a time.
type moment struct{ at, produced, tokens, rollouts float64 }

// rollout is one that is under way or over.
type rollout struct {
	shape
	id      string
	group   int64
	version int64 // at dispatch
	turn    int   // the next one
}

// epoch is when virtual time begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time {
	return epoch.Add(time.Duration(w.engine.now * float64(time.Second)))
}

func newWorld(o Options) *world {
	l := load{seed: uint64(o.Seed), size: o.GroupSize, equal: o.Equal}
	n := generator.DefaultOptions().Slots
	w := &world{load: l, turns: slots.New(n).Tenant("run"), ramp: fleet.NewRamp(fleet.DefaultOptions().Slots)}
	w.turns.Join()
	w.trainTime = o.Train * float64(o.Groups*o.GroupSize) * l.meanTokens() / peakTPS
	w.warm = o.Staleness + 4 // the first batches meet an engine without its usual load
	w.last = w.warm + int64(o.Steps)
	return w
}

var errStuck = errors.New("nothing is under way, and nothing will be")

// run lets the time pass until all steps are measured.
func (w *world) run() error {
	for w.version < w.last && w.err == nil {
		next := w.engine.next()
		if w.later.Len() > 0 && w.later.items[0].at <= next {
			w.engine.advance(w.later.items[0].at)
			w.later.take()()
			continue
		}
		if len(w.engine.active.items) == 0 {
			return errStuck
		}
		w.engine.advance(next)
		w.engine.work = w.engine.active.items[0].at // not a rounding error less
		w.engine.active.take()()
	}
	return w.err
}

func (w *world) after(seconds float64, do func()) { w.later.add(w.engine.now+seconds, do) }

// begin begins a rollout.
func (w *world) begin(r *rollout) {
	w.queue = append(w.queue, r)
	w.dispatch()
}

// dispatch gives slots to the turns that wait, by the rules of the generator, and places at the server by those of its fleet.
func (w *world) dispatch() {
	for len(w.queue) > 0 {
		request := w.turns.Ask(1, true)
		select {
		case <-request.Lease():
			w.inside = append(w.inside, w.queue[0])
			w.queue = w.queue[1:]
			continue
		default:
			w.turns.Forget(request)
		}
		break
	}
	now := w.clock()
	for len(w.inside) > 0 && w.ramp.Enter(now) {
		r := w.inside[0]
		w.inside = w.inside[1:]
		w.engine.start(r.turns[r.turn].tokens, func() { w.answered(r) })
	}
	if next := w.ramp.Next(now); len(w.inside) > 0 && next.After(w.woken) {
		w.woken = next
		w.after(next.Sub(now).Seconds(), w.dispatch)
	}
}

// answered is the end of a turn: its tools run, or the verifier.
func (w *world) answered(r *rollout) {
	w.ramp.Answered(w.clock())
	w.turns.Settled(true)
	over := r.turns[r.turn]
	r.turn++
	w.sampled(r)
	switch {
	case r.turn == len(r.turns):
		w.after(r.verify, func() { w.ended(r) })
	case over.tools == 0:
		w.queue = append(w.queue, r)
	default:
		w.after(over.tools, func() { w.begin(r) })
	}
	w.dispatch()
}

// train trains on a batch of whole groups. Its weights are the next version, which the engine takes up.
func (w *world) train(batch []*rollout, published func()) {
	for _, r := range batch {
		w.trained.tokens += r.tokens()
		w.trained.rollouts++
	}
	if w.version >= w.warm {
		seen := map[int64]bool{}
		for _, r := range batch {
			if !seen[r.group] {
				seen[r.group] = true
				w.age(w.version - r.version)
			}
		}
	}
	w.after(w.trainTime, func() {
		w.version++
		w.trained.at, w.trained.produced = w.engine.now, w.engine.produced
		switch w.version {
		case w.warm:
			w.from = w.trained
		case w.last:
			w.to = w.trained
		}
		if !w.load.equal {
			w.engine.pause(loadSeconds)
		}
		published()
	})
}

// age counts a group that is trained on.
func (w *world) age(staleness int64) {
	for int64(len(w.stale)) <= staleness {
		w.stale = append(w.stale, 0)
	}
	w.stale[staleness]++
}
