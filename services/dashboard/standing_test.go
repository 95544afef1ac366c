package dashboard

import (
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// same fails where the counts are not what the books say of all rollouts.
func (s *runState) same(t *testing.T, e events.Event) {
	t.Helper()
	if got, want := len(s.stands.feeds), len(s.books.Feeds()); got != want {
		t.Fatalf("behind %s: %d feeds, want %d", e.ID, got, want)
	}
	for i, feed := range s.books.Feeds() {
		side := s.stands.feeds[i]
		if want := s.books.Balance(feed); side.Balance != want {
			t.Fatalf("behind %s: %+v, want %+v", e.ID, side.Balance, want)
		}
		for by, rows := range map[string][]*books.Row{books.ByReason: side.reasons, books.ByTask: side.tasks} {
			want, err := s.books.Divide(feed, by)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := rowsOf(rows, len(rows))
			if len(got)+len(want.Rows) > 0 && !reflect.DeepEqual(got, want.Rows) {
				t.Fatalf("behind %s, by %s: %+v, want %+v", e.ID, by, got, want.Rows)
			}
		}
	}
	endings := map[string]int{}
	for r := range s.books.All() {
		if r.StopReason != "" {
			endings[r.StopReason]++
		}
	}
	if !reflect.DeepEqual(endings, s.stands.endings) {
		t.Fatalf("behind %s: endings %v, want %v", e.ID, s.stands.endings, endings)
	}
}

// TestStandingOfRecordedRuns: behind each event of recorded runs, the
// counts are those of the books.
func TestStandingOfRecordedRuns(t *testing.T) {
	paths, err := filepath.Glob("../../tests/golden/testdata/*.zip")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded runs: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			d := newDesk(t)
			run := d.golden(path)
			s := newRunState(run)
			for e, err := range d.log.All(t.Context(), run, 1) {
				if err != nil {
					t.Fatal(err)
				}
				if err := s.apply(e); err != nil {
					t.Fatal(err)
				}
				s.same(t, e)
			}
		})
	}
}

// TestStandingOfAnyRun: whatever happens in whatever order, the counts are those of the
// books: also masks, drops that race with batches, rewinds, feeds that no configuration
// names, and invalidations.
func TestStandingOfAnyRun(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s, seq := newRunState("live"), uint64(0)
		happen := func(typ events.Type, entity string, data any) {
			e := servicetest.Event(t, "live", typ, entity, events.Ordinal(int64(seq)), data)
			seq++
			e.Seq = seq
			if err := s.apply(e); err != nil {
				t.Fatal(err)
			}
			s.same(t, e)
		}
		happen(events.RunOpenedType, "live", events.RunOpened{Config: servicetest.Config("a", "b")})
		feeds, steps := []string{"trainer", "other"}, map[string]int64{}
		for range 300 {
			group := events.GroupID(rng.Int64N(12) + 1)
			rollout, feed := events.RolloutID(group, rng.IntN(3)), feeds[min(1, rng.IntN(8)/7)]
			switch rng.IntN(11) {
			case 0, 1, 2:
				happen(events.GroupOpenedType, group, events.GroupOpened{Task: "a", Size: 3})
				happen(events.RolloutStartedType, rollout,
					events.RolloutStarted{Group: group, Task: []string{"a", "b"}[rng.IntN(2)]})
			case 3:
				happen(events.RolloutFinishedType, rollout,
					events.RolloutFinished{StopReason: []string{"finished", "max_turns"}[rng.IntN(2)]})
			case 4:
				happen(events.RolloutScoredType, rollout,
					events.RolloutScored{Reward: 1, Forfeit: []*events.Forfeit{nil, {Class: "timeout"}}[rng.IntN(2)]})
			case 5:
				happen(events.RolloutFailedType, rollout,
					events.RolloutFailed{Stage: events.StageTools, Class: []string{"x", "y"}[rng.IntN(2)]})
			case 6:
				happen(events.GroupCompletedType, group,
					events.GroupCompleted{Members: []events.Member{{Rollout: rollout, Failed: rng.IntN(2) == 0}}})
			case 7:
				happen(events.GroupDroppedType, group,
					events.GroupDropped{Feed: feed, Reason: []string{events.DropStale, "filtered"}[rng.IntN(2)]})
			case 8:
				steps[feed]++
				happen(events.BatchReadyType, feed, events.BatchReady{Step: steps[feed], Groups: []string{group},
					Rollouts: []string{rollout}, Masked: map[string]string{events.RolloutID(group, 2): "long"}})
			case 9:
				happen([]events.Type{events.BatchConsumedType, events.BatchRewoundType}[rng.IntN(2)], feed,
					map[string]int64{"step": rng.Int64N(steps[feed] + 1), "to_step": rng.Int64N(steps[feed] + 1)})
			case 10:
				happen(events.RolloutInvalidatedType, rollout, events.RolloutInvalidated{Reason: "r"})
			}
		}
	}
}

// TestChosenRollouts: a page has the rollouts of an outcome, the newest
// first, as many as there are.
func TestChosenRollouts(t *testing.T) {
	d := newDesk(t)
	b := newBulk(t, d.log, "live")
	b.groups(0, 20)
	s := newRunState("live")
	for e, err := range d.log.All(t.Context(), "live", 1) {
		if err == nil {
			err = s.apply(e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, outcome := range append([]books.Outcome{""}, outcomes...) {
		var want, got []string
		for r := range s.books.All() {
			if outcome == "" || s.books.Outcome("trainer", r.ID) == outcome {
				want = append([]string{r.ID}, want...)
			}
		}
		for from := 0; ; from += 7 {
			all := 0
			some, err := s.stands.chosen(outcome, nil,
				func(rows int) (int, int, error) { all = rows; return from, min(from+7, rows), nil })
			if err != nil || all != len(want) {
				t.Fatalf("%q: %d rows, want %d, %v", outcome, all, len(want), err)
			}
			for _, r := range some {
				got = append(got, r.ID)
			}
			if from+7 >= all {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", outcome, got, want)
		}
	}
}

// TestLinesAreTheSame: a text that is a line already is left as it is, and no other.
func TestLinesAreTheSame(t *testing.T) {
	for _, text := range append([]string{"", " ", "a", " a", "a ", "a b", "a  b", "a\tb", "ä", "a\x7f", "task-001",
		strings.Repeat("a", 300), strings.Repeat("a", 301)}, evils...) {
		want := strings.Join(strings.Fields(clip(text, 300)), " ")
		if got := line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
