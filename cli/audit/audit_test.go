package audit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// booked is a run with trained, failed and dropped rollouts, decided by the real services.
func booked(t *testing.T) *clitest.Recorded {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Batch("shadow", 1)
	r.Batch("trainer", 1)
	r.Consumed("trainer", 1)
	_, second := r.Group(2, "fix-b", 3, 0)
	r.State(events.RolloutFailedType, second[0], "0", events.RolloutFailed{Stage: events.StageTools,
		Class: events.ClassSandbox})
	r.State(events.RolloutFailedType, second[1], "0", events.RolloutFailed{Stage: events.StageGenerator,
		Class: events.ClassDeadline})
	r.State(events.RolloutFailedType, second[2], "0", events.RolloutFailed{Stage: events.StageGenerator,
		Class: events.ClassDeadline})
	servicetest.Wait(t, r.Log, "first", events.GroupCompletedType, "g000002", 1)
	r.Group(3, "fix-b", 2, 0)
	return r
}

type auditAnswer struct {
	Started   int
	Trained   int
	Failed    int
	InFlight  int              `json:"in_flight"`
	Feeds     []books.Balance  `json:"feeds"`
	Books     []books.Division `json:"books"`
	Bias      []books.Bias     `json:"bias"`
	Findings  []any            `json:"findings"`
	Objects   int              `json:"objects"`
	EventsAll int64            `json:"events"`
}

func auditJSON(t *testing.T, args ...string) (a auditAnswer) {
	t.Helper()
	output, err := clitest.Run(t, New, append([]string{"audit", "--json"}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := json.Unmarshal([]byte(output), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuditDividesTheBooks(t *testing.T) {
	r := booked(t)
	a := auditJSON(t, "first", "--dir", r.Dir, "--by", "task,reason", "--by", "stage")
	if a.Started != 7 || a.Trained != 2 || a.Failed != 3 || a.InFlight != 2 || len(a.Feeds) != 2 || len(a.Books) != 6 ||
		len(a.Findings) != 0 || a.Objects == 0 {
		t.Errorf("%+v", a)
	}
	want := map[string][]books.Row{
		"task": {{Key: "fix-a", Counts: books.Counts{Started: 2, Trained: 2}},
			{Key: "fix-b", Counts: books.Counts{Started: 5, Failed: 3, InFlight: 2}}},
		"reason": {{Key: "failed: deadline", Counts: books.Counts{Started: 2, Failed: 2}},
			{Key: "failed: sandbox", Counts: books.Counts{Started: 1, Failed: 1}},
			{Key: "in_flight", Counts: books.Counts{Started: 2, InFlight: 2}},
			{Key: "trained", Counts: books.Counts{Started: 2, Trained: 2}}},
		"stage": {{Key: "generator", Counts: books.Counts{Started: 4, Failed: 2, InFlight: 2}},
			{Key: "tools", Counts: books.Counts{Started: 1, Failed: 1}},
			{Key: "trainer", Counts: books.Counts{Started: 2, Trained: 2}}},
	}
	for _, b := range a.Books {
		if b.Feed != "trainer" {
			continue
		}
		got, _ := json.Marshal(b.Rows)
		wanted, _ := json.Marshal(want[b.By])
		if string(got) != string(wanted) {
			t.Errorf("by %s: %s, want %s", b.By, got, wanted)
		}
	}
	quick := auditJSON(t, "first", "--dir", r.Dir, "--quick", "--feed", "shadow")
	if len(quick.Feeds) != 1 || quick.Feeds[0].Feed != "shadow" || quick.Started != 7 || quick.Trained != 0 ||
		quick.Objects != 0 || quick.EventsAll != a.EventsAll {
		t.Errorf("quick: %+v", quick)
	}
	output, err := clitest.Run(t, New, "audit", "first", "--dir", r.Dir, "--by", "reason")
	for _, part := range []string{"nothing is wrong", "feed trainer by reason", "failed: deadline",
		"feed shadow by reason"} {
		if err != nil || !strings.Contains(output, part) {
			t.Errorf("it does not say %q: %v\n%s", part, err, output)
		}
	}
}

func TestAuditShowsTheBias(t *testing.T) {
	r := booked(t)
	a := auditJSON(t, "first", "--dir", r.Dir, "--quick", "--bias", "--feed", "trainer")
	if len(a.Bias) != 1 || len(a.Bias[0].Measures) != 3 {
		t.Fatalf("%+v", a.Bias)
	}
	turns := a.Bias[0].Measures[1]
	if turns.Name != "turns" || turns.Trained.Rollouts != 2 || turns.Trained.Mean != 2 || turns.Dropped.Rollouts != 3 ||
		turns.Superiority == nil || *turns.Superiority != 0 {
		t.Errorf("%+v", turns)
	}
	output, err := clitest.Run(t, New, "audit", "first", "--dir", r.Dir, "--quick", "--bias", "--feed", "trainer")
	for _, part := range []string{"turns of dropped against trained", "… failed", "dropped ██",
		"with probability 0.00", "nothing to compare"} {
		if err != nil || !strings.Contains(output, part) {
			t.Errorf("it does not say %q: %v\n%s", part, err, output)
		}
	}
}

// TestAuditWatches: books come as they change, and the last ones are those
// of the closed run at rest.
func TestAuditWatches(t *testing.T) {
	r := booked(t)
	type line struct {
		output string
		err    error
	}
	watched := make(chan line)
	go func() {
		output, err := clitest.Run(t, New, "audit", "first", "--dir", r.Dir, "--watch", "--json", "--by", "stage")
		watched <- line{output, err}
	}()
	r.State(events.RunClosedType, "first", "0", events.RunClosed{})
	for _, id := range []string{"g000003-0", "g000003-1"} {
		r.State(events.RolloutFailedType, id, "0", events.RolloutFailed{Stage: events.StageSampler,
			Class: events.ClassCancelled})
	}
	got := <-watched
	lines := strings.Split(strings.TrimSpace(got.output), "\n")
	var last auditAnswer
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); got.err != nil || err != nil {
		t.Fatalf("%v, %v\n%s", got.err, err, got.output)
	}
	if last.Started != 7 || last.Failed != 5 || last.InFlight != 0 || last.Trained != 2 || len(last.Books) != 2 {
		t.Errorf("the last books: %+v", last)
	}
}

func TestAuditOfAllRuns(t *testing.T) {
	r := booked(t)
	servicetest.OpenRun(t, r.Log, "another", servicetest.Config("a"))
	output, err := clitest.Run(t, New, "audit", "--dir", r.Dir, "--json", "--by", "task")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Runs []auditAnswer }
	if err := json.Unmarshal([]byte(output), &all); err != nil || len(all.Runs) != 2 || all.Runs[0].Started != 0 ||
		all.Runs[1].Started != 7 || len(all.Runs[1].Books) != 2 {
		t.Errorf("%v: %+v", err, all)
	}
	output, err = clitest.Run(t, New, "audit", "--dir", r.Dir)
	for _, part := range []string{"run another: 1 events", "run first: ", "7 started", "2 runs"} {
		if err != nil || !strings.Contains(output, part) {
			t.Errorf("it does not say %q: %v\n%s", part, err, output)
		}
	}
}

func TestMistakesInAudit(t *testing.T) {
	r := clitest.NewRecorded(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"first", "--by", "colour"}, "task, reason, stage"},
		{[]string{"first", "--feed", "judge"}, "trainer, shadow"},
		{[]string{"_", "--bias"}, "no books"},
		{[]string{"--watch"}, "name the run"},
		{[]string{"--feed", "trainer"}, "name the run"},
		{[]string{"--by", "colour"}, "task, reason, stage"},
		{[]string{"first", "--watch", "--feed", "judge"}, "trainer, shadow"},
	} {
		if _, err := clitest.Run(t, New, append(append([]string{"audit"}, c.args...), "--dir", r.Dir)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestAuditOfARunThatStandsStill: the last weights of the run's policy were rejected, so it waits,
// also when a server activates an older version meanwhile. With other weights on their way, or
// published, it waits no longer.
func TestAuditOfARunThatStandsStill(t *testing.T) {
	r := booked(t)
	catalogue := func(typ events.Type, ordinal string, data any) {
		servicetest.Append(t, r.Log, servicetest.Event(t, events.Catalogue, typ, "small", ordinal, data))
	}
	audited := func() string {
		t.Helper()
		output, err := clitest.Run(t, New, "audit", "first", "--dir", r.Dir)
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return output
	}
	catalogue(events.WeightsSubmittedType, "s1", events.WeightsSubmitted{Version: 1, Run: "first"})
	if output := audited(); !strings.Contains(output, "nothing is wrong") {
		t.Errorf("weights that wait: %s", output)
	}
	catalogue(events.WeightsRejectedType, "submission-1", events.WeightsRejected{Version: 1, Reason: "it has NaN"})
	catalogue(events.WeightsActivatedType, "a1", events.WeightsActivated{Version: 0, Replica: "x"})
	if output := audited(); !strings.Contains(output,
		"waits: for weights: version 1 of policy small was rejected, and none was submitted since: it has NaN") ||
		strings.Contains(output, "nothing is wrong") {
		t.Errorf("rejected weights: %s", output)
	}
	catalogue(events.WeightsSubmittedType, "s2", events.WeightsSubmitted{Version: 1, Run: "first"})
	if output := audited(); strings.Contains(output, "waits:") {
		t.Errorf("weights on their way: %s", output)
	}
}
