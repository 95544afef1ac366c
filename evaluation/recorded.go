package evaluation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/ledger"
	"github.com/rondo-rl/rondo/storage"
)

// Recorded is a run as an evaluation reads it: the books, and the cost of each rollout.
type Recorded struct {
	*ledger.Ledger
	costs map[string]*cost
	asked map[string]string // the run's task that each query works on
	acts  *behaviour.Tracker
	// Paused is why the run is paused; "" while it is not.
	Paused string
	// Opened is when the run was opened.
	Opened time.Time
	closed string
}

// cost is what the books do not keep of a rollout.
type cost struct {
	began           time.Time
	seconds         float64 // until its outcome
	calls, failures int
	version         int64
	trajectory      storage.Ref
	did             *behaviour.Rollout // once it is over
	sampled         []int64            // the versions that are known to have sampled
}

// NewRecorded is a run of which nothing was read yet.
func NewRecorded(run string) *Recorded {
	return &Recorded{Ledger: ledger.New(run), costs: map[string]*cost{}, asked: map[string]string{}, acts: behaviour.NewTracker()}
}

// ReadRecorded folds a recorded run.
func ReadRecorded(ctx context.Context, log *eventlog.Log, run string) (*Recorded, error) {
	f := NewRecorded(run)
	for e, err := range log.All(ctx, run, 1) {
		if err == nil {
			err = f.Take(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// ReadThrough folds a recorded run as it was when it had a sequence.
func ReadThrough(ctx context.Context, log *eventlog.Log, run string, through uint64) (*Recorded, error) {
	f := NewRecorded(run)
	for e, err := range log.All(ctx, run, 1) {
		if err == nil && e.Seq > through {
			break
		}
		if err == nil {
			err = f.Take(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Take folds the next event.
func (f *Recorded) Take(e events.Event) error {
	if err := f.Apply(e); err != nil {
		return err
	}
	over, err := f.acts.Apply(e)
	if err != nil {
		return err
	}
	if e.Type.Kind() == events.RunOpenedType.Kind() {
		return f.takeRun(e)
	}
	if e.Type == events.QuerySubmittedType {
		query, err := events.Data[events.QuerySubmitted](e)
		f.asked[e.Entity] = query.Task
		return err
	}
	if e.Type == events.RolloutStartedType && f.costs[e.Entity] == nil {
		f.costs[e.Entity] = &cost{began: e.Time}
	}
	c := f.costs[e.Entity]
	if c == nil {
		return nil
	}
	switch e.Type {
	case events.TurnSampledType:
		turn, err := events.Data[events.TurnSampled](e)
		for _, version := range []int64{turn.PolicyVersion, turn.LatestVersion()} {
			if version >= 0 && !slices.Contains(c.sampled, version) {
				c.sampled = append(c.sampled, version)
			}
		}
		return err
	case events.ToolsCompletedType:
		tools, err := events.Data[events.ToolsCompleted](e)
		c.calls += len(tools.Results)
		for _, r := range tools.Results {
			if r.Error {
				c.failures++
			}
		}
		return err
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		c.version, c.trajectory = finished.MaxVersion, finished.Trajectory
		return err
	case events.RolloutScoredType, events.RolloutFailedType:
		c.seconds, c.did = max(0, e.Time.Sub(c.began).Seconds()), over
	}
	return nil
}

func (f *Recorded) takeRun(e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		f.Opened = e.Time
	case events.RunPausedType:
		paused, err := events.Data[events.RunPaused](e)
		f.Paused = cmp.Or(paused.Reason, "without a reason")
		return err
	case events.RunResumedType:
		f.Paused = ""
	case events.RunClosedType:
		closed, err := events.Data[events.RunClosed](e)
		f.closed = cmp.Or(closed.Reason, "without a reason")
		return err
	}
	return nil
}

// Rested reports whether nothing of the run is under way any more.
func (f *Recorded) Rested() bool { return f.Closed && f.Balance(f.FirstFeed()).InFlight == 0 }

// Missing says which attempts an evaluation lacks that ended before all tasks were tried, "" for a whole one.
func (f *Recorded) Missing() string {
	tried := map[string]int{}
	for r := range f.All() {
		if !events.External(r.ID) && r.Class != events.ClassCancelled {
			tried[r.Task]++
		}
	}
	lacking := 0
	for _, t := range f.Config.Tasks {
		lacking += max(0, f.Config.Epochs*f.Config.GroupSize-tried[t.Name])
	}
	if lacking == 0 {
		return ""
	}
	return fmt.Sprintf("the run was closed before %d of %d attempts were made: %s", lacking, f.Config.Epochs*f.Config.GroupSize*len(f.Config.Tasks), f.closed)
}

// Attempts are the rollouts that have an outcome; notes say which rollouts were left out.
func (f *Recorded) Attempts() (list []Attempt, notes []string) {
	invalidated, inFlight := 0, 0
	for r := range f.All() {
		switch {
		case r.Invalidated:
			invalidated++
			continue
		case !r.Scored && !r.Failed:
			inFlight++
			continue
		}
		c := f.costs[r.ID]
		a := Attempt{
			Rollout: r.ID, Task: r.Task, Failed: r.Failed, Turns: r.Turns, Tokens: r.Tokens, Sampled: r.Sampled,
			ToolCalls: c.calls, ToolFailures: c.failures, Seconds: c.seconds, StopReason: r.StopReason,
			Version: r.PolicyVersion, Trajectory: c.trajectory.Key, Behaviour: c.did,
		}
		switch {
		case r.Scored:
			a.Reward, a.Forfeit = r.Reward, r.Forfeit
		case r.Failed:
			a.Cause = r.FailedStage + ": " + r.Class
		}
		if r.Finished {
			a.Version = c.version
		}
		list = append(list, a)
	}
	if invalidated > 0 {
		notes = append(notes, fmt.Sprintf("%d invalidated rollouts are left out", invalidated))
	}
	if inFlight > 0 {
		notes = append(notes, fmt.Sprintf("%d rollouts have no outcome yet and are left out", inFlight))
	}
	return list, notes
}

// Trajectories are the trajectory files by rollout.
func (f *Recorded) Trajectories() map[string]storage.Ref {
	files := map[string]storage.Ref{}
	for id, c := range f.costs {
		files[id] = c.trajectory
	}
	return files
}
