package intake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

func TestRefusals(t *testing.T) {
	log := house(t)
	start(t, log)
	missing, err := json.Marshal(storage.Ref{Key: "blobs/sha256/ab/none", SHA256: strings.Repeat("ab", 32), Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	good := servicetest.Blob(t, log.Store(), []byte(`{"step":1}`))
	reference := func(ref storage.Ref) string {
		body, err := json.Marshal(ref)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	lying, large := good, good
	lying.SHA256, large.Size = strings.Repeat("0", 64), 1<<29
	dataref := map[string]string{events.HeaderDataRef: "x"}

	for name, c := range map[string]struct {
		submission
		want []string // parts of the answer
	}{
		"malformed JSON": {submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":`},
			[]string{"batch.consumed", "not JSON"}},
		"no body": {submission{subject: "rondo.in.r.batch.trainer.consumed"}, []string{"not JSON"}},
		"two values": {submission{subject: "rondo.in.r.batch.trainer.consumed",
			body: `{"step":1}{"step":2}`}, []string{"not JSON"}},
		"wrong type of field": {submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":"one"}`},
			[]string{"step"}},
		"missing field": {submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{}`},
			[]string{"step"}},
		"unknown field": {submission{subject: "rondo.in.r.batch.trainer.consumed",
			body: `{"step":1,"stepp":1}`}, []string{"stepp"}},
		"number of Go's limits": {submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":1e2}`},
			[]string{"step", "1e2"}},
		"huge number": {submission{subject: "rondo.in.r.rollout.g000001-0.annotated",
			body: `{"turn":99999999999999999999}`}, []string{"turn", "99999999999999999999"}},
		"unknown type": {submission{subject: "rondo.in.r.rollout.g000001-0.exploded", body: `{}`},
			[]string{"rollout.exploded", "unknown"}},
		"type of our own": {submission{subject: "rondo.in.r.rollout.g000001-0.scored", body: `{"reward":1}`},
			[]string{"rollout.scored", "outsiders"}},
		"unknown run": {submission{subject: "rondo.in.nobody.batch.trainer.consumed", body: `{"step":1}`},
			[]string{`"nobody"`}},
		"reserved run": {submission{subject: "rondo.in.IN.batch.trainer.consumed", body: `{"step":1}`},
			[]string{`"IN"`, "reserved"}},
		"open a reserved run": {submission{subject: "rondo.in.DEAD.run.DEAD.opened",
			body: openedBody(t, func(*runfile.RunConfig) {})}, []string{`"DEAD"`, "reserved"}},
		"no run": {submission{subject: "rondo.in._.batch.trainer.consumed", body: `{"step":1}`},
			[]string{"name a run"}},
		"unknown feed": {submission{subject: "rondo.in.r.batch.judge.consumed", body: `{"step":1}`},
			[]string{`feed "judge"`}},
		"step not reached": {submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":3}`},
			[]string{"step 3", "step 2"}},
		"checkpoint not there": {submission{subject: "rondo.in.r.batch.trainer.checkpointed", body: `{"step":3}`},
			[]string{"step 3"}},
		"rewound too far": {submission{subject: "rondo.in.r.batch.trainer.rewound", body: `{"to_step":7}`},
			[]string{"to_step 7"}},
		"pause a closed run": {submission{subject: "rondo.in.old.run.old.paused", body: `{}`},
			[]string{"run old is closed"}},
		"open a closed run": {submission{subject: "rondo.in.old.run.old.opened",
			body: openedBody(t, func(*runfile.RunConfig) {})}, []string{"run old is closed"}},
		"open with another": {submission{subject: "rondo.in.r.run.r.opened",
			body: openedBody(t, func(c *runfile.RunConfig) { c.Seed = 9 })},
			[]string{`"r" already`, "another configuration"}},
		"invalid configuration": {submission{subject: "rondo.in.new.run.new.opened",
			body: openedBody(t, func(c *runfile.RunConfig) { c.GroupSize = 0 })},
			[]string{"group_size 0", "1 to 1024"}},
		"endpoint with a key": {submission{subject: "rondo.in.new.run.new.opened",
			body: openedBody(t, func(c *runfile.RunConfig) { c.Endpoint = "http://user:pass@host/v1" })},
			[]string{"endpoint"}},
		"task twice": {submission{subject: "rondo.in.new.run.new.opened",
			body: openedBody(t, func(c *runfile.RunConfig) { c.Tasks = append(c.Tasks, c.Tasks[0]) })},
			[]string{"tasks", "twice"}},
		"task without snapshot": {submission{subject: "rondo.in.new.run.new.opened",
			body: openedBody(t, func(c *runfile.RunConfig) { c.Tasks[0].Snapshot = storage.Ref{} })},
			[]string{"tasks", "snapshot"}},
		"entity is not the run": {submission{subject: "rondo.in.r.run.other.paused", body: `{}`},
			[]string{`"r"`, `"other"`}},
		"subject too short": {submission{subject: "rondo.in.r.batch.consumed", body: `{}`}, []string{"<entity>"}},
		"subject too long": {submission{subject: "rondo.in.r.batch.trainer.consumed.now", body: `{}`},
			[]string{"<entity>"}},
		"entity with odd runes": {submission{subject: "rondo.in.r.batch.träiner.consumed", body: `{}`},
			[]string{"entity", "träiner"}},
		"reference is no JSON": {submission{"rondo.in.r.batch.trainer.consumed", dataref, `nonsense`},
			[]string{"body", "reference"}},
		"body is missing": {submission{"rondo.in.r.batch.trainer.consumed", dataref, string(missing)},
			[]string{"body", "blobs/sha256/ab/none"}},
		"body is another": {submission{"rondo.in.r.batch.trainer.consumed", dataref, reference(lying)},
			[]string{"body", "sha256"}},
		"body is too large": {submission{"rondo.in.r.batch.trainer.consumed", dataref, reference(large)},
			[]string{"body", "536870912 bytes"}},
		"body outside": {submission{"rondo.in.r.batch.trainer.consumed", dataref,
			`{"ref":"../../etc/passwd","sha256":"` + strings.Repeat("0", 64) + `","size":1}`}, []string{"body"}},
		"weights of a run": {submission{subject: "rondo.in.r.weights.small.submitted",
			body: `{"version":1,"run":"r","through_step":0,"files":[{"name":"m.safetensors","blob":` + string(missing) +
				`}]}`}, []string{"catalogue", "rondo.in._.weights.small.submitted"}},
		"weights without files": {submission{subject: "rondo.in._.weights.small.submitted",
			body: `{"version":1,"run":"r","through_step":0,"files":[]}`}, []string{"files"}},
		"unknown rollout": {submission{subject: "rondo.in.r.rollout.g000009-0.annotated", body: `{"text":"hm"}`},
			[]string{`rollout "g000009-0"`}},
		"turn of no rollout": {submission{subject: "rondo.in.r.rollout.g000009-0.annotated", body: `{"turn":0}`},
			[]string{`rollout "g000009-0"`}},
		"turn not reached": {submission{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"turn":1}`},
			[]string{"turn 1", "1 turns"}},
		"invalidate unknown": {submission{subject: "rondo.in.r.rollout.g000009-1.invalidated",
			body: `{"reason":"odd"}`}, []string{`rollout "g000009-1"`}},
		"message id too long": {submission{"rondo.in.r.batch.trainer.consumed",
			map[string]string{events.HeaderMessageID: strings.Repeat("x", 200)}, `{"step":1}`},
			[]string{events.HeaderMessageID}},
		"message id of our own": {submission{"rondo.in.r.batch.trainer.consumed",
			map[string]string{events.HeaderMessageID: "door-1"}, `{"step":1}`}, []string{events.HeaderMessageID}},
	} {
		before := len(servicetest.All(t, log, "r"))
		answer := send(t, log, c.submission)
		if answer.Error == "" {
			t.Errorf("%s: accepted as %s", name, answer.ID)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(answer.Error, part) {
				t.Errorf("%s: the answer %q does not say %q", name, answer.Error, part)
			}
		}
		letters := servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)
		last := servicetest.Data[events.DeadLettered](t, letters[len(letters)-1])
		if last.Reason != answer.Error || last.Subject != c.subject {
			t.Errorf("%s: the dead letter is %+v", name, last)
		}
		body, err := storage.GetBlob(t.Context(), log.Store(), *last.Body)
		if err != nil || string(body) != c.body {
			t.Errorf("%s: the dead letter holds %q: %v", name, body, err)
		}
		if after := len(servicetest.All(t, log, "r")); after != before {
			t.Errorf("%s: it changed the run", name)
		}
	}
	// None of it stops what is right.
	if a := send(t, log, submission{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":1}`}); a.Error != "" ||
		a.Sequence == 0 {
		t.Errorf("a right fact is answered %+v", a)
	}
	runs, err := log.Runs(t.Context())
	if err != nil || len(runs) != 2 {
		t.Errorf("refused openings left runs %v: %v", runs, err)
	}
}
