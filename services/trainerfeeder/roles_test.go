package trainerfeeder

import (
	"maps"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func roles(filters runfile.Filters) func(*runfile.RunConfig) {
	return func(cfg *runfile.RunConfig) {
		feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1 })(cfg)
		cfg.Environment, cfg.Filters = &runfile.Environment{Name: "game", Roles: []string{"x", "o"}}, filters
	}
}

// TestWholeEpisodes: where the run asks for it, no role of an episode is
// trained on without the others.
func TestWholeEpisodes(t *testing.T) {
	endings := []ending{{reward: 1}, {failed: true}, {reward: 1}, {reward: 0, stop: events.StopMaxTurns}, {reward: 1},
		{invalidated: true}, {reward: 1}, {reward: 0}}
	for name, c := range map[string]struct {
		whole    bool
		rollouts []string
		masked   map[string]string
	}{
		"each role by itself": {false, []string{"g000001-0", "g000001-2", "g000001-4", "g000001-6", "g000001-7"},
			map[string]string{"g000001-3": "truncated", "g000001-5": "invalidated"}},
		"whole episodes": {true, []string{"g000001-6", "g000001-7"},
			map[string]string{"g000001-0": "whole_episodes", "g000001-2": "whole_episodes", "g000001-3": "truncated",
				"g000001-4": "whole_episodes", "g000001-5": "invalidated"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newDesk(t, roles(runfile.Filters{Truncated: true, WholeEpisodes: c.whole}))
			k.group(1, 0, endings...)
			b := k.batch()
			if !slices.Equal(b.Rollouts, c.rollouts) || !maps.Equal(b.Masked, c.masked) {
				t.Errorf("rollouts %v, masked %v", b.Rollouts, b.Masked)
			}
			for _, file := range k.files(b) {
				for _, s := range file.Samples {
					if want := map[bool]string{true: "x",
						false: "o"}[(s.Rollout[len(s.Rollout)-1]-'0')%2 == 0]; s.Role != want {
						t.Errorf("%s has the role %q, want %s", s.Rollout, s.Role, want)
					}
				}
			}
		})
	}
}

// TestEqualRewardsWithinRoles: where each role always gets the same, nothing is learnt,
// though the roles differ.
func TestEqualRewardsWithinRoles(t *testing.T) {
	k := newDesk(t, roles(runfile.Filters{ZeroVariance: true}))
	k.group(1, 0, ending{reward: 1}, ending{reward: 0}, ending{reward: 1}, ending{reward: 0})
	facts := k.Settle()
	if len(facts) != 1 || decidertest.Data[events.GroupDropped](t, facts[0]).Filter != "zero_variance" {
		t.Errorf("got %v", decidertest.Names(facts))
	}
	k.group(2, 0, ending{reward: 1}, ending{reward: 0}, ending{reward: 0}, ending{reward: 0})
	k.batch()
}

// TestWhitenedWithinRoles: an estimator that normalises over the batch does
// so among those of a role.
func TestWhitenedWithinRoles(t *testing.T) {
	k := newDesk(t, roles(runfile.Filters{}),
		func(cfg *runfile.RunConfig) { cfg.Advantage = runfile.Advantage{Estimator: "reinforce_plus_plus"} })
	k.group(1, 0, ending{reward: 1}, ending{reward: 100}, ending{reward: 0}, ending{reward: 100})
	b := k.batch()
	got := map[string]float32{}
	for _, s := range k.files(b)[0].Samples {
		got[s.Rollout] = slices.Max(s.Advantages) + slices.Min(s.Advantages)
	}
	if got["g000001-0"] <= 0 || got["g000001-2"] >= 0 || got["g000001-1"] != 0 || got["g000001-3"] != 0 {
		t.Errorf("advantages %v: x differs by 1 and o by nothing", got)
	}
}
