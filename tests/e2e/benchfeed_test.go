package e2e

import "testing"

// TestBenchFeed: the benchmark gives its figures, and a feeder's memory does not grow with
// the groups that wait in it.
func TestBenchFeed(t *testing.T) {
	t.Parallel()
	var r struct {
		Push   float64 `json:"push_mtok_s"`
		Pull   float64 `json:"pull_mtok_s"`
		OfPush float64 `json:"push_vs_raw"`
		OfPull float64 `json:"pull_vs_raw"`
		Append float64 `json:"raw_append_mtok_s"`
		Bytes  float64 `json:"bytes_per_token"`
		RSS100 float64 `json:"rss_mib_100"`
		Memory []struct {
			Groups int     `json:"groups"`
			Feeder float64 `json:"feeder_rss_mib"`
		} `json:"memory"`
	}
	mustBench(t, &r, "feed", "--lengths", "1024", "--tokens", "65536", "--backlogs", "100,2000", "--quiet", "--json")
	for name, figure := range map[string]float64{"push": r.Push, "pull": r.Pull, "push's ratio": r.OfPush,
		"pull's ratio": r.OfPull, "raw append": r.Append, "bytes": r.Bytes, "memory": r.RSS100} {
		t.Run(name, func(t *testing.T) {
			if figure <= 0 {
				t.Errorf("%s: %g", name, figure)
			}
		})
	}
	// MiB, by which a young process differs from itself
	if len(r.Memory) != 2 || r.Memory[1].Feeder > 1.5*r.Memory[0].Feeder+32 {
		t.Errorf("memory grows with the backlog: %+v", r.Memory)
	}
}
