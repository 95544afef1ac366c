package toolrunner

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// TestOutageCostsNoTry: a store that is away for longer than all tries, when a sandbox is made and
// when a workspace is stored, costs none: the turn is answered when the store is back. What has run
// is not run again where the outage is short.
func TestOutageCostsNoTry(t *testing.T) {
	sandboxtest.Require(t)
	plain := natstest.Log(t)
	store := &storagetest.Outages{Store: plain.Store()}
	log, err := eventlog.New(plain.Conn(), store)
	if err != nil {
		t.Fatal(err)
	}
	open(t, log, "r", nil) // with two tries
	s, _ := service(t, log, nil)
	outage := func() {
		t.Helper()
		before := store.Refused.Load()
		natstest.Eventually(t, "the store has refused more calls than there are tries",
			func() bool { return store.Refused.Load() >= before+3 })
		store.Down.Store(false)
	}
	store.Down.Store(true)
	turn(t, log, "r", 0, poolRoute, shell("c0", "echo once >> a.txt"))
	outage()
	if done := answers(t, log, "r", 0); done.Workspace == nil || done.Results[0].Error {
		t.Errorf("answered %+v", done)
	}
	ran := s.held.boxes["r/"+rollout]
	turn(t, log, "r", 1, "pool-none", shell("c1", "cat a.txt; echo twice >> a.txt"))
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	store.Down.Store(true)
	saved := make(chan error, 1)
	s.held.pop("r/" + rollout)
	go func() {
		cfg, err := log.Config(t.Context(), "r")
		if err == nil {
			s.held.put(ran)
			_, err = s.work(t.Context(), cfg, cfg.Tasks[0], &r)
		}
		saved <- err
	}()
	outage()
	if err := <-saved; err != nil {
		t.Error(err)
	}
	if box := s.held.boxes["r/"+rollout]; box != ran {
		t.Error("the turn has run in another sandbox")
	}
	for _, e := range servicetest.All(t, log, "r") {
		if e.Type == events.RolloutRetriedType || e.Type == events.RolloutFailedType || e.Type == events.RunPausedType {
			t.Errorf("the outage has cost %s: %s", e.Type, e.Data)
		}
	}
}
