package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestMarks: people mark rollouts of open and of closed runs, also those in flight, whose work goes
// on behind the link that it knows. What no rollout has, or what holds a secret, is refused, and
// the refusal keeps none of it.
func TestMarks(t *testing.T) {
	log := natstest.Log(t)
	const id = "g000001-0"
	for _, run := range []string{"r", "old"} {
		servicetest.OpenRun(t, log, run, servicetest.Config("a"))
		servicetest.StartRollout(t, log, run, id, "a")
	}
	servicetest.CloseRun(t, log, "old")
	start(t, log)
	before, err := log.Last(t.Context(), "r", events.RolloutStartedType.Kind(), id)
	if err != nil {
		t.Fatal(err)
	}
	secret := "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"
	for _, run := range []string{"r", "old"} {
		outsider{t, log, run}.must(events.MarkRecordedType, id, events.MarkRecorded{Marked: true, Text: "odd \x00 <b>"})
		outsider{t, log, run}.must(events.MarkRecordedType, id, events.MarkRecorded{})
		if marks := servicetest.All(t, log, run, events.MarkRecordedType); len(marks) != 2 {
			t.Errorf("%d marks", len(marks))
		}
	}
	if after, err := log.Last(t.Context(), "r", events.RolloutStartedType.Kind(), id); err != nil ||
		after.Seq != before.Seq {
		t.Errorf("a mark stands in the rollout's chain, at %d: %v", after.Seq, err)
	}
	for name, c := range map[string]struct {
		rollout, text, why string
	}{
		"no such rollout": {"g000009-0", "", "has no rollout"},
		"a secret":        {id, "it printed " + secret + " twice", "it has a secret (github-pat)"},
		"a long text":     {id, strings.Repeat("ä", 2001), "maxLength"},
	} {
		t.Run(name, func(t *testing.T) {
			why := outsider{t, log, "r"}.state(events.MarkRecordedType, c.rollout,
				events.MarkRecorded{Marked: true, Text: c.text})
			if !strings.Contains(why, c.why) || strings.Contains(why, secret) {
				t.Errorf("%q", why)
			}
		})
	}
	for _, letter := range servicetest.All(t, log, events.Catalogue, events.DeadLetteredType) {
		if dead, err := events.Data[events.DeadLettered](letter); err != nil || dead.Body != nil {
			t.Errorf("a refused comment is kept: %+v, %v", dead, err)
		}
	}
}
