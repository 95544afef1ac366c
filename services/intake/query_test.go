package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func TestQueriesAndFeedback(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Features, cfg.Traffic = []string{runfile.FeatureUserTraffic}, runfile.Traffic{Rate: 0.5}
	servicetest.OpenRun(t, log, "r", cfg)
	servicetest.OpenRun(t, log, "old", cfg)
	servicetest.CloseRun(t, log, "old")
	servicetest.StartRollout(t, log, "r", "g000001-0", "a")
	servicetest.OpenRun(t, log, "full", cfg)
	shrink(t, log, "full")
	start(t, log)
	o := outsider{t, log, "r"}
	query := events.QuerySubmitted{Instruction: "Fix my bug.", Task: "a", Verify: true, Session: "anna", Consent: true}
	o.must(events.QuerySubmittedType, "q-anna-1", query)
	o.must(events.QuerySubmittedType, "q-anna-1", query)
	if n := len(servicetest.All(t, log, "r", events.QuerySubmittedType)); n != 1 {
		t.Errorf("the query stands %d times", n)
	}
	task, err := log.Task(t.Context(), "r", "q-anna-1")
	if err != nil || task.Name != "q-anna-1" || task.Instruction != "Fix my bug." || !task.HasVerifier() ||
		task.Workdir != "/app" {
		t.Errorf("the query's task is %+v: %v", task, err)
	}
	reward := 0.25
	for _, f := range []events.FeedbackRecorded{
		{Signal: events.SignalAccept}, {Signal: events.SignalReject, Text: "no"},
		{Signal: events.SignalFollow, Text: "why?"}, {Signal: events.SignalFollow, Reward: &reward},
		{Signal: events.SignalScore, Reward: &reward},
	} {
		o.must(events.FeedbackRecordedType, "g000001-0", f)
	}
	if n := len(servicetest.All(t, log, "r", events.FeedbackRecordedType)); n != 5 {
		t.Errorf("%d pieces of feedback instead of 5", n)
	}
	huge := 1e10
	for name, c := range map[string]struct {
		run, entity string
		data        any
		want        []string
	}{
		"a name of another kind": {"r", "anna-1", query, []string{`"anna-1"`, "begin its name with q"}},
		"an unknown task": {"r", "q2", events.QuerySubmitted{Instruction: "x", Task: "z", Session: "anna",
			Consent: true}, []string{`task "z"`}},
		"no instruction": {"r", "q2", events.QuerySubmitted{Task: "a"}, []string{"instruction"}},
		"the same name again": {"r", "q-anna-1",
			events.QuerySubmitted{Instruction: "x", Task: "a", Session: "anna", Consent: true},
			[]string{"q-anna-1", "other content"}},
		"a full run":   {"full", "q2", query, []string{"% full"}},
		"a closed run": {"old", "q2", query, []string{"run old is closed"}},
		"feedback on nobody": {"r", "g000009-0", events.FeedbackRecorded{Signal: events.SignalAccept},
			[]string{`rollout "g000009-0"`}},
		"an unknown signal": {"r", "g000001-0", events.FeedbackRecorded{Signal: "shrug"}, []string{"signal"}},
		"a score without a reward": {"r", "g000001-0", events.FeedbackRecorded{Signal: events.SignalScore},
			[]string{"reward", "needs one"}},
		"nobody's session": {"r", "q2", events.QuerySubmitted{Instruction: "x", Task: "a", Consent: true},
			[]string{"session: name it", "0.5"}},
		"a session that is left": {"r", "q2", events.QuerySubmitted{Instruction: "x", Task: "a", Session: "s1",
			Consent: true}, []string{"session: it is not in the share of 0.5"}},
		"a user who did not agree": {"r", "q2", events.QuerySubmitted{Instruction: "x", Task: "a", Session: "anna"},
			[]string{"consent: "}},
		"a reward without a score": {"r", "g000001-0",
			events.FeedbackRecorded{Signal: events.SignalAccept, Reward: &reward}, []string{"reward", "accept"}},
		"a reward that is too much": {"r", "g000001-0",
			events.FeedbackRecorded{Signal: events.SignalScore, Reward: &huge}, []string{"reward 1e+10"}},
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
	for _, cfg := range []*runfile.RunConfig{&silent, &odd} {
		cfg.Features, cfg.Traffic = []string{runfile.FeatureUserTraffic},
			runfile.Traffic{Rate: 1, Consent: runfile.ConsentOptional}
	}
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
		refused := outsider{t, log, c.run}.state(events.QuerySubmittedType, c.entity,
			events.QuerySubmitted{Instruction: "x", Task: "a", Verify: c.verify})
		if !strings.Contains(refused, c.want) {
			t.Errorf("%s: %q", name, refused)
		}
	}
}

// TestRunsTakeNothingOfUsersByDefault: neither queries nor rewards, only remarks
// on what a verifier scores.
func TestRunsTakeNothingOfUsersByDefault(t *testing.T) {
	log := natstest.Log(t)
	plain, rewarded := servicetest.Config("a", "b"), servicetest.Config("a", "b")
	plain.Tasks[1].Tests, rewarded.Tasks[1].Tests = storage.Ref{}, storage.Ref{}
	rewarded.Features = []string{runfile.FeatureFeedbackRewards}
	for run, cfg := range map[string]runfile.RunConfig{"plain": plain, "rewarded": rewarded} {
		servicetest.OpenRun(t, log, run, cfg)
		servicetest.StartRollout(t, log, run, "g000001-0", "a")
		servicetest.StartRollout(t, log, run, "g000002-0", "b")
		servicetest.StartRollout(t, log, run, "xtheirs-0", "whatever")
	}
	start(t, log)
	half := 0.5
	accept, remark, corrected := events.FeedbackRecorded{Signal: events.SignalAccept},
		events.FeedbackRecorded{Signal: events.SignalFollow, Text: "why?"},
		events.FeedbackRecorded{Signal: events.SignalFollow, Reward: &half}
	const noReward = "takes no rewards from users; runs that do have feedback_rewards"
	for _, c := range []struct {
		run, entity string
		typ         events.Type
		data        any
		want        string
	}{
		{"plain", "q1", events.QuerySubmittedType, events.QuerySubmitted{Instruction: "x", Task: "a", Session: "anna",
			Consent: true}, "takes no users' traffic"},
		{"rewarded", "q1", events.QuerySubmittedType, events.QuerySubmitted{Instruction: "x", Task: "a",
			Session: "anna", Consent: true}, "takes no users' traffic"},
		{"plain", "xanna", events.GroupOpenedType, events.GroupOpened{Task: "a", Size: 1, Session: "anna",
			Consent: true}, "takes no users' traffic"},
		{"plain", "xharness", events.GroupOpenedType, events.GroupOpened{Task: "a", Size: 1}, ""},
		{"plain", "g000001-0", events.FeedbackRecordedType, accept, ""},
		{"plain", "g000002-0", events.FeedbackRecordedType, accept, noReward},
		{"plain", "g000002-0", events.FeedbackRecordedType, corrected, noReward},
		{"plain", "g000002-0", events.FeedbackRecordedType, remark, ""},
		{"plain", "xtheirs-0", events.FeedbackRecordedType, accept, noReward},
		{"rewarded", "g000002-0", events.FeedbackRecordedType, accept, ""},
		{"rewarded", "g000002-0", events.FeedbackRecordedType, corrected, ""},
		{"rewarded", "xtheirs-0", events.FeedbackRecordedType, accept, ""},
	} {
		refused := outsider{t, log, c.run}.state(c.typ, c.entity, c.data)
		if (refused == "") != (c.want == "") || !strings.Contains(refused, c.want) {
			t.Errorf("%s of %s in run %s: %q, want %q", c.typ, c.entity, c.run, refused, c.want)
		}
	}
}

// TestGroupsAreTraffic in a run that takes it: an outsider's group is a session of a user
// who has agreed, or refused.
func TestGroupsAreTraffic(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Features, cfg.Traffic = []string{runfile.FeatureUserTraffic}, runfile.Traffic{Rate: 0.5}
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	for entity, c := range map[string]struct {
		group events.GroupOpened
		want  string
	}{
		"x1": {events.GroupOpened{Task: "a", Size: 1, Session: "anna", Consent: true}, ""},
		"x2": {events.GroupOpened{Task: "a", Size: 1, Session: "anna"}, "consent: "},
		"x3": {events.GroupOpened{Task: "a", Size: 1, Session: "s1", Consent: true}, "session: it is not"},
		"x4": {events.GroupOpened{Task: "a", Size: 1}, "consent: "},
	} {
		refused := outsider{t, log, "r"}.state(events.GroupOpenedType, entity, c.group)
		if (refused == "") != (c.want == "") || !strings.Contains(refused, c.want) {
			t.Errorf("group %+v: %q, want %q", c.group, refused, c.want)
		}
	}
}

// TestRefusedUsersLeaveNoTrace: what somebody wrote who has not agreed is in no event and in no
// object, however it was refused.
func TestRefusedUsersLeaveNoTrace(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Features, cfg.Traffic = runfile.Features, runfile.Traffic{Rate: 0.5}
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	const planted = "my-private-words"
	for _, k := range []submission{
		{"rondo.in.r.query.q1.submitted", nil, `{"instruction":"` + planted + `","task":"a","session":"anna"}`},
		{"rondo.in.r.query.q2.submitted", nil, `{"instruction":"` + planted +
			`","task":"a","session":"s1","consent":true}`},
		{"rondo.in.r.query.q3.submitted", nil, `{"instruction":"` + planted +
			`","task":"a","session":"anna","agreed":true}`},
		{"rondo.in.r.query.q4.submitted", nil, `{"instruction":"` + planted},
		{"rondo.in.none.query.q5.submitted", nil, `{"instruction":"` + planted + `","task":"a"}`},
		{"rondo.in.r.feedback.g000009-0.recorded", nil, `{"signal":"reject","text":"` + planted + `"}`},
		{"rondo.in.r.group.x1.opened", nil, `{"task":"a","size":1,"policy_version":0,"session":"` + planted + `"}`},
		{"rondo.in.r.group.x2.opened", nil, `{"task":"a","size":"` + planted + `"}`},
	} {
		if answer := send(t, log, k); answer.Error == "" {
			t.Fatalf("%s %s is taken in", k.subject, k.body)
		}
	}
	letters := servicetest.Wait(t, log, events.Catalogue, events.DeadLetteredType, "*", 8)
	for _, e := range append(letters, servicetest.All(t, log, "r")...) {
		if strings.Contains(string(e.Data), planted) {
			t.Errorf("%s: %s", e.ID, e.Data)
		}
	}
	for o, err := range log.Store().List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("object %s is stored", o.Key)
	}
	// A refusal of somebody who is no user keeps what was sent, to look at.
	send(t, log, submission{"rondo.in.r.batch.trainer.consumed", nil, `{"step":7}`})
	last := servicetest.Wait(t, log, events.Catalogue, events.DeadLetteredType, "*", 9)[8]
	if dead := servicetest.Data[events.DeadLettered](t, last); dead.Body == nil {
		t.Errorf("the refused step is %+v", dead)
	}
}
