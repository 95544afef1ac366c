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
)

// TestHintsFromOutside: who the run takes hints of may state them of a scored rollout, once, about
// sampled tokens of one turn; a teacher outside then says something of these tokens alone.
func TestHintsFromOutside(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Teachers = []runfile.Teacher{{Name: "hinted", Hints: "judge"}, {Name: "other", Hints: "person"}}
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	o := outsider{t, log, "r"}
	for _, id := range []string{"g000001-0", "g000001-1"} {
		servicetest.StartRollout(t, log, "r", id, "a")
	}
	// of 5 tokens the last 3 are sampled
	finished := servicetest.Finished(t, log.Store(), "r", "g000001-0", servicetest.Trajectory("r", "g000001-0", "a"))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, "g000001-0", "0", finished))
	servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutScoredType, "g000001-0", "0", scored(finished)))
	right := events.RolloutHinted{By: "judge", Trajectory: finished.Trajectory.SHA256,
		Hints: []events.Hint{{Start: 3, Length: 2, Text: "Look first."}}}
	with := func(change func(*events.RolloutHinted)) events.RolloutHinted {
		p := right
		p.Hints = append([]events.Hint(nil), right.Hints...)
		change(&p)
		return p
	}
	hint := func(change func(*events.Hint)) events.RolloutHinted {
		return with(func(p *events.RolloutHinted) { change(&p.Hints[0]) })
	}
	said := func(values ...float32) events.TeacherScored {
		ref := servicetest.Blob(t, log.Store(), events.PackLogprobs([][]float32{values}))
		return events.TeacherScored{Teacher: "hinted", Trajectory: finished.Trajectory.SHA256,
			Tokens: len(values), Logprobs: &ref}
	}
	if refused := o.state(events.TeacherScoredType, "g000001-0", said(-1, -2)); !strings.Contains(refused,
		"takes the hints of judge, who has stated none") {
		t.Errorf("without hints the teacher is answered %q", refused)
	}
	for name, c := range map[string]struct {
		rollout string
		said    events.RolloutHinted
		want    string
	}{
		"of nobody": {"g000001-0", with(func(p *events.RolloutHinted) { p.By = "somebody" }),
			"no feed and no teacher of run r takes hints of that name"},
		"no name":       {"g000001-0", with(func(p *events.RolloutHinted) { p.By = "" }), "by"},
		"no rollout":    {"g000009-0", right, "g000009-0"},
		"no reward yet": {"g000001-1", right, "has no reward"},
		"another trajectory": {"g000001-0", with(func(p *events.RolloutHinted) {
			p.Trajectory = strings.Repeat("0",
				64)
		}), "not the file"},
		"outside":        {"g000001-0", hint(func(h *events.Hint) { h.Start = 4 }), "sample 0 has 5 tokens"},
		"no such sample": {"g000001-0", hint(func(h *events.Hint) { h.Sample = 1 }), "the rollout has 1 samples"},
		"not sampled":    {"g000001-0", hint(func(h *events.Hint) { h.Start = 1 }), "not all sampled in one turn"},
		"negative":       {"g000001-0", hint(func(h *events.Hint) { h.Start = -1 }), "hints.0.start"},
		"no tokens":      {"g000001-0", hint(func(h *events.Hint) { h.Length = 0 }), "hints.0.length"},
		"no text":        {"g000001-0", hint(func(h *events.Hint) { h.Text = "" }), "hints.0.text"},
		"too long": {"g000001-0", hint(func(h *events.Hint) {
			h.Text = strings.Repeat("x",
				events.MaxHintText+1)
		}), "hints.0.text"},
		"too long in bytes": {"g000001-0", hint(func(h *events.Hint) {
			h.Text = strings.Repeat("é",
				events.MaxHintText-1)
		}), "a text of"},
		"too many tokens": {"g000001-0", hint(func(h *events.Hint) {
			h.Tokens = make([]int32,
				events.MaxHintTokens+1)
		}), "hints.0.tokens"},
		"behind its span": {"g000001-0", hint(func(h *events.Hint) { h.At = new(4) }), "at 4"},
		"too many": {"g000001-0", with(func(p *events.RolloutHinted) {
			p.Hints = make([]events.Hint,
				events.MaxHints+1)
		}), "hints"},
		"twice the same": {"g000001-0", with(func(p *events.RolloutHinted) {
			p.Hints = append(p.Hints,
				p.Hints[0])
		}), "do not overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			if refused := o.state(events.RolloutHintedType, c.rollout, c.said); !strings.Contains(refused, c.want) ||
				refused == "" {
				t.Errorf("answered %q, want %q", refused, c.want)
			}
		})
	}
	for range 2 { // a client that has no answer asks again
		o.must(events.RolloutHintedType, "g000001-0", right)
	}
	if refused := o.state(events.RolloutHintedType, "g000001-0",
		hint(func(h *events.Hint) { h.Text = "Look last." })); !strings.Contains(refused, "with other content") {
		t.Errorf("another word of the same hinter is answered %q", refused)
	}
	stated := servicetest.All(t, log, "r", events.RolloutHintedType)
	if len(stated) != 1 || stated[0].ID != "r/rollout.g000001-0/hinted/judge" {
		t.Errorf("on the log are %v", servicetest.IDs(stated))
	}
	for want, p := range map[string]events.TeacherScored{
		"has 2 tokens that teacher hinted scores": said(0, -1, -2, -3, -4),
		"a finite number of at most 0;":           said(-1, float32(math.NaN())),
		"who has stated none": {Teacher: "other", Trajectory: finished.Trajectory.SHA256,
			Failed: "away"},
	} {
		if refused := o.state(events.TeacherScoredType, "g000001-0", p); !strings.Contains(refused, want) {
			t.Errorf("answered %q, want %q", refused, want)
		}
	}
	o.must(events.TeacherScoredType, "g000001-0", said(-1.5, -2))
	if text, _ := json.Marshal(servicetest.Data[events.TeacherScored](t,
		servicetest.All(t, log, "r", events.TeacherScoredType)[0])); !strings.Contains(string(text), `"tokens":2`) {
		t.Errorf("it says %s", text)
	}
	if err := log.Store().Delete(t.Context(), finished.Trajectory.Key); err != nil {
		t.Fatal(err)
	}
	o.must(events.RolloutHintedType, "g000001-0", right) // what was admitted once is not judged again
}
