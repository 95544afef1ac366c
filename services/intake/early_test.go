package intake

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRefusedAtTheSecondLook: in a cluster the leader may not have yet what an outsider has read
// from another server. Nothing is refused for that, and the sender pays once.
func TestRefusedAtTheSecondLook(t *testing.T) {
	log := natstest.Cluster(t, 3).Log(t)
	natstest.Eventually(t, "the cluster has the streams", func() bool { return log.Streams.Ensure(t.Context()) == nil })
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	s := handler(t, log)
	s.meter.quotas.MessagesPerMinute = 1
	m := message(1, submission{"rondo.in.r.rollout.g000001-0.annotated",
		map[string]string{events.HeaderMessageID: "n"}, `{"text":"hm"}`})

	facts, err := s.Handle(t.Context(), m)
	if err == nil || len(facts) > 0 {
		t.Fatalf("at the first look the intake states %v: %v", servicetest.IDs(facts), err)
	}
	servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	m.Delivered = 2
	if facts, err = s.Handle(t.Context(), m); err != nil || len(facts) != 1 ||
		facts[0].Type != events.RolloutAnnotatedType {
		t.Errorf("at the second look, when the rollout is there, the intake states %v: %v", servicetest.IDs(facts), err)
	}

	nobody := message(2, submission{"rondo.in.r.rollout.nobody.annotated",
		map[string]string{events.HeaderMessageID: "n"}, `{"text":"hm"}`})
	nobody.Delivered = 2
	if facts, err = s.Handle(t.Context(), nobody); err != nil || len(facts) != 1 ||
		facts[0].Type != events.DeadLetteredType {
		t.Errorf("of a rollout that never comes, the intake states %v: %v", servicetest.IDs(facts), err)
	}
}
