package trainerfeeder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// Whatever is batched: every trained member's samples stand in one file, in one micro-batch, groups
// are whole, and the counts add up.
func TestSpreadConserves(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct {
		ranks, groups int
		micro         *runfile.MicroBatch
	}{
		{1, 3, nil}, {1, 4, &runfile.MicroBatch{Tokens: 40}}, {2, 5, nil},
		{3, 7, &runfile.MicroBatch{Tokens: 60, Cost: runfile.CostAttention}},
		{4, 4, &runfile.MicroBatch{Tokens: 1000}}, {4, 2, &runfile.MicroBatch{Tokens: 15, Cost: runfile.CostTokens}},
	} {
		t.Run(fmt.Sprintf("%d ranks, %d groups", c.ranks, c.groups), func(t *testing.T) {
			k := newDesk(t, feed(func(f *runfile.Feed) {
				f.Ranks, f.GroupsPerBatch, f.MicroBatch, f.Filters = c.ranks, c.groups, c.micro,
					&runfile.Filters{Truncated: true}
			}))
			trained := map[string]bool{}
			for n := range int64(c.groups) {
				endings := []ending{{reward: 1}}
				for range rng.IntN(4) {
					endings = append(endings, ending{prompt: rng.IntN(40), split: rng.IntN(3) == 0,
						failed: rng.IntN(6) == 0, stop: []string{"", events.StopMaxTurns}[rng.IntN(2)]})
				}
				id := k.group(n+1, 0, endings...)
				for i, e := range endings {
					if !e.failed && e.stop == "" {
						trained[events.RolloutID(id, i)] = true
					}
				}
			}
			checkSpread(t, k, k.batch(), c.ranks, c.micro, trained)
		})
	}
}

func checkSpread(t *testing.T, k *desk, b events.BatchReady, ranks int, micro *runfile.MicroBatch,
	trained map[string]bool) {
	t.Helper()
	files := k.files(b)
	if len(files) != ranks {
		t.Fatalf("%d files for %d ranks", len(files), ranks)
	}
	var rollouts []string
	rankOf, whole, tokens := map[string]int{}, storage.Counts{}, int64(0)
	for r, f := range files {
		if f.Rank != r || f.Ranks != ranks || f.MicroBatches != b.MicroBatches || f.Step != b.Step ||
			(micro != nil) != (f.MicroBatches > 0) {
			t.Errorf("file %d is rank %d of %d with %d micro-batches of step %d", r, f.Rank,
				f.Ranks, f.MicroBatches, f.Step)
		}
		whole = whole.Plus(storage.Count(f.Samples))
		size := make([]int, f.MicroBatches)
		for i, s := range f.Samples {
			tokens += int64(len(s.Tokens))
			if at, ok := rankOf[s.Group]; ok && at != r {
				t.Errorf("group %s stands on ranks %d and %d", s.Group, at, r)
			}
			rankOf[s.Group] = r
			if s.SampleIndex == 0 {
				rollouts = append(rollouts, s.Rollout)
			} else if f.Samples[i-1].Rollout != s.Rollout {
				t.Errorf("the samples of %s do not stand together", s.Rollout)
			}
			if s.RolloutSampled != 3 {
				t.Errorf("%s: %d tokens were sampled in the rollout, want 3", s.Rollout, s.RolloutSampled)
			}
			if micro == nil {
				continue
			}
			if size[s.MicroBatch] += len(s.Tokens); size[s.MicroBatch] > micro.Tokens &&
				size[s.MicroBatch] > len(s.Tokens) {
				t.Errorf("micro-batch %d of rank %d has more than %d tokens", s.MicroBatch, r, micro.Tokens)
			}
		}
	}
	if !slices.Equal(rollouts, b.Rollouts) || len(rollouts) != len(trained) {
		t.Errorf("rollouts %v in the files, %v in the fact, want %d", rollouts, b.Rollouts, len(trained))
	}
	for _, id := range rollouts {
		if !trained[id] {
			t.Errorf("%s is in a file", id)
		}
	}
	for _, f := range files {
		if f.Whole != whole || f.Whole.Rollouts != int64(len(rollouts)) {
			t.Errorf("rank %d says that the batch has %+v, the files hold %+v", f.Rank, f.Whole, whole)
		}
	}
	if int64(b.Samples) != whole.Samples || b.Sampled != whole.SampledTokens || b.Tokens != tokens {
		t.Errorf("the fact says %d samples, %d sampled of %d tokens; the files hold %+v, %d", b.Samples, b.Sampled,
			b.Tokens, whole, tokens)
	}
}

func TestFilesOfRanks(t *testing.T) {
	k := newDesk(t, feed(func(f *runfile.Feed) { f.Ranks, f.MicroBatch = 2, &runfile.MicroBatch{Tokens: 20} }))
	k.group(1, 0, ending{reward: 1}, ending{prompt: 4})
	k.group(2, 0, ending{reward: 1, prompt: 43}, ending{prompt: 3})
	b := k.batch()
	for r, want := range []string{"runs/r/batches/trainer/000000000001-r0-",
		"runs/r/batches/trainer/000000000001-r1-"} {
		if !strings.HasPrefix(b.Files[r].Key, want) {
			t.Errorf("file %s, want %s…", b.Files[r].Key, want)
		}
	}
	// The longer group is the first to be placed; the other rank splits its one
	// micro-batch, so that both have two.
	if want := []string{"g000002-0", "g000002-1", "g000001-0", "g000001-1"}; !slices.Equal(b.Rollouts, want) ||
		b.MicroBatches != 2 {
		t.Errorf("rollouts %v in %d micro-batches", b.Rollouts, b.MicroBatches)
	}
	if want := []string{"g000001", "g000002"}; !slices.Equal(b.Groups, want) {
		t.Errorf("groups %v, want them in the order in which they were taken", b.Groups)
	}
	for r, want := range [][]int32{{0, 1}, {1, 0}} {
		for i, s := range k.files(b)[r].Samples {
			if s.MicroBatch != want[i] {
				t.Errorf("rank %d: %s is in micro-batch %d, want %d", r, s.Rollout, s.MicroBatch, want[i])
			}
		}
	}
}
