package doctor

import (
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// TestDoctorCountsGeneratorSlots: a run that keeps more rollouts under way than the generators
// present have slots is named, and one that has enough is not.
func TestDoctorCountsGeneratorSlots(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	for name, slots := range map[string]int{"a": 64, "b": 32} {
		go presence.Speak(t.Context(), r.Log.Conn(), topology.Generator, name,
			func() presence.Report { return presence.Report{Slots: slots} })
	}
	slots := generatorSlots(t.Context(), r.Log.Conn())
	if slots != 96 {
		t.Fatalf("%d slots, want 96", slots)
	}
	found := scarceSlots(map[string]int{"large": 512, "small": 96}, slots)
	if len(found) != 1 {
		t.Fatalf("found %+v", found)
	}
	wantFinding(t, found, "runs", levelWarning,
		"run large keeps 512 rollouts under way, and the generators sample 96 turns at once",
		"--generator-slots, or lower in_flight of the run to 96")
	if found := scarceSlots(map[string]int{"large": 512}, 0); found != nil {
		t.Errorf("without a generator that speaks: %+v", found)
	}
}
