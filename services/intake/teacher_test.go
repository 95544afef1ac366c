package intake

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestTeachersOutside: a teacher without an address may say what it finds of a scored rollout,
// once, of all of its tokens, and nothing that is no log-probability.
func TestTeachersOutside(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Teachers = []runfile.Teacher{{Name: "big"}, {Name: "own", URL: "http://127.0.0.1:1/v1", Model: "m"}}
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	o := outsider{t, log, "r"}
	for _, id := range []string{"g000001-0", "g000001-1"} {
		servicetest.StartRollout(t, log, "r", id, "a")
	}
	trajectory := servicetest.Trajectory("r", "g000001-0", "a")
	finished := servicetest.Finished(t, log.Store(), "r", "g000001-0", trajectory)
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, "g000001-0", "0", finished))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutScoredType, "g000001-0", "0", scored(finished)))
	values := make([]float32, finished.Tokens)
	for i := range values {
		values[i] = -float32(i) / 8
	}
	said := func(change func(values []float32) []float32) events.TeacherScored {
		list := change(append([]float32(nil), values...))
		ref := servicetest.Blob(t, log.Store(), events.PackLogprobs([][]float32{list}))
		return events.TeacherScored{Teacher: "big", Trajectory: finished.Trajectory.SHA256, Tokens: len(list),
			Logprobs: &ref, Model: "theirs"}
	}
	right := said(func(v []float32) []float32 { return v })
	with := func(change func(*events.TeacherScored)) events.TeacherScored {
		p := right
		change(&p)
		return p
	}
	set := func(i int, v float32) events.TeacherScored {
		return said(func(list []float32) []float32 { list[i] = v; return list })
	}
	for name, c := range map[string]struct {
		rollout string
		said    events.TeacherScored
		want    string
	}{
		"unknown teacher": {"g000001-0", with(func(p *events.TeacherScored) { p.Teacher = "small" }),
			`run r has no teacher of that name`},
		"the service's own": {"g000001-0", with(func(p *events.TeacherScored) { p.Teacher = "own" }),
			"the run's own service asks it"},
		"no rollout":    {"g000009-0", right, "g000009-0"},
		"no reward yet": {"g000001-1", right, "has no reward"},
		"another trajectory": {"g000001-0", with(func(p *events.TeacherScored) {
			p.Trajectory = strings.Repeat("0",
				64)
		}), "not the file"},
		"one too few":    {"g000001-0", said(func(v []float32) []float32 { return v[1:] }), "tokens"},
		"count and size": {"g000001-0", with(func(p *events.TeacherScored) { p.Tokens-- }), "tokens"},
		"both": {"g000001-0", with(func(p *events.TeacherScored) { p.Failed = "no" }),
			"give one of them"},
		"neither": {"g000001-0", with(func(p *events.TeacherScored) { p.Logprobs = nil }),
			"give one of them"},
		"above 0":  {"g000001-0", set(1, 0.25), "a finite number of at most 0"},
		"NaN":      {"g000001-0", set(1, float32(math.NaN())), "a finite number of at most 0"},
		"infinite": {"g000001-0", set(1, float32(math.Inf(-1))), "a finite number of at most 0"},
		"shifted": {"g000001-0", said(func(v []float32) []float32 { return append(v[1:], 0) }),
			"0 for the first token"},
		"no object": {"g000001-0", with(func(p *events.TeacherScored) {
			p.Logprobs = &storage.Ref{Key: storage.BlobKey(strings.Repeat("a", 64)), SHA256: strings.Repeat("a", 64),
				Size: right.Logprobs.Size}
		}), "the store has no object"},
		"another's object": {"g000001-0", with(func(p *events.TeacherScored) { p.Logprobs = &finished.Trajectory }),
			"ref"},
	} {
		t.Run(name, func(t *testing.T) {
			if refused := o.state(events.TeacherScoredType, c.rollout, c.said); !strings.Contains(refused, c.want) {
				t.Errorf("answered %q, want %q", refused, c.want)
			}
		})
	}
	for range 2 { // a client that has no answer asks again
		o.must(events.TeacherScoredType, "g000001-0", right)
	}
	if refused := o.state(events.TeacherScoredType, "g000001-0",
		set(1, -3)); !strings.Contains(refused, "with other content") {
		t.Errorf("another word of the same teacher is answered %q", refused)
	}
	stated := servicetest.All(t, log, "r", events.TeacherScoredType)
	if len(stated) != 1 || stated[0].ID != "r/rollout.g000001-0/teacher_scored/big" {
		t.Errorf("on the log are %v", servicetest.IDs(stated))
	}
	if text, _ := json.Marshal(servicetest.Data[events.TeacherScored](t, stated[0])); !strings.Contains(string(text),
		right.Logprobs.SHA256) {
		t.Errorf("it says %s", text)
	}
}
