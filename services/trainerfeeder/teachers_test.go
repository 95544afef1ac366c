package trainerfeeder

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

// withTeachers lets the first feed demand two teachers, for which it waits five minutes.
func withTeachers(f *runfile.Feed) {
	f.Teachers, f.TeacherWait = []string{"reference", "big"}, runfile.Duration(5*time.Minute)
}

// says has a teacher say of a member's tokens what value makes of their places;
// failed where value is nil.
func (k *desk) says(teacher, group string, member int, lengths []int, value func(token int) float32) {
	k.t.Helper()
	said := events.TeacherScored{Teacher: teacher, Failed: "it does not fit"}
	if value != nil {
		var all [][]float32
		at := 0
		for _, n := range lengths {
			list := make([]float32, n)
			for i := range list {
				if i > 0 {
					list[i] = value(at + i)
				}
			}
			at += n
			all = append(all, list)
		}
		ref, err := storage.PutBlob(k.t.Context(), k.store, events.PackLogprobs(all))
		if err != nil {
			k.t.Fatal(err)
		}
		said.Logprobs, said.Failed, said.Tokens = &ref, "", at
	}
	k.Happen(events.TeacherScoredType, events.RolloutID(group, member), said)
}

func places(scale float32) func(int) float32 {
	return func(token int) float32 { return -scale * float32(token) }
}

// TestBatchWithTeachers: a batch waits for what the feed's teachers say, before or behind
// the end of the groups, and each token gets the log-probabilities of its own place, in
// every sample of a rollout.
func TestBatchWithTeachers(t *testing.T) {
	k := newDesk(t, feed(withTeachers))
	split := []ending{{reward: 1, split: true}, {reward: 0}}
	lengths := [][]int{{5, 2}, {7}}
	k.open(1, 0, 2)
	first := k.end(1, 0, split...)
	second := k.group(2, 0, split...)
	for _, group := range []string{first, second} {
		for member := range 2 {
			k.nothing("not all teachers have spoken")
			if want := k.Now.Add(5 * time.Minute); !k.Wake.Equal(want) {
				t.Errorf("it looks again at %s, want %s", k.Wake, want)
			}
			k.says("nobody", group, member, lengths[member], places(9))
			k.says("reference", group, member, lengths[member], places(1))
			k.nothing("one teacher has not spoken")
			k.says("big", group, member, lengths[member], places(0.5))
		}
	}
	ready := k.batch()
	file := k.files(ready)[0]
	if !slices.Equal(file.Teachers, []string{"reference", "big"}) || len(file.Samples) != 6 || len(ready.Masked) > 0 {
		t.Fatalf("a batch of %d samples with teachers %v, masked %v", len(file.Samples), file.Teachers, ready.Masked)
	}
	for i, s := range file.Samples {
		at := 0
		if s.SampleIndex == 1 {
			at = 5 // behind the tokens of the first sample
		}
		for teacher, scale := range []float32{1, 0.5} {
			want := make([]float32, len(s.Tokens))
			for token := 1; token < len(want); token++ {
				want[token] = -scale * float32(at+token)
			}
			if got := s.TeacherLogprobs[teacher]; !slices.Equal(got, want) {
				t.Errorf("sample %d of %s: teacher %d gives %v, want %v", i, s.Rollout, teacher, got, want)
			}
		}
	}
	if other := NewDecider(testRun, k.d.cfg, k.d.cfg.Feeds[1], k.store); other.untaught(member{}) != "" ||
		!other.waitEnd(events.Event{}).IsZero() {
		t.Error("a feed without teachers waits for some")
	}
}

// TestTeachersThatDoNotSpeak: a rollout of which a teacher has said nothing in time, or that
// it cannot score, is masked with the teacher's name, and a group of such ones dropped.
// Other groups are not held up.
func TestTeachersThatDoNotSpeak(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) { withTeachers(f); f.GroupsPerBatch = 1 }))
	silent := k.group(1, 0, good...)
	for member := range 2 {
		k.says("reference", silent, member, []int{7}, places(1))
	}
	spoken := k.group(2, 0, good...)
	k.says("reference", spoken, 0, []int{7}, places(1))
	k.says("big", spoken, 0, []int{7}, places(1))
	k.says("reference", spoken, 1, []int{7}, nil) // it has failed, and big says nothing
	k.nothing("big may still speak")
	k.says("big", spoken, 1, []int{7}, places(1))
	ready := k.batch()
	if !slices.Equal(ready.Groups, []string{spoken}) ||
		ready.Masked[events.RolloutID(spoken, 1)] != "no log-probabilities of teacher reference" {
		t.Errorf("the batch is of %v, masked %v", ready.Groups, ready.Masked)
	}
	k.consumed(1)
	k.nothing("big may still speak of the first group")
	k.Now = k.Wake
	dropped := k.Settle()
	if len(dropped) != 1 || dropped[0].Entity != silent {
		t.Fatalf("behind the bound there is %v", decidertest.Names(dropped))
	}
	if d := decidertest.Data[events.GroupDropped](t, dropped[0]); d.Filter != filterUntrainable ||
		!strings.Contains(d.Detail, "no log-probabilities of teacher big") {
		t.Errorf("dropped as %+v", d)
	}
}

// TestNoTeacherOfAClosedRun: nobody asks teachers about a closed run, so an
// export does not wait for them.
func TestNoTeacherOfAClosedRun(t *testing.T) {
	least := 0.5
	k := newDesk(t, feed(func(f *runfile.Feed) { withTeachers(f); f.MinReward = &least }))
	k.group(1, 0, good...)
	k.says("reference", events.GroupID(1), 0, []int{7}, places(1))
	k.says("big", events.GroupID(1), 0, []int{7}, places(1))
	k.group(2, 0, good...)
	k.nothing("the second group's teachers may still speak")
	k.Happen(events.RunClosedType, testRun, events.RunClosed{})
	facts := k.Settle()
	if len(facts) != 2 || facts[0].Type != events.GroupDroppedType || facts[1].Type != events.BatchReadyType {
		t.Errorf("closed with %v", decidertest.Names(facts))
	}
}
