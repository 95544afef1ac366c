package books

import (
	"cmp"
	"context"
	"math"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// Diff is what two runs over the same rollouts, a run and its replay, made of them for one feed of
// each.
type Diff struct {
	A    string `json:"a"`
	B    string `json:"b"`
	Feed string `json:"feed"`
	// Rollouts of both runs, and of one of them.
	Both  int `json:"both"`
	OnlyA int `json:"only_a"`
	OnlyB int `json:"only_b"`
	// How many of both were trained on.
	TrainedBoth  int `json:"trained_both"`
	TrainedOnlyA int `json:"trained_only_a"`
	TrainedOnlyB int `json:"trained_only_b"`
	// Advantages that differ by more than rounding, those that changed their sign, and the mean of
	// the differences.
	Changed    int     `json:"advantages_changed"`
	SignFlips  int     `json:"advantages_sign_flips"`
	MeanChange float64 `json:"advantages_mean_change"`
	// Groups in which anything differs.
	Groups  []GroupDiff `json:"groups"`
	Batches []BatchDiff `json:"batches"`
}

// GroupDiff is a group whose members differ.
type GroupDiff struct {
	Group   string       `json:"group"`
	Task    string       `json:"task"`
	Members []MemberDiff `json:"members"`
}

// MemberDiff is one rollout in both runs.
type MemberDiff struct {
	Rollout string `json:"rollout"`
	A       Side   `json:"a"`
	B       Side   `json:"b"`
}

// Side is what one run made of a rollout.
type Side struct {
	Reward    float64 `json:"reward"`
	Shaped    float64 `json:"shaped"`
	Advantage float64 `json:"advantage"`
	Outcome   Outcome `json:"outcome"`
	Reason    string  `json:"reason,omitempty"`
	Step      int64   `json:"step,omitempty"` // whose batch holds it
}

// BatchDiff is one step of both runs; a side is nil that did not get so far.
type BatchDiff struct {
	Step   int64      `json:"step"`
	A      *BatchSide `json:"a"`
	B      *BatchSide `json:"b"`
	Common int        `json:"common"` // rollouts that stand in both
}

// BatchSide is one run's batch.
type BatchSide struct {
	Groups     int     `json:"groups"`
	Rollouts   int     `json:"rollouts"`
	RewardMean float64 `json:"reward_mean"`
	Staleness  int64   `json:"staleness"`
}

// Compare reads two runs and compares what a feed of theirs made of each rollout. Feed "" is the
// first of each.
func Compare(ctx context.Context, log eventlog.Reader, a, b, feed string) (Diff, error) {
	var sides [2]compared
	for i, run := range []string{a, b} {
		l, err := Read(ctx, log, run)
		if err != nil {
			return Diff{}, err
		}
		sides[i] = compared{l, cmp.Or(feed, l.FirstFeed())}
	}
	d := Diff{A: a, B: b, Feed: cmp.Or(feed, sides[0].feed), Groups: []GroupDiff{}, Batches: []BatchDiff{}}
	d.rollouts(sides[0], sides[1])
	d.batches(sides[0], sides[1])
	return d, nil
}

// compared is a run of which one feed is compared.
type compared struct {
	*Run
	feed string
}

func (c compared) side(r Rollout) Side {
	entry := c.Entry(c.feed, r.ID)
	return Side{
		Reward: r.Member.Reward, Shaped: r.Member.Shaped, Advantage: r.Member.Advantage,
		Outcome: entry.Outcome, Reason: entry.Reason, Step: c.TrainedAt(c.feed, r.ID),
	}
}

// rounding is how far two advantages may be apart and still be the same.
const rounding = 1e-9

func (d *Diff) rollouts(a, b compared) {
	var change float64
	for r := range a.All() {
		other, both := b.Find(r.ID)
		if !both {
			d.OnlyA++
			continue
		}
		d.Both++
		x, y := a.side(r), b.side(other)
		switch trainedA, trainedB := x.Outcome == Trained, y.Outcome == Trained; {
		case trainedA && trainedB:
			d.TrainedBoth++
		case trainedA:
			d.TrainedOnlyA++
		case trainedB:
			d.TrainedOnlyB++
		}
		if off := math.Abs(x.Advantage - y.Advantage); off > rounding {
			d.Changed++
			change += off
			if x.Advantage*y.Advantage < 0 {
				d.SignFlips++
			}
		} else {
			y.Advantage = x.Advantage
		}
		if x != y {
			d.member(r, MemberDiff{Rollout: r.ID, A: x, B: y})
		}
	}
	for r := range b.All() {
		if _, both := a.Find(r.ID); !both {
			d.OnlyB++
		}
	}
	if d.Changed > 0 {
		d.MeanChange = change / float64(d.Changed)
	}
}

// member adds a rollout to its group. Members of a group were started one after the other.
func (d *Diff) member(r Rollout, m MemberDiff) {
	last := len(d.Groups) - 1
	if last < 0 || d.Groups[last].Group != r.Group {
		d.Groups = append(d.Groups, GroupDiff{Group: r.Group, Task: r.Task})
		last++
	}
	d.Groups[last].Members = append(d.Groups[last].Members, m)
}

func (d *Diff) batches(a, b compared) {
	x, y := a.Batches(a.feed), b.Batches(b.feed)
	for i := range max(len(x), len(y)) {
		batch := BatchDiff{Step: int64(i + 1)}
		in := map[string]bool{}
		if i < len(x) {
			batch.A = batchSide(x[i])
			for _, r := range x[i].Rollouts {
				in[r] = true
			}
		}
		if i < len(y) {
			batch.B = batchSide(y[i])
			for _, r := range y[i].Rollouts {
				if in[r] {
					batch.Common++
				}
			}
		}
		d.Batches = append(d.Batches, batch)
	}
}

func batchSide(b Batch) *BatchSide {
	return &BatchSide{len(b.Groups), len(b.Rollouts), b.RewardMean, b.Staleness}
}
