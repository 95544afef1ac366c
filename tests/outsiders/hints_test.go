package outsiders

import (
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestHintsReachTheBatch: a judge outside states hints about rollouts; the policy's own server
// scores their spans with the hint in the context, and a program outside those that it takes. The
// batch has both at their places, and the run stands up to the audit and to a replay.
func TestHintsReachTheBatch(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint, cfg.Steps = true, server.URL+"/v1", 1
	cfg.Teachers = []runfile.Teacher{{Name: "hinted", URL: runfile.TeacherPolicy, Hints: "judge"},
		{Name: "ours", Hints: "judge"}}
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1, Hints: "judge",
		Teachers: []string{"hinted", "ours"}, TeacherWait: runfile.Duration(time.Hour)}}
	p := newPlane(t, cfg)
	p.open("x1", "theirs", enough, enough)
	p.score("x1-0", "theirs", 1) // of the tokens 1 to 5 the last three are sampled
	p.score("x1-1", "theirs", 0)
	said := func(rollout string, hints ...events.Hint) events.RolloutHinted {
		scored := servicetest.WaitData[events.RolloutScored](t, p.log, "r", events.RolloutScoredType, rollout)
		return events.RolloutHinted{By: "judge", Trajectory: scored.Trajectory.SHA256,
			Hints: append([]events.Hint{}, hints...)}
	}
	for range 2 { // the judge has lost the first answer
		p.must(events.RolloutHintedType, "x1-1", said("x1-1", events.Hint{Start: 2, Length: 1, Text: "no"},
			events.Hint{Start: 3, Length: 2, Text: "Look first.", Tokens: []int32{60, 61}}))
	}
	p.must(events.RolloutHintedType, "x1-0", said("x1-0"))
	values := servicetest.Blob(t, p.log.Store(), events.PackLogprobs([][]float32{{-0.5}, {-1, -1.5}}))
	p.must(events.TeacherScoredType, "x1-1", events.TeacherScored{Teacher: "ours", Trajectory: said("x1-1").Trajectory,
		Tokens: 3, Logprobs: &values})
	ready := p.batch(1)
	data, err := storage.GetBlob(t.Context(), p.log.Store(), ready.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	batch, err := storage.DecodeBatch(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(ready.Masked) > 0 || batch.Hinter != "judge" || !slices.Equal(batch.Hinted, []string{"hinted", "ours"}) ||
		len(batch.Samples) != 2 || len(batch.Samples[0].Hints) > 0 {
		t.Fatalf("the batch %+v is of %d samples with hints of %q for %v", ready, len(batch.Samples),
			batch.Hinter, batch.Hinted)
	}
	s := batch.Samples[1]
	if len(s.Hints) != 2 || s.Hints[0].Text != "no" || s.Hints[1].Text != "Look first." {
		t.Fatalf("the sample has the hints %+v", s.Hints)
	}
	first := slices.Concat([]int32{1, 2}, tokenstest.TeacherTokens("no"), []int32{3})
	second := []int32{1, 2, 60, 61, 3, 4, 5}
	want := [][]float32{{tokenstest.TeacherLogprob(first, 4), tokenstest.TeacherLogprob(second, 5),
		tokenstest.TeacherLogprob(second, 6)}, {-0.5, -1, -1.5}}
	for k, values := range s.TeacherLogprobs {
		if !slices.Equal(values[2:], want[k]) || values[0] == values[0] || values[1] == values[1] {
			t.Errorf("teacher %s gives %v, want %v behind nothing of the prompt", batch.Teachers[k], values, want[k])
		}
	}
	p.must(events.RunClosedType, "r", events.RunClosed{})
	p.prove()
	if stated := servicetest.All(t, p.log, "r", events.RolloutHintedType, events.TeacherScoredType); len(stated) != 4 {
		t.Errorf("on the log are %v", servicetest.IDs(stated))
	}
}
