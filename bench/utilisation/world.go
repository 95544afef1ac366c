package utilisation

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// world is what a schedule schedules: the engine, generators in front of it, tools, verifiers and a
// trainer, in virtual time.
type world struct {
	engine engine
	later  pending
	load   load

	generators []*asker
	next       int        // the generator that takes a turn first
	queue      []*rollout // turns that wait for a slot, as they came
	woken      time.Time  // when the ramps are looked at next

	// sampled, resumed and ended are the schedule's; resumed is called when a turn's tools have
	// come to an end, and ended when the verifier has, too.
	sampled func(*rollout)
	resumed func(*rollout)
	ended   func(*rollout)

	down bool // the server restarts

	tools tools

	version    int64
	trainTime  float64
	warm, last int64 // steps after which the measurement begins and ends
	restarts   int64 // the step after which the server restarts; 0: it does not
	from, to   moment
	stale      []int64   // groups that were trained on while it was measured, by their staleness
	trained    moment    // all that was trained on, of it at from and to
	firstToken []float64 // seconds from the request to a turn's first token
	err        error
}

// moment is what was counted up to a time.
type moment struct{ at, produced, computed, reused, tokens, rollouts float64 }

// rollout is one that is under way or over.
type rollout struct {
	shape
	id      string
	group   int64
	version int64   // at dispatch
	turn    int     // the next one
	context float64 // tokens of the conversation
	summed  int     // how often it was summed up
}

// conversation is the name of what begins the rollout's next prompt: one that
// was summed up begins anew.
func (r *rollout) conversation() string { return r.id + "/" + strconv.Itoa(r.summed) }

// epoch is when virtual time begins.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) clock() time.Time {
	return epoch.Add(time.Duration(w.engine.now * float64(time.Second)))
}

// load is what the groups of a workload have to do.
func (o Options) load(name string) load {
	w, _ := workloadOf(name) // validated
	return load{workload: w, seed: uint64(o.Seed), size: o.GroupSize}
}

func newWorld(o Options, workload string) *world {
	l := o.load(workload)
	w := &world{load: l, tools: tools{slots: o.ToolSlots}}
	w.generators = newAskers(o.Generators, w.clock)
	w.trainTime = o.Train * float64(o.Groups*o.GroupSize) * l.meanTokens() / peakTPS
	w.warm = o.Staleness + 4 // the first batches meet an engine without its usual load
	w.last = w.warm + int64(o.Steps)
	if o.Restart {
		w.restarts = w.warm + max(1, int64(o.Steps)/4)
	}
	return w
}

var errStuck = errors.New("nothing is under way, and nothing will be")

// run lets the time pass until all steps are measured.
func (w *world) run() error {
	for w.version < w.last && w.err == nil {
		next, prompt := w.engine.next()
		if w.later.Len() > 0 && w.later.items[0].at <= next {
			w.engine.advance(w.later.items[0].at)
			w.later.take()()
			continue
		}
		if math.IsInf(next, 1) {
			return errStuck
		}
		w.engine.advance(next)
		w.engine.happen(prompt)
	}
	return w.err
}

func (w *world) after(seconds float64, do func()) { w.later.add(w.engine.now+seconds, do) }

// begin begins a rollout, or its next turn.
func (w *world) begin(r *rollout) {
	if r.turn == 0 {
		r.context = r.prompt
	}
	w.queue = append(w.queue, r)
	w.dispatch()
}

// answered is the end of a turn: its tools run, or the verifier.
func (w *world) answered(r *rollout) {
	over := r.turns[r.turn]
	r.turn++
	r.context += over.tokens + over.results
	if limit := w.load.context; limit > 0 && r.context > limit {
		r.context, r.summed = r.prompt+summaryTokens, r.summed+1
	}
	w.sampled(r)
	switch {
	case r.turn == len(r.turns):
		w.after(r.verify, func() { w.ended(r) })
	case over.tools == 0:
		w.resumed(r)
		w.queue = append(w.queue, r)
	default:
		w.useTools(over.tools, func() {
			w.resumed(r)
			w.begin(r)
		})
	}
	w.dispatch()
}

// train trains on a batch of whole groups. Its weights are the next version,
// which the engine takes up.
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
		w.trained.computed, w.trained.reused = w.engine.computed, w.engine.reused
		switch w.version {
		case w.warm:
			w.from = w.trained
		case w.restarts:
			w.restart()
		case w.last:
			w.to = w.trained
		}
		if w.load.name != WorkloadEqual {
			w.engine.load()
		}
		published()
	})
}

// measure adds a value to those of the measurement, when that has begun.
func (w *world) measure(values *[]float64, value float64) {
	if w.version >= w.warm {
		*values = append(*values, value)
	}
}

// age counts a group that is trained on.
func (w *world) age(staleness int64) {
	for int64(len(w.stale)) <= staleness {
		w.stale = append(w.stale, 0)
	}
	w.stale[staleness]++
}
