package trainerfeeder

import (
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

func TestFile(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 1, good...)
	k.version(1)
	decided := k.Decide()
	fact, err := k.d.Complete(t.Context(), k.View(), decided[0])
	if err != nil {
		t.Fatal(err)
	}
	ready := decidertest.Data[events.BatchReady](t, fact)
	first, err := storage.GetBlob(t.Context(), k.store, ready.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := "runs/r/batches/trainer/000000000001-"; !strings.HasPrefix(ready.Files[0].Key, want) {
		t.Errorf("the file is called %s, want %s…", ready.Files[0].Key, want)
	}
	// From the same facts in another store, written later: the same bytes under the same name.
	elsewhere := newDesk(t)
	elsewhere.group(1, 0, good...)
	elsewhere.group(2, 1, good...)
	elsewhere.version(1)
	again := elsewhere.batch()
	second, err := storage.GetBlob(t.Context(), elsewhere.store, again.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	if again.Files[0] != ready.Files[0] || string(first) != string(second) {
		t.Errorf("completing the fact again gives another file: %+v, then %+v", ready.Files[0], again.Files[0])
	}
	checkBatch(t, first)
}

func checkBatch(t *testing.T, data []byte) {
	t.Helper()
	b, err := storage.DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	if b.Run != testRun || b.Feed != "trainer" || b.Step != 1 || len(b.Samples) != 4 {
		t.Fatalf("batch of run %s, feed %s, step %d with %d samples", b.Run, b.Feed, b.Step, len(b.Samples))
	}
	for i, s := range b.Samples {
		group, member := events.GroupID(int64(i/2+1)), i%2
		reward := float32(1 - member)
		advantage := reward - 0.5
		if s.Rollout != events.RolloutID(group, member) || s.Group != group || s.Reward != reward ||
			s.Staleness != int32(1-i/2) || s.PromptLength != 3 {
			t.Errorf("sample %d: rollout %s, reward %g, staleness %d, prompt of %d", i, s.Rollout, s.Reward,
				s.Staleness, s.PromptLength)
		}
		if want := []int32{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(s.Tokens, want) {
			t.Errorf("sample %d: tokens %v", i, s.Tokens)
		}
		// What the model did not sample has no advantage.
		if want := []float32{0, 0, 0, advantage, advantage, 0, advantage}; !slices.Equal(s.Advantages, want) {
			t.Errorf("sample %d: advantages %v, want %v", i, s.Advantages, want)
		}
	}
}

func TestMissingTrajectory(t *testing.T) {
	k := newDesk(t)
	k.group(1, 0, good...)
	k.group(2, 0, good...)
	fact := k.Decide()[0]
	for info, err := range k.store.List(t.Context(), "blobs/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := k.store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.d.Complete(t.Context(), k.View(), fact); err == nil ||
		!strings.Contains(err.Error(), "batch 1 of feed trainer: trajectory of g00000") {
		t.Errorf("a batch without its trajectories: %v", err)
	}
}
