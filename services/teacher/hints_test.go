package teacher

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// The class's rollouts have one sampled token in each sample, the last one.
var (
	spelled = events.Hint{Start: 5, Length: 1, Text: "Look first.", Tokens: []int32{50, 51}, At: new(2)}
	plain   = events.Hint{Sample: 1, Start: 2, Length: 1, Text: "Shorter."}
)

// hinted lets a hinter say something of the scored rollout, and gives the message about it.
func (k *class) hinted(by, trajectory string, list ...events.Hint) pipeline.Message {
	k.t.Helper()
	fact := servicetest.Append(k.t, k.log, servicetest.Event(k.t, testRun, events.RolloutHintedType, rollout, by,
		events.RolloutHinted{By: by, Trajectory: trajectory, Hints: list}))
	stored, err := k.log.Event(k.t.Context(), testRun, fact.Seq)
	if err != nil {
		k.t.Fatal(err)
	}
	return pipeline.Message{Event: stored, Seq: fact.Seq, Time: stored.Time, Delivered: 1,
		Log: k.log.At(testRun, fact.Seq)}
}

func (k *class) trajectory(m pipeline.Message) string {
	return servicetest.Data[events.RolloutScored](k.t, m.Event).Trajectory.SHA256
}

// spans are what a teacher has said of the hints' tokens.
func (k *class) spans(said events.TeacherScored, lengths ...int) [][]float32 {
	k.t.Helper()
	if said.Logprobs == nil || said.Failed != "" {
		k.t.Fatalf("the teacher said %+v", said)
	}
	data, err := storage.GetBlob(k.t.Context(), k.log.Store(), *said.Logprobs)
	if err != nil {
		k.t.Fatal(err)
	}
	lists, err := events.UnpackSpans(data, lengths)
	if err != nil {
		k.t.Fatal(err)
	}
	return lists
}

// TestHintedSpansAreScored: a teacher that takes hints is asked about each sample up to the end of
// the span, with the one hint in its place, given as tokens or as a text. It says nothing of whole
// rollouts, and speaks once.
func TestHintedSpansAreScored(t *testing.T) {
	for _, api := range runfile.TeacherAPIs {
		t.Run(api, func(t *testing.T) {
			server, whole := tokenstest.NewTeacher(t), tokenstest.NewTeacher(t)
			k := newClass(t, runfile.Teacher{Name: "hinted", URL: server.URL + "/v1", API: api, Model: "m",
				Hints: "judge"}, runfile.Teacher{Name: "whole", URL: whole.URL + "/v1", Model: "m"},
				runfile.Teacher{Name: "ours", Hints: "judge"})
			scored := k.scored(false)
			messages := []pipeline.Message{scored, k.hinted("judge", k.trajectory(scored), spelled, plain),
				k.hinted("nobody", k.trajectory(scored), plain)}
			for range 2 {
				for _, m := range messages {
					if err := k.record(m); err != nil {
						t.Fatal(err)
					}
				}
			}
			said := k.said()
			if len(said) != 2 || said["hinted"].Tokens != 2 || said["whole"].Tokens != 9 {
				t.Fatalf("they said %+v", said)
			}
			first := []int32{1, 2, 50, 51, 3, 4, 5, 6}
			second := slices.Concat([]int32{9, 8}, tokenstest.TeacherTokens(plain.Text), []int32{7})
			got := k.spans(said["hinted"], 1, 1)
			if want := tokenstest.TeacherLogprob(first, 7); got[0][0] != want {
				t.Errorf("the first span has %v, want %g", got[0], want)
			}
			if want := tokenstest.TeacherLogprob(second, len(second)-1); got[1][0] != want {
				t.Errorf("the second span has %v, want %g", got[1], want)
			}
			if prompts := server.Prompts(); len(prompts) != 3 || !slices.Equal(prompts[0], first) ||
				!slices.Equal(prompts[2], second) {
				t.Errorf("the server was asked about %v", prompts)
			}
		})
	}
}

// TestThePolicyIsItsOwnTeacher: a teacher whose url is policy is asked at one of the run's own
// servers, under the name that these know it by.
func TestThePolicyIsItsOwnTeacher(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Endpoint, cfg.Endpoints = "", []runfile.Endpoint{{URL: server.URL + "/v1", Slots: 1, Model: "served"}}
	cfg.Teachers = []runfile.Teacher{{Name: "hinted", URL: runfile.TeacherPolicy, Hints: "judge"}}
	servicetest.OpenRun(t, log, testRun, cfg)
	k := &class{t, log}
	scored := k.scored(false)
	if err := k.record(k.hinted("judge", k.trajectory(scored), spelled)); err != nil {
		t.Fatal(err)
	}
	if said := k.said()["hinted"]; said.Model != "served" || said.Tokens != 1 {
		t.Errorf("it said %+v", said)
	}
}

// TestHintsThatCannotBeScored: what a server makes no tokens of has failed, and is not asked about
// for ever. Where nothing was found nobody is asked.
func TestHintsThatCannotBeScored(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	server.Status = func() int { return http.StatusBadRequest }
	k := newClass(t, runfile.Teacher{Name: "hinted", URL: server.URL + "/v1", Model: "m", Hints: "judge"})
	scored := k.scored(false)
	if err := k.record(k.hinted("judge", k.trajectory(scored), plain)); err != nil {
		t.Fatal(err)
	}
	if said := k.said()["hinted"]; said.Logprobs != nil || !strings.Contains(said.Failed, "400") {
		t.Errorf("it said %+v", said)
	}
	other := newClass(t, runfile.Teacher{Name: "hinted", URL: server.URL + "/v1", Model: "m", Hints: "judge"})
	asked := len(server.Prompts())
	if err := other.record(other.hinted("judge", other.trajectory(other.scored(false)))); err != nil ||
		len(other.said()) > 0 || len(server.Prompts()) != asked {
		t.Errorf("without hints: %v, %v", err, other.said())
	}
}

// TestKilledHintedTeacher: hints are consumed from the run's stream, and a service that starts
// behind them finds them there.
func TestKilledHintedTeacher(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	k := newClass(t, runfile.Teacher{Name: "hinted", URL: server.URL + "/v1", Model: "m", Hints: "judge"})
	scored := k.scored(false)
	m := k.hinted("judge", k.trajectory(scored), spelled)
	if facts, _ := New(k.log.Store(), fleet.Keys{}).Handle(t.Context(), m); len(facts) != 1 { // it dies here
		t.Fatalf("%v", facts)
	}
	env := servicetest.Env(t, k.log)
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, fleet.Keys{}) })
	servicetest.Wait(t, k.log, testRun, events.TeacherScoredType, rollout, 1)
	if err := k.record(m); err != nil {
		t.Fatal(err)
	}
	k.spans(k.said()["hinted"], 1)
}
