package runfile

import "testing"

// TestAtOnce: in_flight, the evaluation or the staleness says how many rollouts a run has under
// way. With "auto" its file does not.
func TestAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   int
	}{
		"the default":   {func(*RunConfig) {}, 0},
		"the staleness": {func(c *RunConfig) { c.InFlight, c.Staleness.Max = 0, 7 }, 8 * 8 * 8},
		"a number":      {func(c *RunConfig) { c.InFlight = 512 }, 512},
		"outsiders":     {func(c *RunConfig) { c.External, c.InFlight = true, 512 }, 0},
		"batches of tokens": {func(c *RunConfig) {
			c.InFlight, c.Feeds = 0,
				[]Feed{{Name: "trainer", TokensPerBatch: 1000}}
		}, 0},
	} {
		cfg := DefaultRunConfig()
		if c.change(&cfg); cfg.AtOnce() != c.want {
			t.Errorf("%s: %d, want %d", name, cfg.AtOnce(), c.want)
		}
	}
}
