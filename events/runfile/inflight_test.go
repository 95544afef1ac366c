package runfile

import "testing"

// TestAtOnce: a run keeps as many rollouts under way as in_flight says, or its evaluation, or its staleness.
func TestAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   int
	}{
		"the default":       {func(*RunConfig) {}, 2 * 8 * 8},
		"a number":          {func(c *RunConfig) { c.InFlight = 512 }, 512},
		"auto":              {func(c *RunConfig) { c.InFlight, c.Staleness.Max = AutoInFlight, 7 }, 8 * 8 * 8},
		"an evaluation":     {func(c *RunConfig) { c.Epochs, c.Feeds = 1, nil }, EvaluatedAtOnce},
		"outsiders":         {func(c *RunConfig) { c.External, c.InFlight = true, 512 }, 0},
		"batches of tokens": {func(c *RunConfig) { c.Feeds = []Feed{{Name: "trainer", TokensPerBatch: 1000}} }, 0},
	} {
		cfg := DefaultRunConfig()
		if c.change(&cfg); cfg.AtOnce() != c.want {
			t.Errorf("%s: %d, want %d", name, cfg.AtOnce(), c.want)
		}
	}
}
