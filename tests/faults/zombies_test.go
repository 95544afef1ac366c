package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/mill"
)

// moment is where in the middle of an input a process stops: when it sends a request, when a handler has looked at the log, or when an object is
// written. # in a text stands for the number of a group.
type moment struct{ sends, handler, writes string }

// The first of them run in CI.
var moments = []moment{
	{sends: ".g#.opened "}, {sends: ".g#-0.finished "}, {sends: ".g#.completed "}, {sends: "rondo.in." + run + ".batch.trainer.consumed "},
	{writes: "runs/" + run + "/batches/"}, {handler: topology.Generator}, {sends: "$JS.ACK.RONDO_" + run + "."},
	{sends: ".g#-1.started "}, {sends: ".g#-1.scored "}, {sends: ".batch.trainer.ready "}, {sends: "$JS.ACK.RONDO_IN."},
	{sends: "$JS.API.CONSUMER.MSG.NEXT.RONDO_" + run + "."}, {handler: topology.Scorer}, {writes: "runs/" + run + "/trajectories/"},
}

const zombiesInCI = 7

const (
	zombieRest  = time.Hour
	zombieSteps = 4
)

// TestZombies stops a process in the middle of an input, and lets it go on an hour later: its leases, its deliveries and its connection are long gone,
// and another process has done its work. What it has sent since it stopped (appends, acknowledgements, heartbeats, pulls and submissions) was held on
// the way and arrives then, too. It comes back into the middle of a run, or behind the run's end.
func TestZombies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, seed := range seeds(t, zombiesInCI) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			natstest.Virtual(t, func(t *testing.T) { zombie(t, seed) })
		})
	}
}

func zombie(t *testing.T, seed uint64) {
	count := uint64(len(moments))
	chance, at, behind := rand.New(rand.NewPCG(seed, 2)), moments[seed%count], (seed+seed/count)%2 == 1
	server, store := natstest.Server(t), natstest.Store(t)
	nc, line := natstest.ConnectHeld(t, server)
	stopped, n := newGate(), 1+chance.IntN(3)
	stop := func() {
		line.Hold()
		stopped.set(true)
	}
	zombies, err := eventlog.New(nc, &gatedStore{Store: store, gate: stopped, writing: func(key string) {
		if at.writes != "" && strings.HasPrefix(key, at.writes) {
			if n--; n == 0 {
				stop()
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.New(natstest.Connect(t, server), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.EnsureStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	zombieMill := &mill.Mill{Log: zombies, Instance: "zombie", Slots: 1, Working: func(_ context.Context, service string) {
		if at.handler == service {
			if n--; n == 0 {
				stop()
			}
		}
		stopped.pass()
	}}
	other := &mill.Mill{Log: log, Instance: "other"}
	if !behind {
		zombieMill.Step, other.Step = 20*time.Minute, 20*time.Minute
	}
	if at.sends != "" {
		text := strings.Replace(at.sends, "#", fmt.Sprintf("%06d", n), 1)
		if text == at.sends {
			line.HoldAt(text, n)
		} else {
			line.HoldAt(text, 1)
		}
	}
	serving(t, zombieMill)
	opened := make(chan error, 1)
	go func() {
		opened <- mill.OpenWith(t.Context(), log, run, zombieSteps, func(cfg *runfile.RunConfig) { cfg.Staleness.Max = 2 })
	}()
	select {
	case <-line.Held():
	case <-time.After(2 * time.Hour):
		t.Fatalf("it never came to %+v", at)
	}
	stopped.set(true)
	serving(t, other)
	time.Sleep(zombieRest)
	before, err := mill.Ended(t.Context(), log, run)
	if err != nil || (before == "") != behind {
		t.Fatalf("an hour later the run waits for this: %q, %v", before, err)
	}
	stopped.set(false)
	late, err := line.Release()
	if err != nil {
		t.Fatal(err)
	}
	if late == 0 {
		t.Error("nothing arrives late")
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
