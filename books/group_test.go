package books

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestGroups: a group has its rollouts in their order, and their advantages when it is complete; an
// opening that stands twice opens nothing again.
func TestGroups(t *testing.T) {
	b := newBook(t)
	for range 2 {
		b.happen(events.GroupOpenedType, "g000001", events.GroupOpened{Task: "easy", Size: 2, PolicyVersion: 4})
	}
	b.happen(events.GroupOpenedType, "g000002", events.GroupOpened{Task: "hard", Size: 1})
	b.start("g000001-0", "easy")
	b.start("g000001-1", "easy")
	b.happen(events.GroupCompletedType, "g000001", events.GroupCompleted{Estimator: "grpo", Mean: 0.5,
		Members: []events.Member{
			{Rollout: "g000001-0", Reward: 1, Advantage: 0.5}, {Rollout: "g000001-1", Failed: true},
		}})
	groups := b.GroupsOf(0, b.GroupCount())
	if len(groups) != 2 || groups[1].ID != "g000002" || groups[1].Completed || len(groups[1].Members) != 0 {
		t.Fatalf("groups %+v", groups)
	}
	g := groups[0]
	if g.Task != "easy" || g.Size != 2 || g.PolicyVersion != 4 || !g.Completed || g.Mean != 0.5 ||
		g.Estimator != "grpo" || !slices.Equal(g.Members, []string{"g000001-0", "g000001-1"}) {
		t.Errorf("group %+v", g)
	}
	if r, _ := b.Find("g000001-0"); r.Advantage() != 0.5 || !r.Compared() {
		t.Errorf("rollout %+v", r)
	}
}
