package steps

import (
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// told is a run that a test tells event by event, a second after the other.
type told struct {
	testing.TB
	fold *Fold
	n    int
	rows []Row
}

func tell(t testing.TB, feeds ...runfile.Feed) *told {
	w := &told{TB: t}
	w.fold = New("trainer", func(r Row) error { w.rows = append(w.rows, r); return nil })
	if feeds == nil {
		feeds = []runfile.Feed{{Name: "trainer"}, {Name: "shadow"}}
	}
	w.event(events.RunOpenedType, "r", events.RunOpened{Config: runfile.RunConfig{Feeds: feeds}})
	return w
}

func (w *told) event(typ events.Type, entity string, data any) {
	w.Helper()
	w.n++
	e, err := events.New("r", typ, entity, events.Ordinal(w.n), data)
	if err != nil {
		w.Fatal(err)
	}
	e.Seq, e.Time = uint64(w.n), time.Unix(1000+int64(w.n), 0).UTC()
	if err := w.fold.Apply(e); err != nil {
		w.Fatal(err)
	}
}

// group lets a group run to its end; a negative reward is a rollout that failed.
func (w *told) group(n int64, version int64, rewards ...float64) {
	w.Helper()
	id := events.GroupID(n)
	var members []events.Member
	for i, reward := range rewards {
		r := events.RolloutID(id, i)
		w.event(events.RolloutStartedType, r, events.RolloutStarted{Group: id, PolicyVersion: version})
		if reward < 0 {
			w.event(events.RolloutFailedType, r, events.RolloutFailed{})
		} else {
			w.event(events.RolloutFinishedType, r, events.RolloutFinished{Turns: 1 + i, Sampled: 10 * (1 + i)})
			w.event(events.RolloutScoredType, r, events.RolloutScored{Reward: reward})
		}
		members = append(members, events.Member{Rollout: r, Failed: reward < 0, Reward: max(0, reward)})
	}
	w.event(events.GroupCompletedType, id, events.GroupCompleted{Members: members})
}

func (w *told) batch(feed string, step, version int64, rewardMean float64, rollouts ...string) {
	w.Helper()
	ready := events.BatchReady{Step: step, Rollouts: rollouts, Samples: len(rollouts), RewardMean: rewardMean,
		MinVersion: version, Staleness: 2, Masked: map[string]string{}}
	for _, r := range rollouts {
		if g := events.GroupOf(r); !slices.Contains(ready.Groups, g) {
			ready.Groups = append(ready.Groups, g)
		}
	}
	w.event(events.BatchReadyType, feed, ready)
}

func (w *told) consumed(step int64, gap *events.LogprobGap) {
	w.Helper()
	w.event(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step, LogprobGap: gap})
}

func (w *told) steps() (list []int64) {
	for _, r := range w.rows {
		list = append(list, r.Step)
	}
	return list
}

func (w *told) want(steps ...int64) {
	w.Helper()
	if !slices.Equal(w.steps(), steps) {
		w.Fatalf("steps %v, want %v", w.steps(), steps)
	}
}

func TestTheFiguresOfAStep(t *testing.T) {
	w := tell(t)
	w.group(1, 3, 1, 0, -1)
	w.event(events.RolloutStartedType, "g000002-0", events.RolloutStarted{Group: "g000002", PolicyVersion: 4})
	// of another feed
	w.event(events.GroupDroppedType, "g000001", events.GroupDropped{Feed: "shadow", Reason: events.DropStale})
	w.event(events.WeightsPublishedType, "p", events.WeightsPublished{Version: 5})
	w.batch("shadow", 1, 3, 9, "g000001-1")
	w.batch("trainer", 1, 3, 0.5, "g000001-0", "g000001-1")
	w.consumed(1, &events.LogprobGap{MeanAbs: 0.25, MaxAbs: 1, KL: 0.125, Tokens: 30})
	w.want(1)
	row := w.rows[0]
	if row.Sequence != uint64(w.n) || !row.Time.Equal(time.Unix(1000+int64(w.n), 0)) {
		t.Errorf("row %+v", row)
	}
	seconds := float64(w.n - 1)
	want := map[string]float64{
		rewardMean: 0.5, rewardStd: 0.5, batchGroups: 1, batchSamples: 2, batchMasked: 0, batchTokens: 0,
		batchSampled: 0, turnsMean: 1.5, sampledMean: 15,
		stalenessMax: 2, stalenessMean: 2, policyVersion: 5, started: 4, scored: 2, failed: 1, forfeited: 0,
		inFlight: 1, groupsCompleted: 1, droppedStale: 0,
		droppedFiltered: 0, stepSeconds: seconds, rolloutsPerSecond: 2 / seconds, tokensPerSecond: 30 / seconds,
		gapMeanAbs: 0.25, gapMaxAbs: 1, gapKL: 0.125, gapTokens: 30,
	}
	if !maps.EqualFunc(row.Figures, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
		t.Errorf("figures %v, want %v", row.Figures, want)
	}
	for name := range want {
		if !slices.ContainsFunc(Figures, func(f Figure) bool { return f.Name == name }) {
			t.Errorf("%s is not in the list of figures", name)
		}
	}
	if len(Figures) != len(want) {
		t.Errorf("%d figures are listed, %d were seen", len(Figures), len(want))
	}

	// The next step counts only what came behind it.
	w.event(events.RolloutFinishedType, "g000002-0", events.RolloutFinished{Turns: 4, Sampled: 7})
	w.event(events.RolloutScoredType, "g000002-0", events.RolloutScored{Forfeit: &events.Forfeit{}})
	w.event(events.GroupCompletedType,
		"g000002", events.GroupCompleted{Members: []events.Member{{Rollout: "g000002-0"}}})
	w.group(3, 4, 1)
	w.event(events.GroupDroppedType, "g000003", events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered})
	w.batch("trainer", 2, 4, 0, "g000002-0")
	w.consumed(2, &events.LogprobGap{Tokens: 1})
	got := w.rows[1].Figures
	for name, want := range map[string]float64{started: 1, scored: 2, failed: 0, forfeited: 1, inFlight: 0,
		groupsCompleted: 2, droppedFiltered: 1, turnsMean: 4} {
		if got[name] != want {
			t.Errorf("step 2: %s is %g, want %g", name, got[name], want)
		}
	}
}

// A step that comes again after a rewind has its row already, and rows come
// in the order of the steps.
func TestRewoundStepsHaveOneRow(t *testing.T) {
	w := tell(t)
	for step := range int64(4) {
		w.group(step+1, 0, 1)
		w.batch("trainer", step+1, 0, 1, events.RolloutID(events.GroupID(step+1), 0))
	}
	w.consumed(1, nil)
	w.consumed(2, nil)
	w.event(events.BatchRewoundType, "trainer", events.BatchRewound{ToStep: 0})
	w.consumed(1, nil)
	w.want(1, 2)
	w.consumed(2, nil)
	w.consumed(4, nil) // and none for 3
	w.want(1, 2, 3, 4)
	if n := w.fold.run.Size() + len(w.fold.ready); n != 0 {
		t.Errorf("%d rollouts, groups and batches are kept", n)
	}
}

// Where the trainer states gaps, a row waits for its gap, at most until the next step or the end.
func TestARowWaitsForItsGap(t *testing.T) {
	w := tell(t)
	for step := range int64(5) {
		w.group(step+1, 0, 1)
		w.batch("trainer", step+1, 0, 1, events.RolloutID(events.GroupID(step+1), 0))
	}
	w.consumed(1, nil)
	w.want(1) // nothing says that a gap will come
	w.consumed(1, &events.LogprobGap{MeanAbs: 1, Tokens: 1})
	w.want(1)
	w.consumed(2, nil)
	w.want(1)
	w.consumed(2, &events.LogprobGap{MeanAbs: 2, Tokens: 1})
	w.want(1, 2)
	if got := w.rows[1].Figures[gapMeanAbs]; got != 2 {
		t.Errorf("the gap that came later is %g", got)
	}
	w.consumed(3, nil)
	w.consumed(4, &events.LogprobGap{MeanAbs: 4, Tokens: 1})
	w.want(1, 2, 3, 4)
	if _, there := w.rows[2].Figures[gapMeanAbs]; there {
		t.Error("step 3 has a gap")
	}
	w.consumed(5, nil)
	w.want(1, 2, 3, 4)
	w.event(events.RunClosedType, "r", events.RunClosed{})
	w.want(1, 2, 3, 4, 5)
	if !w.fold.Ended() {
		t.Error("more is expected")
	}
}

// A closed run has ended when its last rollout is in a batch that was taken, or in none for ever.
func TestTheEndOfTheRows(t *testing.T) {
	w := tell(t)
	w.group(1, 0, 1)
	w.group(2, 0, -1, -1)
	w.event(events.RolloutStartedType, "g000003-0", events.RolloutStarted{Group: "g000003"})
	w.event(events.RunClosedType, "r", events.RunClosed{})
	w.batch("trainer", 1, 0, 1, "g000001-0")
	w.event(events.RolloutFailedType, "g000003-0", events.RolloutFailed{})
	if w.fold.Ended() {
		t.Error("a batch waits for its trainer")
	}
	w.consumed(1, nil)
	if !w.fold.Ended() {
		t.Errorf("%d rollouts are waited for", w.fold.run.Count())
	}
	w.want(1)
}

// Nobody takes the batches of an export.
func TestAnExport(t *testing.T) {
	least := 1.0
	w := tell(t, runfile.Feed{Name: "trainer", MinReward: &least})
	w.group(1, 0, 1)
	w.batch("trainer", 1, 0, 1, "g000001-0")
	w.want(1)
}

// The guide lists the figures as the code does.
func TestTheGuideHasTheFigures(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/trackers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(guide), "<!-- figures -->\n")
	table, _, _ := strings.Cut(rest, "<!-- /figures -->")
	want := "| figure | meaning |\n|---|---|\n"
	for _, f := range Figures {
		want += "| `" + f.Name + "` | " + f.Meaning + " |\n"
	}
	if table != want {
		t.Errorf("docs/guide/trackers.md has\n%s\nwant\n%s", table, want)
	}
}

func TestFlight(t *testing.T) {
	w := tell(t)
	w.group(1, 0, 1, 0)
	w.group(2, 0, 1)
	w.batch("trainer", 1, 0, 1, "g000001-0")
	w.event(events.WeightsPublishedType, "p", events.WeightsPublished{Version: 5})
	for member := range 2 {
		w.event(events.RolloutStartedType, events.RolloutID("g000003", member), events.RolloutStarted{Group: "g000003"})
	}
	began := w.n - 1
	w.event(events.TurnSampledType, "g000003-1", events.TurnSampled{})
	w.event(events.RolloutStartedType, "g000004-0", events.RolloutStarted{Group: "g000004"})
	w.event(events.RolloutFinishedType, "g000004-0", events.RolloutFinished{})
	w.event(events.RolloutStartedType, "g000005-0", events.RolloutStarted{Group: "g000005"})
	w.event(events.RolloutScoredType, "g000005-0", events.RolloutScored{})
	got := w.fold.Flight()
	want := map[string]int{events.StageGenerator: 1, events.StageTools: 1, events.StageScorer: 1, events.StageGroup: 1,
		events.StageFeed: 1, books.StageTrainer: 1}
	if !maps.Equal(got.Stages, want) || got.Version != 5 || !got.Oldest.Equal(time.Unix(1000+int64(began), 0)) {
		t.Errorf("%+v, want %v since %d", got, want, began)
	}
}

// An evaluation has no feed that takes its groups.
func TestAnEvaluationLetsGoOfItsGroups(t *testing.T) {
	w := &told{TB: t, fold: New("", func(Row) error { return nil })}
	w.event(events.RunOpenedType, "r", events.RunOpened{Config: runfile.RunConfig{Epochs: 1}})
	w.group(1, 0, 1, 0)
	if n := w.fold.run.Size(); n != 0 {
		t.Errorf("%d rollouts and groups are kept", n)
	}
}
