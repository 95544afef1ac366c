package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func TestQueriesAndFeedback(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	query := events.QuerySubmitted{Instruction: "Fix my bug.", Task: "a", Verify: true}
	o.must(events.QuerySubmittedType, "q-anna-1", query)
	o.must(events.QuerySubmittedType, "q-anna-1", query)
	if n := len(servicetest.All(t, log, "r", events.QuerySubmittedType)); n != 1 {
		t.Errorf("the query stands %d times", n)
	}
	task, err := log.Task(t.Context(), "r", "q-anna-1")
	if err != nil || task.Name != "q-anna-1" || task.Instruction != "Fix my bug." || !task.HasVerifier() || task.Workdir != "/app" {
		t.Errorf("the query's task is %+v: %v", task, err)
	}
	reward := 0.25
	for _, f := range []events.FeedbackRecorded{
		{Signal: events.SignalAccept}, {Signal: events.SignalReject, Text: "no"}, {Signal: events.SignalFollow, Text: "why?"}, {Signal: events.SignalScore, Reward: &reward},
	} {
		o.must(events.FeedbackRecordedType, "g000001-0", f)
	}
	if n := len(servicetest.All(t, log, "r", events.FeedbackRecordedType)); n != 4 {
		t.Errorf("%d pieces of feedback instead of 4", n)
	}
	huge := 1e10
	for name, c := range map[string]struct {
		run, entity string
		data        any
		want        []string
	}{
		"a name of another kind":    {"r", "anna-1", query, []string{`"anna-1"`, "begin its name with q"}},
		"an unknown task":           {"r", "q2", events.QuerySubmitted{Instruction: "x", Task: "z"}, []string{`task "z"`}},
		"no instruction":            {"r", "q2", events.QuerySubmitted{Task: "a"}, []string{"instruction"}},
		"the same name again":       {"r", "q-anna-1", events.QuerySubmitted{Instruction: "x", Task: "a"}, []string{"q-anna-1", "something else"}},
		"a closed run":              {"old", "q2", query, []string{"run old is closed"}},
		"feedback on nobody":        {"r", "g000009-0", events.FeedbackRecorded{Signal: events.SignalAccept}, []string{`rollout "g000009-0"`}},
		"an unknown signal":         {"r", "g000001-0", events.FeedbackRecorded{Signal: "shrug"}, []string{"signal"}},
		"a score without a reward":  {"r", "g000001-0", events.FeedbackRecorded{Signal: events.SignalScore}, []string{"reward", "needs one"}},
		"a reward without a score":  {"r", "g000001-0", events.FeedbackRecorded{Signal: events.SignalAccept, Reward: &reward}, []string{"reward", "accept"}},
		"a reward that is too much": {"r", "g000001-0", events.FeedbackRecorded{Signal: events.SignalScore, Reward: &huge}, []string{"reward 1e+10"}},
	} {
		typ := events.QuerySubmittedType
		if _, ok := c.data.(events.FeedbackRecorded); ok {
			typ = events.FeedbackRecordedType
		}
		refused := outsider{t, log, c.run}.state(typ, c.entity, c.data)
		for _, part := range c.want {
			if !strings.Contains(refused, part) {
				t.Errorf("%s: the answer %q does not say %q", name, refused, part)
			}
		}
	}
}

// TestQueriesThatNobodyCouldAnswer are refused by what the run lacks.
func TestQueriesThatNobodyCouldAnswer(t *testing.T) {
	log := natstest.Log(t)
	silent, odd := servicetest.Config("a"), servicetest.Config("a", "quicksort")
	silent.External, silent.Endpoint = true, ""
	odd.Tasks[0].Tests = storage.Ref{}
	servicetest.OpenRun(t, log, "silent", silent)
	servicetest.OpenRun(t, log, "odd", odd)
	start(t, log)
	for name, c := range map[string]struct {
		run, entity string
		verify      bool
		want        string
	}{
		"no endpoint":     {"silent", "q1", false, "no endpoint"},
		"a task's name":   {"odd", "quicksort", false, "has a task of that name"},
		"no tests to run": {"odd", "q1", true, "has no tests"},
	} {
		refused := outsider{t, log, c.run}.state(events.QuerySubmittedType, c.entity, events.QuerySubmitted{Instruction: "x", Task: "a", Verify: c.verify})
		if !strings.Contains(refused, c.want) {
			t.Errorf("%s: %q", name, refused)
		}
	}
}
