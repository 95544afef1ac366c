package advantage

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestCheck: an estimator that compares the members of a group is refused where
// each is alone in its own.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		estimator string
		change    func(*runfile.RunConfig)
		refused   bool
	}{
		"a group":          {"mean_centred", func(c *runfile.RunConfig) { c.GroupSize = 2 }, false},
		"alone":            {"mean_centred", nil, true},
		"alone by leaving": {"leave_one_out", nil, true},
		"alone in a role": {"rloo", func(c *runfile.RunConfig) {
			c.GroupSize, c.Environment = 2, &runfile.Environment{Roles: []string{"a", "b"}}
		}, true},
		"a raw reward": {"std_normalised", func(
			c *runfile.RunConfig) {
			c.Advantage.Params = map[string]any{"singleton": "raw"}
		}, false},
		"over the batch":    {"reinforce_plus_plus", nil, false},
		"over time":         {"rae", nil, false},
		"outsiders' groups": {"mean_centred", func(c *runfile.RunConfig) { c.External = true }, false},
		"an evaluation":     {"mean_centred", func(c *runfile.RunConfig) { c.Epochs = 1 }, false},
		"rewards of spans":  {"mean_centred", func(c *runfile.RunConfig) { c.Advantage.SpanWeight = 1 }, false},
		"a teacher": {"mean_centred", func(c *runfile.RunConfig) { c.Feeds[0].Teachers = []string{"big"} },
			false},
		"demonstrations":     {"mean_centred", func(c *runfile.RunConfig) { c.Feeds[0].MinReward = new(1.0) }, false},
		"forks alone":        {"mean_centred", func(c *runfile.RunConfig) { c.Filters.ZeroVariance = true }, false},
		"forks by survivors": {"rloo", func(c *runfile.RunConfig) { c.Filters.MinSurvivors = 2 }, false},
		"forks in one feed": {"rloo", func(c *runfile.RunConfig) {
			c.Feeds = []runfile.Feed{{Name: "a", GroupsPerBatch: 1, Filters: &runfile.Filters{ZeroVariance: true}},
				{Name: "b", GroupsPerBatch: 1}}
		}, true},
		"nobody": {"nobody", nil, true},
	} {
		cfg := runfile.DefaultRunConfig()
		cfg.GroupSize, cfg.Advantage.Estimator = 1, c.estimator
		if c.change != nil {
			c.change(&cfg)
		}
		if err := Check(cfg); (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), c.estimator) {
			t.Errorf("%s: %v, refused is to be %v", name, err, c.refused)
		}
	}
}
