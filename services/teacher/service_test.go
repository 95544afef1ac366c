package teacher

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

const (
	testRun = "r"
	rollout = "g000001-0"
)

// samples are those of the rollout that the tests score.
var samples = [][]int32{{1, 2, 3, 4, 5, 6}, {9, 8, 7}}

// class is a rollout's log with a run that has teachers.
type class struct {
	t   *testing.T
	log *eventlog.Log
}

func newClass(t *testing.T, teachers ...runfile.Teacher) *class {
	t.Helper()
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Teachers = teachers
	servicetest.OpenRun(t, log, testRun, cfg)
	return &class{t, log}
}

// scored lets a rollout end with two samples, and gives the message about its reward.
func (k *class) scored(textOnly bool) pipeline.Message {
	k.t.Helper()
	servicetest.StartRollout(k.t, k.log, testRun, rollout, "a")
	tr := &storage.Trajectory{Run: testRun, Group: "g000001", Rollout: rollout, Task: "a",
		StopReason: events.StopFinished, TextOnly: textOnly}
	for segment, ids := range samples {
		for i, part := range [][]int32{ids[:2], ids[2:]} {
			m := storage.Message{Index: int32(len(tr.Messages)), Segment: int32(segment), Role: "assistant",
				TokenIDs: part, PolicyVersion: -1}
			m.LossMask, m.Logprobs = make([]bool, len(part)), make([]float32, len(part))
			m.LossMask[len(part)-1] = i == 1
			if textOnly {
				m.TokenIDs, m.LossMask, m.Logprobs = nil, nil, nil
			}
			tr.Messages = append(tr.Messages, m)
		}
	}
	file, err := storage.EncodeTrajectory(tr)
	if err != nil {
		k.t.Fatal(err)
	}
	finished, err := events.StoreTrajectory(k.t.Context(), k.log.Store(), tr, file)
	if err != nil {
		k.t.Fatal(err)
	}
	servicetest.Append(k.t, k.log, servicetest.Event(k.t, testRun, events.RolloutFinishedType, rollout, "0", finished))
	fact := servicetest.Append(k.t, k.log, servicetest.Event(k.t, testRun, events.RolloutScoredType, rollout, "0",
		events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory, TextOnly: textOnly}))
	stored, err := k.log.Event(k.t.Context(), testRun, fact.Seq)
	if err != nil {
		k.t.Fatal(err)
	}
	return pipeline.Message{Event: stored, Seq: fact.Seq, Time: stored.Time, Delivered: 1,
		Log: k.log.At(testRun, fact.Seq)}
}

func (k *class) record(m pipeline.Message) error {
	return New(k.log.Store(), fleet.Everywhere("k")).Effect().Record(k.t.Context(), pipeline.Env{Log: k.log}, m)
}

// said are the facts by teacher.
func (k *class) said() map[string]events.TeacherScored {
	k.t.Helper()
	said := map[string]events.TeacherScored{}
	for _, e := range servicetest.All(k.t, k.log, testRun, events.TeacherScoredType) {
		p := servicetest.Data[events.TeacherScored](k.t, e)
		if _, twice := said[p.Teacher]; twice || e.Source != "teacher" || e.Prev == 0 {
			k.t.Errorf("%s is there twice, or is not the service's own: %+v", e.ID, e)
		}
		said[p.Teacher] = p
	}
	return said
}

// check compares what is stored one for one with what the server says of each sample by itself.
func (k *class) check(said events.TeacherScored) {
	k.t.Helper()
	if said.Logprobs == nil || said.Failed != "" || said.Tokens != 9 {
		k.t.Fatalf("the teacher said %+v", said)
	}
	data, err := storage.GetBlob(k.t.Context(), k.log.Store(), *said.Logprobs)
	if err != nil {
		k.t.Fatal(err)
	}
	all, err := events.UnpackLogprobs(data, []int{6, 3})
	if err != nil {
		k.t.Fatal(err)
	}
	for i, ids := range samples {
		for at := range ids {
			want := tokenstest.TeacherLogprob(ids, at)
			if at == 0 {
				want = 0
			}
			if all[i][at] != want {
				k.t.Errorf("token %d of sample %d has %g, want %g", at, i, all[i][at], want)
			}
		}
	}
}

// TestTeachersScoreOnce: every teacher of a run with an address scores a rollout's own tokens,
// sample by sample, and states it once, however often the work comes.
func TestTeachersScoreOnce(t *testing.T) {
	vllm, sglang := tokenstest.NewTeacher(t), tokenstest.NewTeacher(t)
	k := newClass(t, runfile.Teacher{Name: "reference", URL: vllm.URL + "/v1", Model: "ref", Version: "2026-11"},
		runfile.Teacher{Name: "elsewhere"},
		runfile.Teacher{Name: "big", URL: sglang.URL, API: runfile.TeacherSGLang, Model: "big"})
	m := k.scored(false)
	for range 3 {
		if err := k.record(m); err != nil {
			t.Fatal(err)
		}
	}
	said := k.said()
	if len(said) != 2 || said["reference"].Model != "ref" || said["reference"].Version != "2026-11" ||
		said["big"].Version != "v7" {
		t.Errorf("they said %+v", said)
	}
	for _, name := range []string{"reference", "big"} {
		k.check(said[name])
	}
	if n, o := len(vllm.Prompts()), len(sglang.Prompts()); n != 2 || o != 2 {
		t.Errorf("the servers were asked about %d and %d samples, want 2 each", n, o)
	}
}

// TestAnotherTeacherIsAway: one that is away is asked again later, and does not keep the others
// from answering. At the last delivery it has failed, and the fact says so.
func TestAnotherTeacherIsAway(t *testing.T) {
	away, well := tokenstest.NewTeacher(t), tokenstest.NewTeacher(t)
	away.Status = func() int { return http.StatusServiceUnavailable }
	k := newClass(t, runfile.Teacher{Name: "away", URL: away.URL + "/v1", Model: "m"},
		runfile.Teacher{Name: "well", URL: well.URL + "/v1", Model: "m"})
	m := k.scored(false)
	err := k.record(m)
	if err == nil || !strings.Contains(err.Error(), "ask teacher away about "+rollout) ||
		errors.Is(err, pipeline.ErrCallAgain) {
		t.Errorf("the input is settled by %v", err)
	}
	said := k.said()
	if len(said) != 1 {
		t.Fatalf("they said %+v", said)
	}
	k.check(said["well"])
	s := New(k.log.Store(), fleet.Keys{})
	last := s.Effect()
	last.Handle = func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		return giveUp(ctx, m, errors.New("it is away"))
	}
	if err := last.Record(t.Context(), pipeline.Env{Log: k.log}, m); err != nil {
		t.Fatal(err)
	}
	if said := k.said()["away"]; said.Logprobs != nil || !strings.Contains(said.Failed, "it is away") {
		t.Errorf("it said %+v", said)
	}
}

// TestWrongAnswersFail: an answer that is one place off is no log-probability of
// these tokens, now or later.
func TestWrongAnswersFail(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	server.Entries = func(list []any) []any { return append(append([]any{list[0]}, list[2:]...), list[1]) }
	k := newClass(t, runfile.Teacher{Name: "shifted", URL: server.URL + "/v1", Model: "m"})
	if err := k.record(k.scored(false)); err != nil {
		t.Fatal(err)
	}
	if said := k.said()["shifted"]; said.Logprobs != nil ||
		!strings.Contains(said.Failed, "entry 1 is of token 3, the token there is 2") {
		t.Errorf("it said %+v", said)
	}
}

// TestNothingToAsk: nobody is asked about a rollout without tokens, or of a run without teachers.
func TestNothingToAsk(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	for name, k := range map[string]*class{"text": newClass(t,
		runfile.Teacher{Name: "a", URL: server.URL + "/v1", Model: "m"}), "no teachers": newClass(t)} {
		if err := k.record(k.scored(name == "text")); err != nil || len(k.said()) > 0 || len(server.Prompts()) > 0 {
			t.Errorf("%s: %v, %v", name, err, k.said())
		}
	}
}

// TestKilledTeacher: a process that dies between the server's answer and the log leaves nothing
// half done: the next one asks again and states it once.
func TestKilledTeacher(t *testing.T) {
	server := tokenstest.NewTeacher(t)
	k := newClass(t, runfile.Teacher{Name: "a", URL: server.URL + "/v1", Model: "m"})
	m := k.scored(false)
	facts, err := New(k.log.Store(), fleet.Keys{}).Handle(t.Context(), m) // it dies here
	if len(facts) != 1 || !errors.Is(err, pipeline.ErrCallAgain) {
		t.Fatalf("%v, %v", facts, err)
	}
	servicetest.Append(t, k.log, servicetest.Event(t, testRun, events.RolloutAnnotatedType, rollout,
		"n", events.RolloutAnnotated{Text: "meanwhile"}))
	env := servicetest.Env(t, k.log)
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, fleet.Keys{}) })
	servicetest.Wait(t, k.log, testRun, events.TeacherScoredType, rollout, 1)
	// What the dead process had in hand comes late: the chain refuses it, and
	// it finds that all is said.
	if _, _, err := (pipeline.Env{Log: k.log}).Publish(t.Context(), facts); err == nil {
		t.Error("a fact that follows an older link was appended")
	}
	if err := k.record(m); err != nil {
		t.Fatal(err)
	}
	k.check(k.said()["a"])
}
