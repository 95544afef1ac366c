package dashboard

import (
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
	"github.com/rondo-rl/rondo/events"
)

// runState is what is folded of a run: its books, how its agents behave, and its curves over time.
type runState struct {
	books   *books.Run
	stands  *standing
	acts    *behaviour.Fold
	flows   *flows
	marks   map[string]mark         // of rollouts, by persons
	failing map[string]int64        // rollouts of which calls of tools have failed, and how many
	spent   []int64                 // the tokens that were sampled until each batch of the first feed
	rows    map[int][]behaviour.Row // of acts, by how many at most; nil when something has happened since
}

// behaviour gives at most so many rows of how agents behave. Merging those of many versions takes
// milliseconds, so they are kept until a rollout begins or ends.
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
	books := books.New(run)
	return &runState{books: books, stands: newStanding(books), acts: behaviour.New(&books.Rollouts), flows: newFlows(),
		failing: map[string]int64{}, marks: map[string]mark{}}
}

// Size is how many rollouts and groups are folded.
func (s *runState) Size() int { return s.books.Size() }

// apply folds the next event of the run's stream.
func (s *runState) apply(e events.Event) error {
	consumed, before := s.stands.consumption(e), s.books.Totals
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
	case events.MarkRecordedType:
		return s.mark(e)
	case events.ToolsCompletedType:
		if n := s.acts.FailedCalls(e.Entity); n > 0 {
			s.failing[e.Entity] = n
		}
	case events.RunOpenedType, events.RolloutStartedType, events.RolloutScoredType, events.RolloutFailedType,
		events.GroupCompletedType:
		s.rows = nil
	}
	s.flows.count(e.Time, s.books.Totals.Minus(before))
	if e.Type == events.RolloutScoredType {
		scored, err := events.Data[events.RolloutScored](e)
		if err != nil {
			return err
		}
		s.flows.score(e.Time, scored.Components)
	}
	switch {
	case e.Type.Kind() == events.RolloutStartedType.Kind():
		s.noteStage(e.Entity)
	case e.Type == events.GroupCompletedType:
		s.completed(e.Entity)
	case e.Type == events.BatchReadyType && e.Entity == s.books.FirstFeed():
		batches := s.books.Batches(e.Entity)
		s.spent = append(s.spent, s.books.Totals.Sampled)
		for _, g := range batches[len(batches)-1].Groups {
			s.leaveBacklog(g)
		}
	case e.Type == events.GroupDroppedType:
		dropped, err := events.Data[events.GroupDropped](e)
		if err != nil || dropped.Feed != s.books.FirstFeed() {
			return err
		}
		s.leaveBacklog(e.Entity)
	}
	return nil
}

// noteStage notes the stage that has a rollout now. One that its group went on
// without is in no backlog.
func (s *runState) noteStage(rollout string) {
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

// completed lets a group's rollouts wait for a batch, but for those that no batch will hold.
func (s *runState) completed(group string) {
	g, _ := s.books.FindGroup(group)
	for _, id := range g.Members {
		stage := ""
		if r, _ := s.books.Find(id); r.Compared() && s.books.FirstFeed() != books.NoFeed {
			stage = events.StageFeed
		}
		s.flows.place(id, stage)
	}
}

// leaveBacklog takes a group's rollouts from the first feed's backlog.
func (s *runState) leaveBacklog(group string) {
	g, _ := s.books.FindGroup(group)
	for _, rollout := range g.Members {
		s.flows.place(rollout, "")
	}
}
