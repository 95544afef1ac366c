package books

import (
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestTasks: tasks that teach nothing are told from those that do.
func TestTasks(t *testing.T) {
	b := newBook(t)
	n := 0
	group := func(task string, rewards ...float64) { // a negative one fails
		n++
		id := events.GroupID(int64(n))
		b.happen(events.GroupOpenedType, id, events.GroupOpened{Task: task, Size: len(rewards)})
		completed := events.GroupCompleted{}
		for i, reward := range rewards {
			member := events.RolloutID(id, i)
			b.start(member, task)
			if reward < 0 {
				b.happen(events.RolloutFailedType, member, events.RolloutFailed{Stage: "scorer", Class: "verifier"})
				completed.Members = append(completed.Members, events.Member{Rollout: member, Failed: true})
				continue
			}
			b.happen(events.RolloutScoredType, member, events.RolloutScored{Reward: reward})
			completed.Mean += reward / float64(len(rewards))
			completed.Members = append(completed.Members,
				events.Member{Rollout: member, Reward: reward, Shaped: reward})
		}
		b.happen(events.GroupCompletedType, id, completed)
	}
	group("a-good", 0, 1)
	group("a-good", 1, 1)
	group("b-hard", 0, 0, -1)
	group("c-easy", 1, 1)
	group("d-broken", -1, -1)
	group("e-flat", 0.5, 0.5)
	group("e-flat", 1, 1)
	group("f-partly", 0, 0.5)
	for i, want := range []string{
		"a-good 2 groups, 1 with signal, 3 of 4 passed, 0 failed: ",
		"b-hard 1 groups, 0 with signal, 0 of 2 passed, 1 failed: never solved",
		"c-easy 1 groups, 0 with signal, 2 of 2 passed, 0 failed: always solved",
		"d-broken 1 groups, 0 with signal, 0 of 0 passed, 2 failed: every rollout failed",
		"e-flat 2 groups, 0 with signal, 2 of 4 passed, 0 failed: no signal: all rewards of a group are equal",
		"f-partly 1 groups, 1 with signal, 0 of 2 passed, 0 failed: never solved",
	} {
		r := b.Tasks(1)[i]
		if got := fmt.Sprintf("%s %d groups, %d with signal, %d of %d passed, %d failed: %s", r.Task, r.Groups,
			r.Signals, r.Passed, r.Scored, r.Failed, r.Remark); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	first := b.Tasks(0.5)[0]
	if *first.First != 0.5 || *first.Last != 1 || *first.Mean != 0.75 {
		t.Errorf("%+v", first)
	}
	if hard := b.Tasks(0.5)[3]; hard.Mean != nil || hard.Classes["verifier"] != 2 {
		t.Errorf("%+v", hard)
	}
}
