package e2e

import "testing"

// TestBenchReplay: the benchmark records a run, and gives its figures only when every
// decision of it comes out again.
func TestBenchReplay(t *testing.T) {
	t.Parallel()
	var r struct {
		Events  uint64  `json:"events"`
		Replay  float64 `json:"replay_vs_raw"`
		Archive float64 `json:"archive_vs_raw"`
		Verify  float64 `json:"verify_rollouts_s"`
		Peak    float64 `json:"peak_mib"`
	}
	mustBench(t, &r, "replay", "--rollouts", "64", "--pairs", "1", "--quiet", "--json")
	if r.Events < 64*16 {
		t.Errorf("%d events of 64 rollouts", r.Events)
	}
	for name, figure := range map[string]float64{"the stream's ratio": r.Replay, "the archive's ratio": r.Archive,
		"rollouts a second": r.Verify, "memory": r.Peak} {
		t.Run(name, func(t *testing.T) {
			if figure <= 0 {
				t.Errorf("%s: %g", name, figure)
			}
		})
	}
}
