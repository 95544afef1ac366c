package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestActivatedVersionsWerePublished: versions may have gaps, and belong to one policy.
func TestActivatedVersionsWerePublished(t *testing.T) {
	log := house(t)
	publish := func(policy string, version int64) {
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, policy, events.Ordinal(version), events.WeightsPublished{Policy: policy, Version: version}))
	}
	publish("small", 2)
	publish("small", 5)
	publish("other", 7)
	start(t, log)
	activate := func(policy string, version int64) string {
		return send(t, log, knock{subject: events.IntakeSubject(events.Catalogue, events.WeightsActivatedType, policy), body: fmt.Sprintf(`{"version":%d,"replica":"x"}`, version)}).Error
	}
	for _, c := range []struct {
		policy  string
		version int64
		refused bool
	}{
		{"small", 0, false}, {"small", 2, false}, {"small", 5, false}, {"small", 3, true}, {"small", 6, true}, {"small", 7, true}, {"other", 7, false},
		{"new", 0, false}, {"new", 1, true}, {"small", 2, false},
	} {
		answer := activate(c.policy, c.version)
		if refused := strings.Contains(answer, "was never published"); refused != c.refused || !refused && answer != "" {
			t.Errorf("version %d of %s: %q", c.version, c.policy, answer)
		}
	}
	publish("small", 6)
	if answer := activate("small", 6); answer != "" {
		t.Errorf("after it was published: %s", answer)
	}
}
