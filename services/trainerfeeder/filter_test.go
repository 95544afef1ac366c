package trainerfeeder

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

func TestFilters(t *testing.T) {
	half := 0.5
	failed := ending{failed: true}
	for _, c := range []struct {
		name    string
		filters runfile.Filters
		endings []ending
		want    string // filter, "" for a group that is batched
		detail  string
	}{
		{"all rewards are equal", runfile.Filters{ZeroVariance: true}, []ending{{reward: 1}, {reward: 1}},
			"zero_variance", "are all 1"},
		{"rewards differ", runfile.Filters{ZeroVariance: true}, good, "", ""},
		{"shaping told equal rewards apart", runfile.Filters{ZeroVariance: true},
			[]ending{{reward: 1}, {reward: 1, shaped: &half}}, "zero_variance", "are all 1"},
		{"shaping made rewards equal", runfile.Filters{ZeroVariance: true},
			[]ending{{reward: 1, shaped: &half}, {reward: 0, shaped: &half}}, "", ""},
		{"equal but for a failed member", runfile.Filters{ZeroVariance: true},
			[]ending{{reward: 1}, failed, {reward: 1}}, "zero_variance", ""},
		{"a masked member counts in the variance", runfile.Filters{ZeroVariance: true, Truncated: true},
			[]ending{{reward: 1}, {reward: 0, stop: events.StopMaxTurns}}, "", ""},
		{"without a filter equal rewards are batched", runfile.Filters{}, []ending{{reward: 1}, {reward: 1}}, "", ""},

		{"too easy", runfile.Filters{PassRate: &runfile.PassRate{Min: 0.25, Max: 0.75}},
			[]ending{{reward: 1}, {reward: 1}}, "pass_rate", "1 of its members pass, outside of 0.25 to 0.75"},
		{"too hard", runfile.Filters{PassRate: &runfile.PassRate{Min: 0.25, Max: 0.75}},
			[]ending{{reward: 0.9}, {reward: 0}}, "pass_rate", "0 of its members"},
		{"both ends belong to the window", runfile.Filters{PassRate: &runfile.PassRate{Min: 0.5, Max: 0.5}}, good, "",
			""},
		{"what passes at 0", runfile.Filters{PassRate: &runfile.PassRate{Min: 1, Max: 1, At: new(0.0)}},
			[]ending{{reward: 0.9}, {reward: 0}}, "", ""},
		{"what passes", runfile.Filters{PassRate: &runfile.PassRate{Min: 0.5, Max: 1, At: new(0.9)}},
			[]ending{{reward: 0.9}, {reward: 0.8}}, "", ""},
		{"of those that have a reward", runfile.Filters{PassRate: &runfile.PassRate{Min: 1, Max: 1}},
			[]ending{{reward: 1}, failed}, "", ""},

		{"a failed member costs itself", runfile.Filters{}, []ending{{reward: 1}, failed}, "", ""},
		{"a failed member costs its group", runfile.Filters{MinSurvivors: 2}, []ending{{reward: 1}, failed},
			"min_survivors", "1 of its members have a reward, at least 2"},
		{"enough survivors", runfile.Filters{MinSurvivors: 2}, []ending{{reward: 1}, failed, {reward: 0}}, "", ""},
		{"a masked member survives", runfile.Filters{MinSurvivors: 2},
			[]ending{{reward: 1}, {reward: 0, textOnly: true}}, "", ""},

		{"the model said nothing", runfile.Filters{}, []ending{{reward: 1, unsampled: true}, {unsampled: true}},
			"untrainable", "no sampled tokens"},
		{"one said something", runfile.Filters{}, []ending{{reward: 1, unsampled: true}, {}}, "", ""},
		{"all truncated", runfile.Filters{Truncated: true},
			[]ending{{reward: 1, stop: events.StopLength}, {stop: events.StopMaxTokens}}, "untrainable", "truncated"},
		{"calls that were not read", runfile.Filters{},
			[]ending{{reward: 1, stop: events.StopUnread}, {stop: events.StopUnread}}, "untrainable", "unread_call"},
		{"one that was", runfile.Filters{}, []ending{{reward: 1}, {stop: events.StopUnread}}, "", ""},
		{"ends that nobody knows", runfile.Filters{}, []ending{{reward: 1, stop: events.StopUnknown},
			{stop: events.StopUnread}}, "untrainable", "unread_call"},
		{"nobody is left", runfile.Filters{Truncated: true, MaxTokens: 7},
			[]ending{{reward: 1, prompt: 1}, {stop: events.StopMaxTurns}}, "untrainable", "max_tokens, truncated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDesk(t, feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1 }),
				func(cfg *runfile.RunConfig) { cfg.Filters = c.filters })
			k.group(1, 0, c.endings...)
			if c.want == "" {
				k.batch()
				return
			}
			facts := k.Settle()
			if got := decidertest.Names(facts); !slices.Equal(got, []string{"group.dropped g000001"}) {
				t.Fatalf("got %v", got)
			}
			if d := decidertest.Data[events.GroupDropped](t, facts[0]); d.Reason != events.DropFiltered ||
				d.Filter != c.want || !strings.Contains(d.Detail, c.detail) {
				t.Errorf("dropped %+v, want the filter %s, %q", d, c.want, c.detail)
			}
		})
	}
}

func TestMaskedMembers(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) {
		f.GroupsPerBatch = 1
		f.Filters = &runfile.Filters{Truncated: true, MaxTokens: 10}
	}))
	k.group(1, 0, ending{reward: 1}, ending{reward: 1, prompt: 3}, ending{reward: 1, prompt: 4},
		ending{stop: events.StopMaxTurns}, ending{textOnly: true},
		ending{failed: true}, ending{invalidated: true, stop: events.StopLength}, ending{stop: events.StopLength})
	b := k.batch()
	if want := []string{"g000001-0", "g000001-1"}; !slices.Equal(b.Rollouts, want) {
		t.Errorf("rollouts %v, want %v", b.Rollouts, want)
	}
	want := map[string]string{"g000001-2": "max_tokens", "g000001-3": "truncated", "g000001-4": "no token ids",
		"g000001-6": "invalidated", "g000001-7": "truncated"}
	if !maps.Equal(b.Masked, want) {
		t.Errorf("masked %v, want %v", b.Masked, want)
	}
	if b.RewardMean != 3./7 {
		t.Errorf("mean reward %g, want that of all seven scored members", b.RewardMean)
	}
}

// A member that was scored, but invalidated before its group was complete, has no advantage; the
// batch says what became of it.
func TestInvalidatedBeforeItsGroupWasComplete(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) { f.GroupsPerBatch = 1; f.Filters = &runfile.Filters{MinSurvivors: 1} }))
	k.open(1, 0, 2)
	for i := range 2 {
		id := events.RolloutID("g000001", i)
		ref := k.trajectory("g000001", id, 0, ending{}, events.StopFinished)
		k.Happen(events.RolloutFinishedType, id, events.RolloutFinished{StopReason: events.StopFinished, Tokens: 7,
			Sampled: 3, Trajectory: ref})
		k.Happen(events.RolloutScoredType, id, events.RolloutScored{Reward: 1, Trajectory: ref})
	}
	k.Happen(events.RolloutInvalidatedType, "g000001-0", events.RolloutInvalidated{Reason: "x"})
	k.Happen(events.GroupCompletedType, "g000001", events.GroupCompleted{Mean: 1,
		Members: []events.Member{{Rollout: "g000001-0", Failed: true}, {Rollout: "g000001-1", Reward: 1, Shaped: 1}}})
	b := k.batch()
	if !slices.Equal(b.Rollouts, []string{"g000001-1"}) ||
		!maps.Equal(b.Masked, map[string]string{"g000001-0": "invalidated"}) || b.RewardMean != 1 {
		t.Errorf("batch %+v", b)
	}
}
