// Package steps makes a row of figures for each training step of a feed, for tables and for trackers such as TensorBoard. It is a fold of the run's
// events: the same log gives the same rows, in the order of the steps, each step once. Its memory grows with the rollouts that no batch has yet.
package steps

import (
	"math"
	"time"

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

	pinned   bool // the run samples one version, whatever is published
	feedless bool // it is an evaluation, of which no group comes into a batch
	closed   bool

	rollouts map[string]*rollout
	groups   map[string]*group
	ready    []batch // batches that the trainer has not taken
	version  int64   // of the policy
	gaps     bool    // the trainer has stated a gap
	waiting  *Row    // for its gap
	since    window
}

// rollout is one that no batch or drop of the feed has resolved.
type rollout struct {
	version        int64 // at dispatch
	began          time.Time
	turns, sampled int
	events.Progress
}

// group is one whose rollouts are still of interest.
type group struct {
	members []string
	rewards []float64 // of its scored members, once it is complete
}

// batch is a batch.ready with what its groups were.
type batch struct {
	events.BatchReady
	figures map[string]float64
}

// window counts what happened since the step before.
type window struct {
	began                              time.Time
	started, scored, failed, forfeited int
	completed, stale, filtered         int
	sampled                            int64
}

// New makes an empty fold for a feed, the run's first one for the name ""; emit is given each row when nothing can change it any more.
func New(feed string, emit func(Row) error) *Fold {
	return &Fold{feed: feed, emit: emit, rollouts: map[string]*rollout{}, groups: map[string]*group{}}
}

// Ended reports whether no row can follow: the run is closed, no rollout of it can come into a batch, and the trainer has taken all batches.
func (f *Fold) Ended() bool { return f.closed && len(f.rollouts) == 0 && len(f.ready) == 0 }

// Apply folds the next event of the run's stream.
func (f *Fold) Apply(e events.Event) error {
	err := f.happened(e)
	if err == nil && f.Ended() {
		err = f.complete()
	}
	return err
}

func (f *Fold) happened(e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		return f.opened(e)
	case events.RunClosedType:
		f.closed = true
	case events.GroupCompletedType:
		return f.completed(e)
	case events.GroupDroppedType:
		return f.dropped(e)
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		if !f.pinned {
			f.version = max(f.version, published.Version)
		}
		return err
	case events.BatchReadyType:
		if e.Entity == f.feed {
			return f.batchReady(e)
		}
	case events.BatchConsumedType:
		if e.Entity == f.feed {
			return f.consumed(e)
		}
	default:
		if e.Type.Kind() == events.RolloutStartedType.Kind() {
			return f.ran(e)
		}
	}
	return nil
}

func (f *Fold) opened(e events.Event) error {
	opened, err := events.Data[events.RunOpened](e)
	f.pinned, f.since.began = opened.Config.PolicyVersion != nil, e.Time
	if f.feedless = len(opened.Config.Feeds) == 0; f.feed == "" && !f.feedless {
		f.feed = opened.Config.Feeds[0].Name
	}
	for _, other := range opened.Config.Feeds {
		if other.Name == f.feed {
			f.export = other.Export()
		}
	}
	f.version = opened.BeginsAt()
	if pinned := opened.Config.PolicyVersion; pinned != nil {
		f.version = *pinned
	}
	return err
}

// ran folds what happened to a rollout.
func (f *Fold) ran(e events.Event) error {
	if e.Type == events.RolloutStartedType {
		begun, err := events.Data[events.RolloutStarted](e)
		if f.rollouts[e.Entity] != nil {
			return err // a start that stands twice starts nothing again
		}
		f.since.started++
		f.rollouts[e.Entity] = &rollout{version: begun.PolicyVersion, began: e.Time}
		f.rollouts[e.Entity].Apply(e)
		g := f.group(events.GroupOf(e.Entity))
		g.members = append(g.members, e.Entity)
		return err
	}
	r := f.rollouts[e.Entity]
	if r == nil {
		return nil
	}
	r.Apply(e)
	switch e.Type {
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		r.turns, r.sampled = finished.Turns, finished.Sampled
		f.since.sampled += int64(finished.Sampled)
		return err
	case events.RolloutScoredType:
		verdict, err := events.Data[events.RolloutScored](e)
		f.since.scored++
		if verdict.Forfeit != nil {
			f.since.forfeited++
		}
		return err
	case events.RolloutFailedType:
		f.since.failed++
		delete(f.rollouts, e.Entity)
	}
	return nil
}

func (f *Fold) group(id string) *group {
	if f.groups[id] == nil {
		f.groups[id] = &group{}
	}
	return f.groups[id]
}

func (f *Fold) completed(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	f.since.completed++
	g := f.groups[e.Entity]
	if g == nil {
		return err
	}
	for _, m := range completed.Members {
		if m.Failed {
			delete(f.rollouts, m.Rollout)
			continue
		}
		g.rewards = append(g.rewards, m.Reward)
		if r := f.rollouts[m.Rollout]; r != nil {
			r.Stage = events.StageFeed
		}
	}
	if len(g.rewards) == 0 || f.feedless {
		f.forget(e.Entity)
	}
	return err
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
	f.forget(e.Entity)
	return err
}

// forget lets go of a group that is in a batch, or in none for ever.
func (f *Fold) forget(id string) {
	if g := f.groups[id]; g != nil {
		for _, member := range g.members {
			delete(f.rollouts, member)
		}
	}
	delete(f.groups, id)
}

func (f *Fold) batchReady(e events.Event) error {
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	f.ready = append(f.ready, batch{ready, f.figuresOf(ready)})
	for _, id := range ready.Groups {
		f.forget(id)
	}
	if f.export { // nobody needs to take it
		return f.taken(e, ready.Step, nil)
	}
	return nil
}

// figuresOf are the figures of a batch. Those over its rollouts are absent where a rollout is not known.
func (f *Fold) figuresOf(ready events.BatchReady) map[string]float64 {
	figures := map[string]float64{
		rewardMean: ready.RewardMean, batchGroups: float64(len(ready.Groups)), batchSamples: float64(ready.Samples), batchMasked: float64(len(ready.Masked)),
		batchTokens: float64(ready.Tokens), batchSampled: float64(ready.Sampled), stalenessMax: float64(ready.Staleness),
	}
	var rewards, turns, sampled, ages []float64
	for _, id := range ready.Groups {
		g := f.groups[id]
		if g == nil {
			return figures
		}
		rewards = append(rewards, g.rewards...)
		for _, member := range g.members {
			if r := f.rollouts[member]; r != nil && r.Scored {
				turns, sampled = append(turns, float64(r.turns)), append(sampled, float64(r.sampled))
			}
		}
	}
	for _, id := range ready.Rollouts {
		r := f.rollouts[id]
		if r == nil {
			return figures
		}
		ages = append(ages, float64(ready.MinVersion+ready.Staleness-r.version))
	}
	figures[rewardStd] = deviation(rewards)
	figures[turnsMean], figures[sampledMean], figures[stalenessMean] = mean(turns), mean(sampled), mean(ages)
	return figures
}

// consumed folds a statement of the trainer. A step that is stated again, after a rewind, has its row already.
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
	return f.taken(e, consumed.Step, consumed.LogprobGap)
}

// taken makes the rows of all steps through one, which a trainer may have taken without a word on each.
func (f *Fold) taken(e events.Event, step int64, gap *events.LogprobGap) error {
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
		// A trainer that states gaps may state this one later; until the next step the row waits for it.
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
	w, row := f.since, f.waiting.Figures
	row[policyVersion] = float64(f.version)
	row[started], row[scored], row[failed], row[forfeited] = float64(w.started), float64(w.scored), float64(w.failed), float64(w.forfeited)
	row[groupsCompleted], row[droppedStale], row[droppedFiltered] = float64(w.completed), float64(w.stale), float64(w.filtered)
	flying := 0
	for _, r := range f.rollouts {
		if !r.Scored {
			flying++
		}
	}
	row[inFlight] = float64(flying)
	if seconds := now.Sub(w.began).Seconds(); seconds > 0 { // a clock may go back
		row[stepSeconds] = seconds
		row[rolloutsPerSecond], row[tokensPerSecond] = float64(w.scored)/seconds, float64(w.sampled)/seconds
	}
	f.since = window{began: now}
}

func (r *Row) gap(gap *events.LogprobGap) {
	r.Figures[gapMeanAbs], r.Figures[gapMaxAbs], r.Figures[gapKL], r.Figures[gapTokens] = gap.MeanAbs, gap.MaxAbs, gap.KL, float64(gap.Tokens)
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
