package intake

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// togetherWith makes a fact of a message that has several.
func togetherWith(t *testing.T, typ events.Type, entity string, data any) together {
	t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return together{typ, entity, body}
}

// whole is group x1 with two rollouts, of which one failed.
func (o outsider) whole() []together {
	o.t.Helper()
	finished := o.finished("x1-0", nil)
	return []together{
		togetherWith(o.t, events.GroupOpenedType, "x1", o.opened()),
		togetherWith(o.t, events.RolloutStartedType, "x1-0", o.started(0)),
		togetherWith(o.t, events.RolloutFinishedType, "x1-0", finished),
		togetherWith(o.t, events.RolloutStartedType, "x1-1", o.started(1)),
		togetherWith(o.t, events.RolloutScoredType, "x1-0", scored(finished)),
		togetherWith(o.t, events.RolloutFailedType, "x1-1",
			events.RolloutFailed{Stage: "harness", Class: "sandbox", Message: "out of disk"}),
	}
}

// handIn sends facts in one message, and gives the answer.
func (o outsider) handIn(group string, facts []together) events.IntakeAnswer {
	o.t.Helper()
	body, err := json.Marshal(facts)
	if err != nil {
		o.t.Fatal(err)
	}
	return send(o.t, o.log, submission{subject: events.IntakeSubject(o.run, events.GroupOpenedType, group),
		body: string(body)})
}

// external are the facts about external groups and rollouts, without their places.
func (o outsider) external() map[string]string {
	facts := map[string]string{}
	for _, e := range servicetest.All(o.t, o.log, o.run) {
		if events.External(e.Entity) {
			facts[e.ID] += fmt.Sprintf("%s %s by %s", e.Type, e.Data, e.Source)
		}
	}
	return facts
}

// TestGroupTogether: a group in one message is the same facts on the same
// chains as a message for each.
func TestGroupTogether(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	facts := o.whole()
	for range 2 { // a client that lost the answer asks again
		if a := o.handIn("x1", facts); a.Error != "" || a.ID != "r/group.x1/opened/0" || a.Sequence == 0 {
			t.Fatalf("the answer is %+v", a)
		}
	}
	r, err := log.Rollout(t.Context(), "r", "x1-0")
	if err != nil || r.Scored == nil || r.Scored.Reward != 0.5 {
		t.Errorf("the rollout is %+v: %v", r, err)
	}
	if r, err = log.Rollout(t.Context(), "r", "x1-1"); err != nil || r.Failed == nil {
		t.Errorf("the other rollout is %+v: %v", r, err)
	}
	one := o.external()

	log = house(t)
	start(t, log)
	o = outsider{t, log, "r"}
	for _, f := range facts {
		if f.Type == events.RolloutFinishedType {
			o.finished("x1-0", nil) // the file, in this log's store
		}
		o.must(f.Type, f.Entity, f.Data)
	}
	if each := o.external(); !maps.Equal(one, each) {
		t.Errorf("in one message:\n%v\none message for each:\n%v", one, each)
	}
}

// TestGroupTogetherGoesOn: an earlier delivery was cut behind any of its facts, or somebody
// handed them in one by one.
func TestGroupTogetherGoesOn(t *testing.T) {
	for cut := range 7 {
		log := house(t)
		start(t, log)
		o := outsider{t, log, "r"}
		facts := o.whole()
		for _, f := range facts[:min(cut, len(facts))] {
			o.must(f.Type, f.Entity, f.Data)
		}
		if a := o.handIn("x1", facts); a.Error != "" {
			t.Fatalf("behind %d facts: %s", cut, a.Error)
		}
		again := o.started(0) // in another process, with other words for the same
		again.Deadline = again.Deadline.Add(time.Second)
		facts[0] = togetherWith(t, events.GroupOpenedType,
			"x1", events.GroupOpened{Task: "a", Size: 2, PolicyVersion: 5})
		facts[1] = togetherWith(t, events.RolloutStartedType, "x1-0", again)
		if a := o.handIn("x1", facts); a.Error != "" {
			t.Fatalf("behind %d facts, again: %s", cut, a.Error)
		}
		if cut > 0 { // and without the opening
			if a := o.handIn("x1", facts[1:]); a.Error != "" {
				t.Fatalf("behind %d facts, without the opening: %s", cut, a.Error)
			}
		}
		for id, said := range o.external() {
			if strings.Count(said, " by outside") != 1 {
				t.Errorf("behind %d facts: %s stands more than once", cut, id)
			}
		}
		if n := len(o.external()); n != len(facts) {
			t.Errorf("behind %d facts: %d facts stand, not %d", cut, n, len(facts))
		}
	}
}

// TestGroupTogetherIsRefused: one fact that is wrong keeps all others out.
func TestGroupTogetherIsRefused(t *testing.T) {
	log := house(t)
	start(t, log)
	o := outsider{t, log, "r"}
	impossible := o.finished("x1-1", func(tr *storage.Trajectory) { tr.Messages[1].Logprobs[0] = 0.5 })
	for name, c := range map[string]struct {
		change func(facts []together) []together
		want   string
	}{
		"no facts":      {func([]together) []together { return []together{} }, "0 of them"},
		"another group": {func(f []together) []together { f[0].Entity = "x2"; return f }, "of group x1"},
		"two openings":  {func(f []together) []together { return append(f, f[0]) }, "only the first one"},
		"rollout of another group": {func(f []together) []together { f[1].Entity = "x2-0"; return f },
			"no rollout of group x1"},
		"a type of its own": {func(f []together) []together { f[1].Type = events.RunClosedType; return f },
			"cannot be handed in together"},
		"no start": {func(f []together) []together { return append(f[:1], f[2:]...) },
			"state rollout.started first"},
		"started twice": {func(f []together) []together { return append(f, f[1]) }, "started already"},
		"scored twice":  {func(f []together) []together { return append(f, f[4]) }, "scored already"},
		"end before its start": {func(f []together) []together { f[1], f[2] = f[2], f[1]; return f },
			"state rollout.started first"},
		"no member": {func(f []together) []together {
			f[3] = togetherWith(t, events.RolloutStartedType, "x1-2", o.started(2))
			return f[:4]
		}, "has 2 members"},
		"another task": {func(f []together) []together {
			f[0] = togetherWith(t, events.GroupOpenedType, "x1", events.GroupOpened{Task: "nobody", Size: 2})
			return f
		}, "nobody"},
		"a schema": {func(f []together) []together { f[4].Data = []byte(`{"reward":"much"}`); return f },
			"rollout.scored: payload"},
		"null": {func(f []together) []together { f[4].Data = nil; return f }, "rollout.scored"},
		"an impossible file": {func(f []together) []together {
			return append(f[:5], togetherWith(t, events.RolloutFinishedType, "x1-1", impossible))
		}, "above 0"},
		"files without bound": {func(f []together) []together {
			huge := o.finished("x1-0", nil)
			huge.Trajectory.Size = 1 << 62 // each one alone is too large, too
			f[2] = togetherWith(t, events.RolloutFinishedType, "x1-0", huge)
			return append(f, f[2], f[2])
		}, "one by one"},
	} {
		a := o.handIn("x1", c.change(o.whole()))
		if !strings.Contains(a.Error, c.want) {
			t.Errorf("%s: %q instead of %q", name, a.Error, c.want)
		}
		if facts := o.external(); len(facts) > 0 {
			t.Fatalf("%s: %v stands on the log", name, facts)
		}
	}
	for _, body := range []string{`[`, `[1]`, `[{"type":"group.opened","entity":"x1","data":{},"prev":7}]`, `[[]]`} {
		if a := send(t, log, submission{subject: "rondo.in.r.group.x1.opened", body: body}); !strings.Contains(a.Error,
			"want a list of objects") {
			t.Errorf("%s: %q", body, a.Error)
		}
	}
	o.run = "old"
	if a := o.handIn("x1", o.whole()); !strings.Contains(a.Error, "run old is closed") {
		t.Errorf("a closed run: %q", a.Error)
	}
	if a := o.handIn("g000001", o.whole()); !strings.Contains(a.Error, "only Rondo's own services") {
		t.Errorf("a group of our own: %q", a.Error)
	}
}

// TestGroupTogetherIsPersonal: the session of a user is kept by no dead letter, wherever
// in the message it stands.
func TestGroupTogetherIsPersonal(t *testing.T) {
	for body, want := range map[string]bool{
		`[{"type":"group.opened","entity":"x1","data":{"task":"a","session":"anna"}}]`: true,
		`[{"type":"group.opened","entity":"x1","data":{"task":"a"}}]`:                  false,
		`{"task":"a","session":"anna"}`:                                                true, `{"task":"a"}`: false,
		`[`: true, `[{"type":"group.opened","data":7}]`: true,
	} {
		if got := personal(message(1, submission{subject: "rondo.in.r.group.x1.opened", body: body})); got != want {
			t.Errorf("%s is personal: %v", body, got)
		}
	}
}

func FuzzTogether(f *testing.F) {
	f.Add([]byte(`[{"type":"group.opened","entity":"x1","data":{"task":"a","size":2}},{"type":"rollout.started","entity":"x1-0","data":{}}]`))
	f.Add([]byte(`[{"type":"rollout.scored","entity":"x1-0","data":null}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := readTogether(body, "x1")
		if err != nil {
			return
		}
		for _, fact := range list {
			if !fact.Type.ExternalOnly() || events.GroupOf(fact.Entity) != "x1" {
				t.Errorf("%s of %q was let through", fact.Type, fact.Entity)
			}
		}
	})
}
