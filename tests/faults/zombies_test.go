package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// moment is where in the middle of an input a process stops: when it sends a request,
// when a handler has looked at the log, or when an object is written. # in a text stands
// for the number of a group.
type moment struct{ sends, handler, writes string }

var moments = []moment{
	{sends: ".g#.opened "}, {sends: ".g#-0.finished "}, {sends: ".g#.completed "},
	{sends: "rondo.in." + run + ".batch.trainer.consumed "},
	{writes: "runs/" + run + "/batches/"}, {handler: topology.Generator},
	{sends: "$JS.ACK.RONDO_" + run + "."}, {sends: ".g#-1.started "}, {sends: ".g#-1.scored "},
	{sends: ".batch.trainer.ready "}, {sends: "$JS.ACK.RONDO_IN."},
	{sends: "$JS.API.CONSUMER.MSG.NEXT.RONDO_" + run + "."}, {handler: topology.Scorer},
	{writes: "runs/" + run + "/trajectories/"},
}

const (
	zombieRest  = time.Hour
	zombieSteps = 4
)

// TestZombies stops a process in the middle of an input, and lets it go on an hour later: its
// leases, its deliveries and its connection are long gone, and another process has done its work.
// What it has sent since it stopped (appends, acknowledgements, heartbeats, pulls and
// submissions) was held on the way and arrives then, too. It comes back into the middle of a run,
// or behind the run's end.
func TestZombies(t *testing.T) {
	for _, seed := range seeds(t, nightly.Count(2, 6)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			natstest.Virtual(t, func(t *testing.T) { zombie(t, seed) })
		})
	}
}

func zombie(t *testing.T, seed uint64) {
	count := uint64(len(moments))
	at, n, behind := moments[seed%count], 1+rand.New(rand.NewPCG(seed, 2)).IntN(3), (seed+seed/count)%2 == 1
	server, store := natstest.Server(t), natstest.Store(t)
	log, err := eventlog.New(natstest.Connect(t, server), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	step := time.Duration(0)
	if !behind {
		step = 20 * time.Minute // of four: it comes back between the third and the fourth
	}
	z := stopping(t, server, store, at, n)
	z.mill.Step = step
	serving(t, z.mill)
	opened := make(chan error, 1)
	go func() {
		opened <- mill.OpenWith(t.Context(), log, run, zombieSteps,
			func(cfg *runfile.RunConfig) { cfg.Staleness.Max = 2 })
	}()
	select {
	case <-z.line.Began():
	case <-time.After(2 * time.Hour):
		t.Fatalf("it never came to %+v", at)
	}
	z.gate.set(true)
	serving(t, &mill.Mill{Log: log, Instance: "other", Step: step})
	time.Sleep(zombieRest)
	waits, err := mill.Ended(t.Context(), log, run)
	if err != nil || (waits == "") != behind {
		t.Fatalf("an hour later the run waits for this: %q, %v", waits, err)
	}
	z.gate.set(false)
	late, err := z.line.Release()
	if err != nil || late == 0 {
		t.Fatalf("%d bytes arrive late, %v", late, err)
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, log)
	t.Logf("%+v, the %d. time: %d bytes came an hour late", at, n, late)
	if err := mill.Judge(t.Context(), log, run, zombieSteps); err != nil {
		t.Error(err)
	}
	for e, err := range log.All(t.Context(), events.Catalogue, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.DeadLetteredType {
			t.Errorf("given up: %s", e.Data)
		}
	}
}

// process is one that stands still when its line and its gate say so.
type process struct {
	mill *mill.Mill
	line *natstest.HeldLine
	gate *gate
}

// stopping is a process that stops when it comes to a moment for the n-th
// time, or for the n-th group.
func stopping(t *testing.T, server *embedded.Server, store storage.Store, at moment, n int) process {
	t.Helper()
	nc, line := natstest.ConnectHeld(t, server)
	z := process{line: line, gate: newGate()}
	var came atomic.Int64
	count := func() {
		if came.Add(1) == int64(n) {
			line.Hold()
			z.gate.set(true)
		}
	}
	log, err := eventlog.New(nc, &gatedStore{Store: store, gate: z.gate, writing: func(key string) {
		if at.writes != "" && strings.HasPrefix(key, at.writes) {
			count()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	z.mill = &mill.Mill{Log: log, Instance: "zombie", Slots: 1, Working: func(_ context.Context, service string) {
		if service == at.handler {
			count()
		}
		z.gate.pass()
	}}
	switch {
	case strings.Contains(at.sends, "#"):
		line.HoldAt(strings.Replace(at.sends, "#", fmt.Sprintf("%06d", n), 1), 1)
	case at.sends != "":
		line.HoldAt(at.sends, n)
	}
	return z
}
