package rollouts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
)

// full runs all rollouts at once.
func (b *bench) full(ctx context.Context, r *Result, now func(string)) error {
	before, asked := figures.ProcessorTime(), b.Requests()
	run, err := b.start(ctx, shape{groupSize, b.o.Rollouts, b.o.Turns})
	if err != nil {
		return err
	}
	var began, ended time.Time
	count, scored := 0, 0
	err = b.until(ctx, run, func(e events.Event) bool {
		count++
		switch e.Type {
		case events.RolloutStartedType:
			if began.IsZero() {
				began = e.Time
			}
		case events.RolloutScoredType:
			scored++
			now(fmt.Sprintf("all at once: %d of %d rollouts", scored, b.o.Rollouts))
		case events.BatchReadyType:
			ended = e.Time
			return true
		}
		return false
	})
	seconds := ended.Sub(began).Seconds()
	r.RolloutsPerSecond, r.EventsPerSecond = float64(b.o.Rollouts)/seconds, float64(count)/seconds
	r.CPUPerRollout = float64(figures.ProcessorTime()-before) / float64(time.Millisecond) / float64(b.o.Rollouts)
	have := b.Requests()
	r.StoreWrites, r.StoreReads = float64(have.Writes-asked.Writes)/float64(b.o.Rollouts),
		float64(have.Reads-asked.Reads)/float64(b.o.Rollouts)
	return err
}

// The second run: so few rollouts that the generator, which asks for 64 turns at once, has one free
// for each, and so many turns that there are figures enough.
const (
	halfRollouts = 6 * groupSize
	halfTurns    = 16
)

// half runs few rollouts with a model that takes so long that turns come at half the pace.
func (b *bench) half(ctx context.Context, r *Result, now func(string)) error {
	pace := r.RolloutsPerSecond * float64(b.o.Turns) / 2 // turns a second
	each := time.Duration(halfRollouts / pace * float64(time.Second))
	b.Server.Begin(halfTurns, nil, nil)
	b.Server.Think(func(turn int) time.Duration {
		if turn == 0 { // rollouts that begin together are spread over the time of a turn
			return time.Duration(rand.Float64() * float64(each))
		}
		return each
	})
	raw, stop := context.WithCancel(ctx)
	echoed := make(chan error, 1)
	go func() { echoed <- echo(raw, b.Log.Conn(), &r.Raw) }()
	run, err := b.start(ctx, shape{groupSize, halfRollouts, halfTurns})
	w := newWatch(each)
	if err == nil {
		err = b.until(ctx, run, func(e events.Event) bool {
			w.see(e)
			now(fmt.Sprintf("half of that: %d of %d rollouts", w.scored, halfRollouts))
			return e.Type == events.BatchReadyType
		})
	}
	stop()
	if failed := <-echoed; err == nil {
		err = failed
	}
	r.Stages = w.stages()
	for _, s := range r.Stages {
		r.AddedP50 += max(0, s.P50-r.Raw.P50)
		r.AddedP99 += max(0, s.P99-r.Raw.P99)
	}
	return err
}

// heldGroup is the group size of the third run: a batch has a limit of groups.
const heldGroup = 16

// held opens rollouts while the model does not answer.
func (b *bench) held(ctx context.Context, r *Result, now func(string)) error {
	b.Server.Think(func(int) time.Duration { return 24 * time.Hour })
	want := b.o.Open / heldGroup * heldGroup
	run, err := b.start(ctx, shape{heldGroup, want, 2})
	if err != nil {
		return err
	}
	started := 0
	if err := b.until(ctx, run, func(e events.Event) bool {
		if e.Type == events.RolloutStartedType {
			started++
			now(fmt.Sprintf("many open: %d of %d rollouts", started, want))
		}
		return started == want
	}); err != nil {
		return err
	}
	runtime.GC()
	debug.FreeOSMemory()
	mib, err := figures.Resident()
	r.OpenGiB = mib / 1024
	if b.o.Open == 100_000 {
		r.OpenGiB100k = r.OpenGiB
	}
	return err
}
