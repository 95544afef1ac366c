package scorer

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// TestOutageCostsNoTry: a store that is away for longer than all tries costs none: the rollout is
// scored when the store is back.
func TestOutageCostsNoTry(t *testing.T) {
	sandboxtest.Require(t)
	plain := natstest.Log(t)
	store := &storagetest.Outages{Store: plain.Store()}
	log, err := eventlog.New(plain.Conn(), store)
	if err != nil {
		t.Fatal(err)
	}
	open(t, log, "r", "echo 1 > /logs/verifier/reward.txt; echo done", nil) // with two tries
	store.Down.Store(true)
	start(t, log)
	natstest.Eventually(t, "the store has refused more calls than there are tries",
		func() bool { return store.Refused.Load() >= 3 })
	store.Down.Store(false)
	if scored := servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType,
		rollout); scored.Reward != 1 {
		t.Errorf("scored %+v", scored)
	}
	for _, e := range servicetest.All(t, log, "r", events.RolloutRetriedType, events.RolloutFailedType) {
		t.Errorf("the outage has cost %s: %s", e.Type, e.Data)
	}
}
