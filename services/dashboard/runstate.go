package dashboard

import (
	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/ledger"
)

// runState is what is folded of a run: its books, how its agents behave, and its curves over time.
type runState struct {
	books  *ledger.Ledger
	stands *standing
	acts   *behaviour.Fold
	flows  *flows
	state  string // of the run: open, paused or closed
	reason string
	rows   map[int][]behaviour.Row // of acts, by how many at most; nil when something has happened since
}

// behaviour gives at most so many rows of how agents behave. Merging those of many versions takes milliseconds, so they are kept until a rollout begins or ends.
func (s *runState) behaviour(most int) []behaviour.Row {
	if s.rows == nil {
		s.rows = map[int][]behaviour.Row{}
	}
	if s.rows[most] == nil {
		s.rows[most] = s.acts.RowsOf(most)
	}
	return s.rows[most]
}

func newRunState(run string) *runState {
	books := ledger.New(run)
	return &runState{books: books, stands: newStanding(books), acts: behaviour.New(), flows: newFlows(), state: "open"}
}

// Size is how many rollouts and groups are folded.
func (s *runState) Size() int { return s.books.Size() }

// apply folds the next event of the run's stream.
func (s *runState) apply(e events.Event) error {
	consumed := s.stands.before(e)
	if err := s.books.Apply(e); err != nil {
		return err
	}
	if err := s.stands.count(e, consumed); err != nil {
		return err
	}
	if err := s.acts.Apply(e); err != nil {
		return err
	}
	switch e.Type {
	case events.RunOpenedType, events.RolloutStartedType, events.RolloutScoredType, events.RolloutFailedType, events.GroupCompletedType:
		s.rows = nil
	}
	if err := s.flows.count(e); err != nil {
		return err
	}
	if e.Type.Kind() == events.RolloutStartedType.Kind() {
		s.moved(e.Entity)
		return nil
	}
	return s.ran(e)
}

// moved notes the stage that has a rollout now. One that its group went on without is in no backlog.
func (s *runState) moved(rollout string) {
	now, ok := s.books.Find(rollout)
	group, _ := s.books.FindGroup(now.Group)
	switch {
	case !ok || group.Completed:
	case now.Failed:
		s.flows.place(rollout, "")
	default:
		s.flows.place(rollout, now.Stage)
	}
}

// ran folds what is about groups, batches and the run itself.
func (s *runState) ran(e events.Event) error {
	switch e.Type {
	case events.RunPausedType:
		paused, err := events.Data[events.RunPaused](e)
		s.state, s.reason = "paused", paused.Reason
		return err
	case events.RunResumedType:
		s.state, s.reason = "open", ""
	case events.RunClosedType:
		closed, err := events.Data[events.RunClosed](e)
		s.state, s.reason = "closed", closed.Reason
		return err
	case events.GroupCompletedType:
		completed, err := events.Data[events.GroupCompleted](e)
		for _, m := range completed.Members {
			stage := events.StageFeed
			if m.Failed || s.books.FirstFeed() == ledger.NoFeed {
				stage = ""
			}
			s.flows.place(m.Rollout, stage)
		}
		return err
	case events.BatchReadyType:
		ready, err := events.Data[events.BatchReady](e)
		if e.Entity == s.books.FirstFeed() {
			for _, g := range ready.Groups {
				s.left(g)
			}
		}
		return err
	case events.GroupDroppedType:
		dropped, err := events.Data[events.GroupDropped](e)
		if dropped.Feed == s.books.FirstFeed() {
			s.left(e.Entity)
		}
		return err
	}
	return nil
}

// left takes a group's rollouts from the first feed's backlog.
func (s *runState) left(group string) {
	g, _ := s.books.FindGroup(group)
	for _, rollout := range g.Members {
		s.flows.place(rollout, "")
	}
}
