package events_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestPromotion: which rollouts get a version follows from the fact alone, near enough to its
// share, and a greater share takes none of them away.
func TestPromotion(t *testing.T) {
	const rollouts = 4000
	had := map[string]bool{}
	for _, share := range []float64{0.01, 0.1, 0.5, 0.9} {
		p, got := events.WeightsPromoted{Version: 12, Share: share, Before: 11}, 0
		for i := range rollouts {
			rollout := fmt.Sprintf("g%06d-%d", i/8, i%8)
			switch p.VersionFor("r", rollout) {
			case 12:
				got++
				had[rollout] = true
			case 11:
				if had[rollout] {
					t.Fatalf("%s lost the version at share %v", rollout, share)
				}
			default:
				t.Fatal("another version")
			}
		}
		if part := float64(got) / rollouts; math.Abs(part-share) > 0.03 {
			t.Errorf("%v of the rollouts get the version, want %v", part, share)
		}
	}
	// these names were recorded once and must not change their version
	p := events.WeightsPromoted{Version: 12, Share: 0.1, Before: 11}
	names := ""
	for i := range 40 {
		if rollout := fmt.Sprintf("g%06d-0", i); p.VersionFor("first", rollout) == 12 {
			names += rollout + " "
		}
	}
	if names != recordedCanaries {
		t.Errorf("the version goes to %s", names)
	}
}

// recordedCanaries was computed by another program.
const recordedCanaries = "g000004-0 g000005-0 g000010-0 g000013-0 "

func TestPromotionChoices(t *testing.T) {
	for name, c := range map[string]struct {
		p            events.WeightsPromoted
		of           int64
		main, canary int64
		eleven       float64
	}{
		"nothing":   {events.WeightsPromoted{}, 0, 20, 20, 0},
		"all":       {events.WeightsPromoted{Version: 11, Before: 10}, 11, 11, 11, 1},
		"a share":   {events.WeightsPromoted{Version: 12, Share: 1e-12, Before: 11}, 11, 11, 12, 1 - 1e-12},
		"the other": {events.WeightsPromoted{Version: 11, Share: 1 - 1e-12, Before: 10}, 11, 10, 11, 1 - 1e-12},
	} {
		if of := c.p.VersionFor("r", "g000001-1"); of != c.of || c.p.Main(20) != c.main || c.p.Canary(20) != c.canary ||
			c.p.ShareOf(11) != c.eleven {
			t.Errorf("%s: %d, %d, %d, %v", name, of, c.p.Main(20), c.p.Canary(20), c.p.ShareOf(11))
		}
	}
}
