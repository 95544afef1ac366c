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

// withHints lets the first feed take the judge's hints and a teacher that scores them, for which it
// waits five minutes. Its batches have one group.
func withHints(cfg *runfile.RunConfig) {
	cfg.Teachers = []runfile.Teacher{{Name: "hinted", Hints: "judge"}}
	f := &cfg.Feeds[0]
	f.Hints, f.Teachers, f.TeacherWait, f.GroupsPerBatch = "judge", []string{"hinted"},
		runfile.Duration(5*time.Minute), 1
}

func (k *desk) hints(by, group string, member int, list ...events.Hint) {
	k.t.Helper()
	k.Happen(events.RolloutHintedType, events.RolloutID(group, member), events.RolloutHinted{By: by, Hints: list})
}

func (k *desk) saysOfSpans(group string, member int, lists ...[]float32) {
	k.t.Helper()
	ref, err := storage.PutBlob(k.t.Context(), k.store, events.PackLogprobs(lists))
	if err != nil {
		k.t.Fatal(err)
	}
	k.Happen(events.TeacherScoredType, events.RolloutID(group, member),
		events.TeacherScored{Teacher: "hinted", Logprobs: &ref})
}

// TestBatchWithHints: a batch waits for the feed's hinter, and for the teacher of those rollouts
// that have hints. Each span's log-probabilities are at the place of its tokens, in every sample of
// a rollout, and nothing is said of other tokens.
func TestBatchWithHints(t *testing.T) {
	k := newDesk(t, withHints)
	k.open(1, 0, 2)
	k.nothing("the group is not complete")
	group := events.GroupID(1)
	k.end(1, 0, ending{reward: 1, split: true}, ending{reward: 0})
	k.hints("somebody", group, 0, events.Hint{Start: 3, Length: 1, Text: "not asked for"})
	k.nothing("the judge has said nothing")
	k.hints("judge", group, 0, events.Hint{Start: 4, Length: 1, Text: "Look first."},
		events.Hint{Sample: 1, Start: 1, Length: 1, Text: "Shorter.", Tokens: []int32{9}, At: new(0)})
	k.hints("somebody", group, 0) // who has found nothing
	k.hints("judge", group, 1)    // it has found nothing
	k.nothing("the teacher has not spoken of the first rollout")
	if want := k.Now.Add(5 * time.Minute); !k.Wake.Equal(want) {
		t.Errorf("it looks again at %s, want %s", k.Wake, want)
	}
	k.saysOfSpans(group, 0, []float32{-0.25}, []float32{-0.75})
	ready := k.batch()
	file := k.files(ready)[0]
	if file.Hinter != "judge" || !slices.Equal(file.Hinted, []string{"hinted"}) ||
		len(file.Samples) != 3 || len(ready.Masked) > 0 {
		t.Fatalf("a batch of %d samples with hints of %q for %v, masked %v", len(file.Samples), file.Hinter,
			file.Hinted, ready.Masked)
	}
	first, second, other := file.Samples[0], file.Samples[1], file.Samples[2]
	if h := first.Hints; len(h) != 1 || h[0].Turn != 0 || h[0].Start != 4 || h[0].At != 3 ||
		h[0].Text != "Look first." {
		t.Errorf("the first sample has %+v", h)
	}
	if h := second.Hints; len(h) != 1 || h[0].Turn != 1 || h[0].Start != 1 || h[0].At != 0 ||
		!slices.Equal(h[0].Tokens, []int32{9}) {
		t.Errorf("the second sample has %+v", h)
	}
	if len(other.Hints) > 0 {
		t.Errorf("the other rollout has %+v", other.Hints)
	}
	for i, c := range []struct {
		sample storage.Sample
		token  int
		want   float32
	}{{first, 4, -0.25}, {second, 1, -0.75}, {other, -1, 0}} {
		for k, v := range c.sample.TeacherLogprobs[0] {
			if k == c.token && v != c.want || k != c.token && v == v {
				t.Errorf("sample %d, token %d: %g", i, k, v)
			}
		}
	}
}

// TestHintsThatDoNotCome: a rollout without hints in time, or whose teacher says nothing of
// them, is trained on as it is.
func TestHintsThatDoNotCome(t *testing.T) {
	k := newDesk(t, withHints)
	silent := k.group(1, 0, good...)
	k.hints("judge", silent, 0, events.Hint{Start: 3, Length: 2, Text: "Look first."})
	k.nothing("the judge has said nothing of the other rollout")
	k.Now = k.Wake
	ready := k.batch()
	s := k.files(ready)[0].Samples
	if len(ready.Masked) > 0 || len(s) != 2 || len(s[0].Hints) != 1 || len(s[1].Hints) != 0 {
		t.Fatalf("masked %v, samples %+v", ready.Masked, s)
	}
	if slices.ContainsFunc(s[0].TeacherLogprobs[0], func(v float32) bool { return v == v }) {
		t.Errorf("nobody has spoken, and the row has %v", s[0].TeacherLogprobs[0])
	}
	k.consumed(1)
	failed := k.group(2, 0, good...)
	for member := range 2 {
		k.hints("judge", failed, member, events.Hint{Start: 3, Length: 2, Text: "Look first."})
		k.Happen(events.TeacherScoredType, events.RolloutID(failed, member),
			events.TeacherScored{Teacher: "hinted", Failed: "away"})
	}
	if ready := k.batch(); !slices.Equal(ready.Groups, []string{failed}) || len(ready.Masked) > 0 {
		t.Errorf("a batch of %v, masked %v", ready.Groups, ready.Masked)
	}
	k.consumed(2)
	k.group(3, 0, good...)
	k.Happen(events.RunClosedType, testRun, events.RunClosed{})
	if facts := k.Settle(); len(facts) != 1 || facts[0].Type != events.GroupDroppedType {
		t.Errorf("closed with %v", decidertest.Names(facts))
	}
}

// TestTooManyHintTexts: texts beyond what a batch may hold are left out; the spans stay.
func TestTooManyHintTexts(t *testing.T) {
	long := strings.Repeat("x", events.MaxHintText)
	var all []*trained
	for range maxHintTexts/events.MaxHintText + 1 {
		all = append(all, &trained{samples: []storage.Sample{{Hints: []storage.Hint{{Start: 1, Length: 1, Text: long,
			Tokens: []int32{1}}}}}})
	}
	shortenHints(all)
	first, last := all[0].samples[0].Hints[0], all[len(all)-1].samples[0].Hints[0]
	if first.Text != long || last.Text != "" || last.Tokens != nil || last.Start != 1 || last.Length != 1 {
		t.Errorf("the first has %d bytes, the last is %+v", len(first.Text), last)
	}
}
