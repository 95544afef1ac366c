package books

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// Rollouts folds what happens to a run and to its rollouts and groups, whatever the feed. It holds
// every rollout and group that its reader does not forget, so a reader that follows a long run may
// hold those alone that are under way.
type Rollouts struct {
	Config runfile.RunConfig
	Opened time.Time
	// State is open, paused or closed, Reason why.
	State, Reason string
	Closed        bool
	Groups        int64
	// PolicyVersion is the last one that the run was told of, or the one that it pins.
	PolicyVersion int64
	// Continues is what the run has taken along of another one.
	Continues *events.Continued
	// Totals counts what has happened, forgotten rollouts too.
	Totals Totals
	// Detailed says of which rollouts there are details; nil is of none.
	Detailed func(rollout string) bool

	rollouts   map[string]*Rollout
	order      []*Rollout // in the order of their starts; one without an ID is forgotten
	groups     map[string]*Group
	groupOrder []*Group // in the order of their openings; one without an ID is forgotten
	groupHoles int      // such groups
}

// Totals are counts since a run was opened.
type Totals struct {
	Started, Scored, Failed, Forfeited int
	Sampled                            int64 // tokens of finished rollouts
	Completed                          int   // groups
	// Restarted are the agents that ended behind a restart, and Whole those of them that came to
	// all turns that were recorded before.
	Restarted, Whole int
}

// Minus is what has happened since other counts.
func (t Totals) Minus(o Totals) Totals {
	return Totals{
		t.Started - o.Started, t.Scored - o.Scored, t.Failed - o.Failed, t.Forfeited - o.Forfeited,
		t.Sampled - o.Sampled, t.Completed - o.Completed, t.Restarted - o.Restarted, t.Whole - o.Whole,
	}
}

// Rollout is what is known of one rollout, whatever the feed.
type Rollout struct {
	ID, Group, Task string
	PolicyVersion   int64 // at dispatch
	// Seq is the sequence of the verdict or the failure, until then of the start.
	Seq uint64
	// Began is when it was started, Ended when it had its outcome; zero before.
	Began, Ended time.Time
	// Turns, and of a finished rollout its tokens, those of them that were sampled, and why it
	// stopped.
	Turns, Tokens, Sampled int
	Summaries              int // turns in which it summed its work up
	StopReason             string
	Reward                 float64
	Forfeit                string // class of events.Forfeit, "" for none
	TaskDigest             string // of the task as it was scored
	FailedStage, Class     string
	// Member is what its complete group made of it; of a group that is not complete it is empty.
	Member events.Member
	Detail *Detail // nil unless the reader asks for it
	events.Progress
}

// Advantage is what the rollout's group gave to it, 0 until that is complete.
func (r Rollout) Advantage() float64 { return r.Member.Advantage }

// Compared reports whether the rollout's complete group compares it: one that failed or was
// invalidated before is not.
func (r Rollout) Compared() bool { return r.Member.Rollout != "" && !r.Member.Failed }

// Detail is what few readers need of a rollout.
type Detail struct {
	// Versions of the policy that are known to have sampled. MaxVersion is the last one, as the end
	// of the episode states it.
	Versions    []int64
	MaxVersion  int64
	Trajectory  storage.Ref
	Components  map[string]float64 // of the reward
	Retried     []events.RolloutRetried
	Invalidated string // why
}

// Group is what is known of one group, whatever the feed.
type Group struct {
	ID, Task      string
	Size          int
	PolicyVersion int64 // in the run when the group was opened
	Opened        time.Time
	// Completed: all its rollouts have an outcome. Mean is over the rewards of those that are
	// scored then.
	Completed bool
	Seq       uint64 // of its completion
	Estimator string
	Mean      float64
	Members   []string // rollouts, in the order of their starts

	opened bool
}

// NewRollouts makes an empty fold.
func NewRollouts() Rollouts {
	return Rollouts{State: "open", rollouts: map[string]*Rollout{}, groups: map[string]*Group{}}
}

// Apply folds the next event of the run's stream.
func (s *Rollouts) Apply(e events.Event) (err error) {
	switch e.Type {
	case events.RunOpenedType:
		var opened events.RunOpened
		opened, err = events.Data[events.RunOpened](e)
		s.Config, s.Opened = opened.Config, e.Time
		s.Continues, s.PolicyVersion = opened.Continues, opened.BeginsAt()
		if pinned := s.Config.PolicyVersion; pinned != nil {
			s.PolicyVersion = *pinned
		}
	case events.RunPausedType:
		var paused events.RunPaused
		paused, err = events.Data[events.RunPaused](e)
		s.State, s.Reason = "paused", paused.Reason
	case events.RunResumedType:
		s.State, s.Reason = "open", ""
	case events.RunClosedType:
		var closed events.RunClosed
		closed, err = events.Data[events.RunClosed](e)
		s.State, s.Reason, s.Closed = "closed", closed.Reason, true
	case events.WeightsPublishedType:
		var published events.WeightsPublished
		published, err = events.Data[events.WeightsPublished](e)
		if s.Config.PolicyVersion == nil {
			s.PolicyVersion = max(s.PolicyVersion, published.Version)
		}
	case events.GroupOpenedType:
		err = s.opened(e)
	case events.GroupCompletedType:
		err = s.completed(e)
	case events.RolloutStartedType:
		err = s.started(e)
	default:
		if e.Type.Kind() != events.RolloutStartedType.Kind() {
			break
		}
		r := s.rollouts[e.Entity]
		if r == nil { // one that was never started has no entry, and its damaged events are told all the same
			return new(Rollouts).happened(new(Rollout), e)
		}
		r.Progress.Apply(e)
		if err = s.happened(r, e); err == nil && r.Detail != nil {
			err = r.Detail.apply(e)
		}
	}
	return err
}

func (s *Rollouts) opened(e events.Event) error {
	opened, err := events.Data[events.GroupOpened](e)
	s.Groups++
	if g := s.group(e.Entity); !g.opened {
		g.Task, g.Size, g.PolicyVersion, g.Opened, g.opened = opened.Task, opened.Size,
			opened.PolicyVersion, e.Time, true
		s.groupOrder = append(s.groupOrder, g)
	}
	return err
}

// group finds a group, or takes it up.
func (s *Rollouts) group(id string) *Group {
	if s.groups[id] == nil {
		s.groups[id] = &Group{ID: id}
	}
	return s.groups[id]
}

func (s *Rollouts) completed(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	s.Totals.Completed++
	if g := s.groups[e.Entity]; g != nil {
		g.Completed, g.Seq, g.Estimator, g.Mean = true, e.Seq, completed.Estimator, completed.Mean
	}
	for _, m := range completed.Members {
		if r := s.rollouts[m.Rollout]; r != nil {
			r.Member, r.Stage = m, events.StageFeed
		}
	}
	return err
}

func (s *Rollouts) started(e events.Event) error {
	if s.rollouts[e.Entity] != nil {
		return nil // a start that stands twice starts nothing again
	}
	started, err := events.Data[events.RolloutStarted](e)
	r := &Rollout{
		ID: e.Entity, Group: events.GroupOf(e.Entity), Task: started.Task, PolicyVersion: started.PolicyVersion,
		Seq: e.Seq, Began: e.Time,
	}
	if s.Detailed != nil && s.Detailed(e.Entity) {
		r.Detail = &Detail{}
	}
	r.Progress.Apply(e)
	s.Totals.Started++
	s.rollouts[e.Entity] = r
	s.order = append(s.order, r)
	g := s.group(r.Group)
	g.Members = append(g.Members, e.Entity)
	return err
}

// happened folds an event of a rollout behind its start.
func (s *Rollouts) happened(r *Rollout, e events.Event) error {
	switch e.Type {
	case events.RolloutCopiedType:
		copied, err := events.Data[events.RolloutCopied](e)
		r.Turns = len(copied.Turns)
		return err
	case events.TurnSampledType:
		r.Turns++
		if e.Route == runfile.RouteSummary {
			r.Summaries++
		}
	case events.WorkspaceAnsweredType:
		answered, err := events.Data[events.WorkspaceAnswered](e)
		if ended := answered.Agent; ended != nil && ended.Recalled+len(ended.Left) > 0 {
			s.Totals.Restarted++
			if len(ended.Left) == 0 {
				s.Totals.Whole++
			}
		}
		return err
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		r.Turns, r.Tokens, r.Sampled, r.StopReason = finished.Turns, finished.Tokens,
			finished.AllSampled(), finished.StopReason
		s.Totals.Sampled += int64(r.Sampled)
		return err
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		r.Reward, r.TaskDigest, r.Seq, r.Ended = scored.Reward, scored.TaskDigest, e.Seq, e.Time
		s.Totals.Scored++
		if scored.Forfeit != nil {
			r.Forfeit = scored.Forfeit.Class
			s.Totals.Forfeited++
		}
		return err
	case events.RolloutFailedType:
		failed, err := events.Data[events.RolloutFailed](e)
		r.FailedStage, r.Class, r.Seq, r.Ended = failed.Stage, failed.Class, e.Seq, e.Time
		s.Totals.Failed++
		return err
	}
	return nil
}

func (d *Detail) apply(e events.Event) error {
	switch e.Type {
	case events.TurnSampledType:
		turn, err := events.Data[events.TurnSampled](e)
		for _, version := range []int64{turn.PolicyVersion, turn.LatestVersion()} {
			if version >= 0 && !slices.Contains(d.Versions, version) {
				d.Versions = append(d.Versions, version)
			}
		}
		return err
	case events.RolloutFinishedType:
		finished, err := events.Data[events.RolloutFinished](e)
		d.MaxVersion, d.Trajectory = finished.MaxVersion, finished.Trajectory
		return err
	case events.RolloutScoredType:
		scored, err := events.Data[events.RolloutScored](e)
		d.Components = scored.Components
		return err
	case events.RolloutRetriedType:
		retried, err := events.Data[events.RolloutRetried](e)
		d.Retried = append(d.Retried, retried)
		return err
	case events.RolloutInvalidatedType:
		invalidated, err := events.Data[events.RolloutInvalidated](e)
		d.Invalidated = invalidated.Reason
		return err
	}
	return nil
}
