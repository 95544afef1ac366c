// Package steps makes a row of figures for each training step of a feed, for tables and for
// trackers such as TensorBoard. It is a fold of the run's events: the same log gives the same rows,
// in the order of the steps, each step once. Its memory grows with the rollouts that no batch has
// yet.
package steps

import (
	"math"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
)

// Row is one training step.
type Row struct {
	Step int64 `json:"step"`
	// Time is when the trainer took the step, Sequence that of the event which says so.
	Time     time.Time `json:"time"`
	Sequence uint64    `json:"sequence"`
	// Figures are by the names in the list Figures; what is not known is absent.
	Figures map[string]float64 `json:"figures"`
}

// Fold folds a run's events into the rows of one feed.
type Fold struct {
	feed   string
	export bool
	emit   func(Row) error

	run     books.Rollouts // those that no batch or drop of the feed has resolved
	ready   []batch        // batches that the trainer has not taken
	gaps    bool           // the trainer has stated a gap
	waiting *Row           // for its gap
	since   window
}

// batch is a batch.ready with what its groups were.
type batch struct {
	events.BatchReady
	figures map[string]float64
}

// window is what happened since the step before, and what had happened by then.
type window struct {
	began           time.Time
	before          books.Totals
	stale, filtered int
}

// New makes an empty fold for a feed, the run's first one for the name ""; emit is given each row
// when nothing can change it any more.
func New(feed string, emit func(Row) error) *Fold {
	return &Fold{feed: feed, emit: emit, run: books.NewRollouts()}
}

// Policy is the run's policy.
func (f *Fold) Policy() string { return f.run.Config.Policy }

// State is open, paused or closed, and why.
func (f *Fold) State() (state, reason string) { return f.run.State, f.run.Reason }

// Ended reports whether no row can follow: the run is closed, no rollout of it can come into a
// batch, and the trainer has taken all batches.
func (f *Fold) Ended() bool { return f.run.Closed && f.run.Count() == 0 && len(f.ready) == 0 }

// Apply folds the next event of the run's stream.
func (f *Fold) Apply(e events.Event) error {
	err := f.run.Apply(e)
	if err == nil {
		err = f.happened(e)
	}
	if err == nil && f.Ended() {
		err = f.complete()
	}
	return err
}

func (f *Fold) happened(e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		f.opened()
	case events.RolloutFailedType:
		f.run.Forget(e.Entity)
	case events.GroupCompletedType:
		f.completed(e.Entity)
	case events.GroupDroppedType:
		return f.dropped(e)
	case events.BatchReadyType:
		if e.Entity == f.feed {
			return f.batchReady(e)
		}
	case events.BatchConsumedType:
		if e.Entity == f.feed {
			return f.consumed(e)
		}
	}
	return nil
}

func (f *Fold) opened() {
	f.since.began = f.run.Opened
	for i, other := range f.run.Config.Feeds {
		if f.feed == "" && i == 0 {
			f.feed = other.Name
		}
		if other.Name == f.feed {
			f.export = other.Export()
		}
	}
}

// completed lets go of the members that no batch can hold, and of a group that has no others. In an
// evaluation no group comes into a batch.
func (f *Fold) completed(id string) {
	g, _ := f.run.FindGroup(id)
	var without []string
	for _, member := range g.Members {
		if r, _ := f.run.Find(member); !r.Compared() {
			without = append(without, member)
		}
	}
	if len(without) == len(g.Members) || len(f.run.Config.Feeds) == 0 {
		f.run.ForgetGroup(id)
		return
	}
	f.run.Forget(without...)
}

func (f *Fold) dropped(e events.Event) error {
	dropped, err := events.Data[events.GroupDropped](e)
	if dropped.Feed != f.feed {
		return err
	}
	if dropped.Reason == events.DropStale {
		f.since.stale++
	} else {
		f.since.filtered++
	}
	f.run.ForgetGroup(e.Entity)
	return err
}

func (f *Fold) batchReady(e events.Event) error {
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	f.ready = append(f.ready, batch{ready, f.figuresOf(ready)})
	for _, id := range ready.Groups {
		f.run.ForgetGroup(id)
	}
	if f.export { // nobody needs to take it
		return f.take(e, ready.Step, nil)
	}
	return nil
}

// figuresOf are the figures of a batch. Those over its rollouts are absent where a rollout is not
// known.
func (f *Fold) figuresOf(ready events.BatchReady) map[string]float64 {
	figures := map[string]float64{
		rewardMean: ready.RewardMean, batchGroups: float64(len(ready.Groups)), batchSamples: float64(ready.Samples),
		batchMasked: float64(len(ready.Masked)),
		batchTokens: float64(ready.Tokens), batchSampled: float64(ready.Sampled),
		stalenessMax: float64(ready.Staleness),
	}
	var rewards, turns, sampled, ages []float64
	for _, id := range ready.Groups {
		g, known := f.run.FindGroup(id)
		if !known {
			return figures
		}
		for _, member := range g.Members {
			r, known := f.run.Find(member)
			if known && r.Compared() {
				rewards = append(rewards, r.Member.Reward)
			}
			if known && r.Scored {
				turns, sampled = append(turns, float64(r.Turns)), append(sampled, float64(r.Sampled))
			}
		}
	}
	for _, id := range ready.Rollouts {
		r, known := f.run.Find(id)
		if !known {
			return figures
		}
		ages = append(ages, float64(ready.MinVersion+ready.Staleness-r.PolicyVersion))
	}
	figures[rewardStd] = deviation(rewards)
	figures[turnsMean], figures[sampledMean], figures[stalenessMean] = mean(turns), mean(sampled), mean(ages)
	return figures
}

// consumed folds a statement of the trainer. A step that is stated again, after a rewind, has its
// row already.
func (f *Fold) consumed(e events.Event) error {
	consumed, err := events.Data[events.BatchConsumed](e)
	if err != nil {
		return err
	}
	if consumed.LogprobGap != nil {
		f.gaps = true
	}
	if w := f.waiting; w != nil && w.Step == consumed.Step && consumed.LogprobGap != nil {
		w.gap(consumed.LogprobGap)
		return f.complete()
	}
	return f.take(e, consumed.Step, consumed.LogprobGap)
}

// take makes the rows of all steps through one, which a trainer may have taken without a word on
// each.
func (f *Fold) take(e events.Event, step int64, gap *events.LogprobGap) error {
	for len(f.ready) > 0 && f.ready[0].Step <= step {
		if err := f.complete(); err != nil {
			return err
		}
		b := f.ready[0]
		f.ready = f.ready[1:]
		f.waiting = &Row{Step: b.Step, Time: e.Time, Sequence: e.Seq, Figures: b.figures}
		f.close(e.Time)
		if b.Step == step && gap != nil {
			f.waiting.gap(gap)
		}
		// A trainer that states gaps may state this one later; until the next step the row waits
		// for it.
		if b.Step < step || gap != nil || !f.gaps {
			if err := f.complete(); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends the time of a step.
func (f *Fold) close(now time.Time) {
	n, row := f.run.Totals.Minus(f.since.before), f.waiting.Figures
	row[policyVersion] = float64(f.run.PolicyVersion)
	row[started], row[scored] = float64(n.Started), float64(n.Scored)
	row[failed], row[forfeited] = float64(n.Failed), float64(n.Forfeited)
	row[groupsCompleted] = float64(n.Completed)
	row[droppedStale], row[droppedFiltered] = float64(f.since.stale), float64(f.since.filtered)
	flying := 0
	for r := range f.run.All() {
		if !r.Scored {
			flying++
		}
	}
	row[inFlight] = float64(flying)
	if seconds := now.Sub(f.since.began).Seconds(); seconds > 0 { // a clock may go back
		row[stepSeconds] = seconds
		row[rolloutsPerSecond], row[tokensPerSecond] = float64(n.Scored)/seconds, float64(n.Sampled)/seconds
	}
	f.since = window{began: now, before: f.run.Totals}
}

func (r *Row) gap(gap *events.LogprobGap) {
	r.Figures[gapMeanAbs], r.Figures[gapMaxAbs], r.Figures[gapKL], r.Figures[gapTokens] = gap.MeanAbs, gap.MaxAbs,
		gap.KL, float64(gap.Tokens)
}

// complete gives the row that waits away.
func (f *Fold) complete() error {
	row := f.waiting
	if row == nil {
		return nil
	}
	f.waiting = nil
	return f.emit(*row)
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// deviation is the standard deviation of the values themselves, not an estimate for others.
func deviation(values []float64) float64 {
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += float64((v-m)*(v-m)) / float64(max(1, len(values)))
	}
	return math.Sqrt(squares)
}
