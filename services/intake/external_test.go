package intake

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// outsider states the facts of one group of a harness that lives elsewhere.
type outsider struct {
	t   *testing.T
	log *eventlog.Log
	run string
}

// state states a fact and returns why it was refused, "" when it was not.
func (o outsider) state(t events.Type, entity string, data any) string {
	o.t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		o.t.Fatal(err)
	}
	return send(o.t, o.log, submission{subject: events.IntakeSubject(o.run, t, entity), body: string(body)}).Error
}

// must states a fact that is to be taken in.
func (o outsider) must(t events.Type, entity string, data any) {
	o.t.Helper()
	if refused := o.state(t, entity, data); refused != "" {
		o.t.Fatalf("%s of %s: %s", t, entity, refused)
	}
}

func (o outsider) opened() events.GroupOpened { return events.GroupOpened{Task: "a", Size: 2} }

func (o outsider) started(member int) events.RolloutStarted {
	return events.RolloutStarted{Group: "x1", Member: member, Task: "a", Seed: 7,
		Deadline: time.Now().Add(time.Minute).UTC()}
}

// finished writes a trajectory file and names it.
func (o outsider) finished(id string, change func(*storage.Trajectory)) events.RolloutFinished {
	o.t.Helper()
	tr := servicetest.Trajectory(o.run, id, "a")
	if change != nil {
		change(tr)
	}
	return servicetest.Finished(o.t, o.log.Store(), o.run, id, tr)
}

func scored(f events.RolloutFinished) events.RolloutScored {
	return events.RolloutScored{Reward: 0.5, Trajectory: f.Trajectory}
}

// TestExternalGroup hands a whole group in, each fact twice.
func TestExternalGroup(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	workspace := servicetest.Blob(t, log.Store(), []byte("a change"))
	first, second := o.finished("x1-0", nil), o.finished("x1-1", nil)
	first.Workspace = &workspace
	for _, f := range []struct {
		typ    events.Type
		entity string
		data   any
	}{
		{events.GroupOpenedType, "x1", o.opened()},
		{events.RolloutStartedType, "x1-1", o.started(1)},
		{events.RolloutStartedType, "x1-0", o.started(0)},
		{events.RolloutFinishedType, "x1-0", first},
		{events.RolloutAnnotatedType, "x1-0", events.RolloutAnnotated{Text: "well done"}},
		{events.RolloutScoredType, "x1-0", scored(first)},
		{events.RolloutFinishedType, "x1-1", second},
		{events.RolloutFailedType, "x1-1", events.RolloutFailed{Stage: "harness", Class: "sandbox",
			Message: "out of disk"}},
	} {
		o.must(f.typ, f.entity, f.data)
		o.must(f.typ, f.entity, f.data) // a client that lost the answer asks again
	}
	for _, id := range []string{"r/group.x1/opened/0", "r/rollout.x1-0/finished/0", "r/rollout.x1-0/scored/0",
		"r/rollout.x1-1/failed/0"} {
		n := 0
		for _, e := range servicetest.All(t, log, "r") {
			if e.ID == id {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s stands %d times", id, n)
		}
	}
	r, err := log.Rollout(t.Context(), "r", "x1-0")
	if err != nil || r.Scored == nil || r.Scored.Reward != 0.5 || r.Finished.Sampled != 3 {
		t.Errorf("the rollout is %+v: %v", r, err)
	}
	other := scored(first)
	other.Reward = 1
	if refused := o.state(events.RolloutScoredType, "x1-0", other); !strings.Contains(refused, "with other content") {
		t.Errorf("another reward: %q", refused)
	}
}

func TestExternalRefusals(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, "small",
		"1", events.WeightsPublished{Policy: "small", Version: 3}))
	o.must(events.GroupOpenedType, "x1", events.GroupOpened{Task: "a", Size: 4, PolicyVersion: 2})
	begun := func(member int) events.RolloutStarted {
		s := o.started(member)
		s.PolicyVersion = 3
		return s
	}
	for member := range 3 {
		o.must(events.RolloutStartedType, fmt.Sprintf("x1-%d", member), begun(member))
	}
	dispatched := func(tr *storage.Trajectory) { tr.DispatchVersion = 3 }
	done := o.finished("x1-1", dispatched)
	o.must(events.RolloutFinishedType, "x1-1", done)
	o.must(events.RolloutFailedType, "x1-2", events.RolloutFailed{Stage: "harness", Class: "deadline"})

	// Each case changes what would be right.
	group := func(change func(*events.GroupOpened)) events.GroupOpened {
		g := o.opened()
		change(&g)
		return g
	}
	member := func(change func(*events.RolloutStarted)) events.RolloutStarted {
		s := begun(3)
		change(&s)
		return s
	}
	end := func(change func(*events.RolloutFinished)) events.RolloutFinished {
		f := o.finished("x1-0", dispatched)
		change(&f)
		return f
	}
	score := func(change func(*events.RolloutScored)) events.RolloutScored {
		s := scored(done)
		change(&s)
		return s
	}
	foreign := func(change func(*storage.Trajectory)) events.RolloutFinished {
		f := o.finished("x1-0", func(tr *storage.Trajectory) { dispatched(tr); change(tr) })
		f.Task = "a"
		return f
	}
	rubbish, err := storage.PutNamed(t.Context(), log.Store(), "runs/r/trajectories/x1-0",
		"arrow", []byte("no arrow file"))
	if err != nil {
		t.Fatal(err)
	}
	missing := storage.Ref{Key: storage.BlobKey(fmt.Sprintf("%064d", 0)), SHA256: fmt.Sprintf("%064d", 0), Size: 1}
	for name, c := range map[string]struct {
		typ    events.Type
		entity string
		data   any
		want   []string
	}{
		"a group of our own": {events.GroupOpenedType, "g000007", o.opened(), []string{"begin with x"}},
		"a name with a dash": {events.GroupOpenedType, "x1-2", o.opened(), []string{`"x1-2"`, "letters"}},
		"a name that is too long": {events.GroupOpenedType, "x" + strings.Repeat("a", 60), o.opened(),
			[]string{"at most 48"}},
		"no members": {events.GroupOpenedType, "x2", group(func(g *events.GroupOpened) { g.Size = 0 }),
			[]string{"size 0", "1 to 1024"}},
		"too many members": {events.GroupOpenedType, "x2",
			group(func(g *events.GroupOpened) { g.Size = 1025 }), []string{"size 1025"}},
		"a task nobody knows": {events.GroupOpenedType, "x2",
			group(func(g *events.GroupOpened) { g.Task = "z" }), []string{`task "z"`}},
		"a version to come": {events.GroupOpenedType, "x2",
			group(func(g *events.GroupOpened) { g.PolicyVersion = 4 }), []string{"policy_version 4", "version 3"}},
		"a group as another": {events.GroupOpenedType, "x1", group(func(g *events.GroupOpened) { g.Size = 3 }),
			[]string{"x1", "other content"}},
		"a member of no group": {events.RolloutStartedType, "x9-0", begun(0),
			[]string{`group "x9"`, "group.opened first"}},
		"a member of another group": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.Group = "x2" }), []string{`group "x2"`}},
		"a member too many":      {events.RolloutStartedType, "x1-4", begun(4), []string{"member 4", "4 members"}},
		"another member's id":    {events.RolloutStartedType, "x1-3", begun(0), []string{`"x1-3"`, `"x1-0"`}},
		"a number spelled oddly": {events.RolloutStartedType, "x1-03", begun(3), []string{`"x1-03"`, `"x1-3"`}},
		"another task": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.Task = "b" }), []string{`task "b"`, `"a"`}},
		"older than its group": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.PolicyVersion = 1 }), []string{"policy_version 1", "version 2"}},
		"newer than the policy": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.PolicyVersion = 9 }), []string{"policy_version 9"}},
		"no deadline": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.Deadline = time.Time{} }), []string{"deadline", "10m0s"}},
		"a deadline far away": {events.RolloutStartedType, "x1-3",
			member(func(s *events.RolloutStarted) { s.Deadline = time.Now().Add(time.Hour) }),
			[]string{"deadline", "10m0s"}},

		"an end without a start": {events.RolloutFinishedType, "x1-3", end(func(*events.RolloutFinished) {}),
			[]string{`"x1-3"`, "rollout.started first"}},
		"a second end": {events.RolloutFinishedType, "x1-1",
			end(func(f *events.RolloutFinished) { f.Turns = 7 }), []string{"x1-1", "already"}},
		"an end after a failure": {events.RolloutFinishedType, "x1-2", o.finished("x1-2", dispatched),
			[]string{"x1-2 has failed already"}},
		"a file elsewhere": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory = done.Trajectory }),
			[]string{"runs/r/trajectories/x1-0-"}},
		"a file of another name": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory.SHA256 = strings.Repeat("a", 64) }),
			[]string{"put the file at"}},
		"a digest of nothing": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory.SHA256 = "" }), []string{"put the file at"}},
		"another size": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory.Size++ }), []string{"trajectory", "no object"}},
		"a huge file": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory.Size = 1 << 29 }),
			[]string{"trajectory", "536870912 bytes"}},
		"no file at all": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory = missingTrajectory() }),
			[]string{"trajectory", "no object"}},
		"rubbish in the file": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Trajectory = rubbish }), []string{"no trajectory file"}},
		"a file of another run": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.Run = "old" }), []string{"run_id is not the rollout's, r"}},
		"of another group": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.Group = "x2" }), []string{"group_id is not the rollout's, x1"}},
		"of another rollout": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.Rollout = "x1-1" }),
			[]string{"rollout_id is not the rollout's, x1-0"}},
		"of another task": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.Task = "b" }), []string{"task is not the rollout's, a"}},
		"of another dispatch": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.DispatchVersion = 1 }),
			[]string{"dispatch_version is not the rollout's, 3"}},
		"of weights to come": {events.RolloutFinishedType, "x1-0",
			foreign(func(tr *storage.Trajectory) { tr.Messages[1].PolicyVersion = 9 }), []string{"max_version 9"}},
		"a task beside the file": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Task = "b" }), []string{`task "b"`}},
		"tokens that are not": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Tokens = 99 }), []string{"tokens 99", "another value"}},
		"sampled that are not": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Sampled = 5 }), []string{"sampled 5", "another value"}},
		"turns that are not": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Turns = 5 }), []string{"turns 5", "another value"}},
		"a workspace that is not": {events.RolloutFinishedType, "x1-0",
			end(func(f *events.RolloutFinished) { f.Workspace = &missing }), []string{"workspace", "no object"}},

		"a score without an end": {events.RolloutScoredType, "x1-0", scored(done),
			[]string{"x1-0 is not finished", "rollout.finished first"}},
		"a score of a failure": {events.RolloutScoredType, "x1-2", scored(done), []string{"x1-2 has failed already"}},
		"a huge reward": {events.RolloutScoredType, "x1-1",
			score(func(s *events.RolloutScored) { s.Reward = 1e300 }), []string{"reward 1e+300", "within"}},
		"a huge component": {events.RolloutScoredType, "x1-1",
			score(func(s *events.RolloutScored) { s.Components = map[string]float64{"style": -1e300} }),
			[]string{"components", "style"}},
		"another trajectory": {events.RolloutScoredType, "x1-1",
			score(func(s *events.RolloutScored) { s.Trajectory = rubbish }),
			[]string{"trajectory", done.Trajectory.Key}},
		"a log that is not": {events.RolloutScoredType, "x1-1",
			score(func(s *events.RolloutScored) { s.Log = &missing }), []string{"log", "no object"}},
		"tests that are too many": {events.RolloutScoredType, "x1-1", score(func(s *events.RolloutScored) {
			s.Tests = &grade.Tests{Graded: 2, Held: 2, Unmet: []grade.UnmetTest{{Name: "a", State: "failed"}}}
		}), []string{"2 held and 1 unmet, but 2 are graded"}},
		"a forfeit that pays": {events.RolloutScoredType, "x1-1",
			score(func(s *events.RolloutScored) { s.Forfeit = &events.Forfeit{Class: verifier.ClassTimeout} }),
			[]string{"forfeit timeout", "0 or less, not 0.5"}},
		"a forfeit that talks": {events.RolloutScoredType, "x1-1", score(func(s *events.RolloutScored) {
			s.Reward, s.Forfeit = 0, &events.Forfeit{Class: verifier.ClassTimeout, Message: strings.Repeat("x", 5000)}
		}), []string{"forfeit.message", "at most 4000"}},
		"a failure of nobody": {events.RolloutFailedType, "x1-3",
			events.RolloutFailed{Stage: "s", Class: "c"}, []string{`"x1-3"`}},
		"a failure without class": {events.RolloutFailedType, "x1-1",
			events.RolloutFailed{Stage: "s"}, []string{"class"}},
		"a turn of an end to be": {events.RolloutAnnotatedType, "x1-1", events.RolloutAnnotated{Turn: new(1)},
			[]string{"turn 1", "1 turns"}},
	} {
		before := len(servicetest.All(t, log, "r"))
		refused := o.state(c.typ, c.entity, c.data)
		if refused == "" {
			t.Errorf("%s: taken in", name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(refused, part) {
				t.Errorf("%s: the answer %q does not say %q", name, refused, part)
			}
		}
		if after := len(servicetest.All(t, log, "r")); after != before {
			t.Errorf("%s: it changed the run", name)
		}
	}
	for _, reward := range []string{"NaN", "1e999", `"1"`} {
		body := strings.Replace(string(mustJSON(t, scored(done))), "0.5", reward, 1)
		if a := send(t, log, submission{subject: events.IntakeSubject("r", events.RolloutScoredType, "x1-1"),
			body: body}); a.Error == "" {
			t.Errorf("a reward of %s is taken in", reward)
		}
	}
	o.must(events.RolloutAnnotatedType, "x1-1", events.RolloutAnnotated{Turn: new(0)})
	o.must(events.RolloutScoredType, "x1-1", scored(done)) // none of it stops what is right
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// missingTrajectory has the right name for a file that is not there.
func missingTrajectory() storage.Ref {
	digest := strings.Repeat("ab", 32)
	return storage.Ref{Key: "runs/r/trajectories/x1-0-" + digest[:16] + ".arrow", SHA256: digest, Size: 10}
}

// TestBackpressure: a paused or full run takes no new group, and lets what is open end.
func TestBackpressure(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", o.opened())
	o.must(events.RunPausedType, "r", events.RunPaused{Reason: "maintenance"})
	refused := o.state(events.GroupOpenedType, "x2", o.opened())
	for _, part := range []string{"run r is paused", "maintenance", "rondo run resume r"} {
		if !strings.Contains(refused, part) {
			t.Errorf("the answer %q does not say %q", refused, part)
		}
	}
	o.must(events.RolloutStartedType, "x1-0", o.started(0))
	o.must(events.RunResumedType, "r", events.RunResumed{})
	o.must(events.GroupOpenedType, "x2", o.opened())

	shrink(t, log, "r")
	refused = o.state(events.GroupOpenedType, "x3", o.opened())
	if !strings.Contains(refused, "% full") || !strings.Contains(refused, "70 %") {
		t.Errorf("of a full stream: %q", refused)
	}
	o.must(events.RolloutStartedType, "x1-1", o.started(1))

	servicetest.CloseRun(t, log, "r")
	for _, c := range []struct {
		typ    events.Type
		entity string
		data   any
	}{{events.GroupOpenedType, "x4", o.opened()}, {events.RolloutStartedType, "x2-0",
		func() any { s := o.started(0); s.Group = "x2"; return s }()}} {
		if refused := o.state(c.typ, c.entity, c.data); !strings.Contains(refused, "closed") &&
			!strings.Contains(refused, "full") {
			t.Errorf("%s in a closed run: %q", c.typ, refused)
		}
	}
}

// shrink makes a run's stream so small that three quarters of it are full. Nobody may begin to read
// the stream meanwhile: in nats-server 2.15.3 a consumer that is made while its stream is changed
// reads the stream's settings without their lock.
func shrink(t *testing.T, log *eventlog.Log, run string) {
	t.Helper()
	stream, err := log.JetStream().Stream(t.Context(), events.RunStream(run))
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info.Config.MaxBytes = int64(info.State.Bytes) * 4 / 3
	if _, err := log.JetStream().UpdateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
}

// TestARunWithoutTasks takes outsiders' word for the names of tasks.
func TestARunWithoutTasks(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint = true, ""
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	o := outsider{t, log, "r"}
	o.must(events.GroupOpenedType, "x1", events.GroupOpened{Task: "anything at all", Size: 1})
	if refused := o.state(events.GroupOpenedType, "x2",
		events.GroupOpened{Size: 1}); !strings.Contains(refused, "task") {
		t.Errorf("a group without a task: %q", refused)
	}
}

// TestRequiredVersions: in a run that trains only on tokens of known versions, an outsider states
// how many of its tokens are of none. In others it may.
func TestRequiredVersions(t *testing.T) {
	log := house(t)
	start(t, log)
	strict := servicetest.Config("a")
	strict.Staleness.RequireVersions = true
	servicetest.OpenRun(t, log, "strict", strict)
	for _, run := range []string{"strict", "r"} {
		o := outsider{t, log, run}
		o.must(events.GroupOpenedType, "x1", o.opened())
		o.must(events.RolloutStartedType, "x1-0", o.started(0))
	}
	for _, c := range []struct {
		run    string
		stated int
		want   string
	}{{"strict", 0, "unknown_versions 0"}, {"strict", 2, "unknown_versions 2"}, {"strict", 1, ""},
		{"r", 2, "unknown_versions 2"}, {"r", 0, ""}} {
		o := outsider{t, log, c.run}
		f := o.finished("x1-0", func(tr *storage.Trajectory) {
			m := &tr.Messages[1]
			m.PolicyVersion, m.Versions = -1, []storage.VersionSegment{{Length: 2}, {Start: 2, Length: 1, Version: -1}}
		})
		f.MinVersion, f.UnknownVersions = 0, c.stated
		if refused := o.state(events.RolloutFinishedType, "x1-0", f); (refused == "") != (c.want == "") ||
			!strings.Contains(refused, c.want) {
			t.Errorf("%d stated in run %s: %q", c.stated, c.run, refused)
		}
	}
}
