package evaluation

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// Recorded is a run as an evaluation reads it: the books with details of each rollout, and how its
// agent behaved.
type Recorded struct {
	*books.Run
	asked map[string]string             // the run's task that each query works on
	did   map[string]*behaviour.Rollout // what each rollout did that is over
	acts  *behaviour.Tracker
}

// NewRecorded is a run of which nothing was read yet.
func NewRecorded(run string) *Recorded {
	f := &Recorded{Run: books.New(run), asked: map[string]string{}, did: map[string]*behaviour.Rollout{}}
	f.acts = behaviour.NewTracker(&f.Rollouts)
	f.Detailed = func(string) bool { return true }
	return f
}

// ReadRecorded folds a recorded run.
func ReadRecorded(ctx context.Context, log eventlog.Reader, run string) (*Recorded, error) {
	return ReadThrough(ctx, log, run, math.MaxUint64)
}

// ReadThrough folds a recorded run as it was when it had a sequence.
func ReadThrough(ctx context.Context, log eventlog.Reader, run string, through uint64) (*Recorded, error) {
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
	if over != nil {
		f.did[e.Entity] = over
	}
	if e.Type == events.QuerySubmittedType && err == nil {
		var query events.QuerySubmitted
		query, err = events.Data[events.QuerySubmitted](e)
		f.asked[e.Entity] = query.Task
	}
	return err
}

// Paused is why the run is paused, "" while it is not.
func (f *Recorded) Paused() string {
	if f.State != "paused" {
		return ""
	}
	return cmp.Or(f.Reason, "without a reason")
}

// Settled reports whether nothing of the run is under way any more.
func (f *Recorded) Settled() bool { return f.Closed && f.Balance(f.FirstFeed()).InFlight == 0 }

// Missing says which attempts an evaluation lacks that ended before all tasks were tried, "" for a
// whole one.
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
	why := ""
	if f.Closed {
		why = cmp.Or(f.Reason, "without a reason")
	}
	all := f.Config.Epochs * f.Config.GroupSize * len(f.Config.Tasks)
	return fmt.Sprintf("the run was closed before %d of %d attempts were made: %s", lacking, all, why)
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
		did := f.did[r.ID]
		a := Attempt{
			Rollout: r.ID, Task: r.Task, Failed: r.Failed, Turns: r.Turns, Tokens: r.Tokens, Sampled: r.Sampled,
			ToolCalls: int(did.Answered), ToolFailures: int(did.FailedCalls), StopReason: r.StopReason,
			Seconds: max(0, r.Ended.Sub(r.Began).Seconds()), Version: r.PolicyVersion,
			Trajectory: r.Detail.Trajectory.Key, Behaviour: did,
		}
		switch {
		case r.Scored:
			a.Reward, a.Forfeit = r.Reward, r.Forfeit
		case r.Failed:
			a.Cause = r.FailedStage + ": " + r.Class
		}
		if r.Finished {
			a.Version = r.Detail.MaxVersion
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
	for r := range f.All() {
		files[r.ID] = r.Detail.Trajectory
	}
	return files
}
