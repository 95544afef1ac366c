package run

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestUnmetTests: a run's tasks are shown with the graded tests that failed most often,
// whatever their names are.
func TestUnmetTests(t *testing.T) {
	t.Parallel()
	r := clitest.NewRecorded(t)
	verdicts := []*grade.Tests{
		nil,
		{Graded: 3, Held: 1, Unmet: []grade.UnmetTest{{Name: "test_a", State: "missing"},
			{Name: "test_\x1b[2J", State: "failed", Message: "1 != 2"}}},
		{Graded: 300, Held: 90, Unmet: []grade.UnmetTest{{Name: "test_\x1b[2J", State: "failed", Message: "3 !=\n4"}}},
	}
	for i, tests := range verdicts {
		id := events.RolloutID("g000001", i)
		servicetest.StartRollout(t, r.Log, "first", id, "fix-a")
		r.State(events.RolloutScoredType, id, "0", events.RolloutScored{Tests: tests})
	}
	output, err := clitest.Run(t, New, "run", "tasks", "first", "--dir", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(output, "Graded tests that did not end as they must:\n")
	lines := strings.Split(table, "\n")
	if len(lines) < 4 || strings.Contains(output, "\x1b") || !strings.Contains(lines[1], "  2  3 != 4") ||
		!strings.Contains(lines[2], "test_a") || !strings.HasSuffix(lines[3], "  others       209") {
		t.Errorf("%q", output)
	}
	output, err = clitest.Run(t, New, "run", "tasks", "first", "--json", "--dir", r.Dir)
	var row taskRow
	if err != nil || json.NewDecoder(strings.NewReader(output)).Decode(&row) != nil || row.OtherUnmet != 209 ||
		!reflect.DeepEqual(row.Unmet, []unmetTest{{"test_\x1b[2J", 2, "3 !=\n4"}, {"test_a", 1, ""}}) {
		t.Errorf("%v: %s", err, output)
	}
}

// TestUnmetTestsAreBounded: of a task with very many of them only so many are
// kept, and the others counted.
func TestUnmetTestsAreBounded(t *testing.T) {
	u := unmetTests{books: books.New("first"), tasks: map[string]*unmetOf{}}
	state := func(typ events.Type, data any) {
		t.Helper()
		if err := u.books.Apply(servicetest.Event(t, "first", typ, "g1-0", "0", data)); err != nil {
			t.Fatal(err)
		}
	}
	state(events.RunOpenedType, events.RunOpened{Config: runfile.RunConfig{}})
	state(events.RolloutStartedType, events.RolloutStarted{Group: "g1", Task: "a"})
	for i := range maxUnmet + 5 {
		tests := &grade.Tests{Graded: 1, Unmet: []grade.UnmetTest{{Name: fmt.Sprint(i)}}}
		if err := u.listen(servicetest.Event(t, "first", events.StepScoredType, "g1-0", fmt.Sprint(i),
			events.StepScored{Tests: tests})); err != nil {
			t.Fatal(err)
		}
	}
	if list, others := u.most("a"); len(list) != shownUnmet || others != maxUnmet+5-shownUnmet ||
		len(u.tasks["a"].tests) != maxUnmet {
		t.Errorf("%d tests, %d others", len(list), others)
	}
}
