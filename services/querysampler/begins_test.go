package querysampler

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// TestFirstGroupsHaveThePublishedVersion: a run of a published policy opens its first groups
// at the version that its opening names, before it learns of the version itself. So none of
// them is stale when it does.
func TestFirstGroupsHaveThePublishedVersion(t *testing.T) {
	log := newLog(t, nil)
	log.Happen(events.RunOpenedType, testRun, events.RunOpened{PolicyVersion: 6})
	groups := 0
	for _, f := range log.Settle() {
		if f.Type != events.GroupOpenedType {
			continue
		}
		if groups++; decidertest.Data[events.GroupOpened](t, f).PolicyVersion != 6 {
			t.Errorf("%s: %s", f.ID, f.Data)
		}
	}
	if groups == 0 {
		t.Error("no group is opened")
	}
}
