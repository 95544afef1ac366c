package scorer

import (
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// asked opens a run with a query whose rollout has started.
func asked(t *testing.T, log *eventlog.Log, run string, verify bool) {
	t.Helper()
	cfg := servicetest.Config("a")
	task := &cfg.Tasks[0]
	task.Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "one\n"}))
	task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": reward}))
	servicetest.OpenRun(t, log, run, cfg)
	servicetest.Append(t, log, servicetest.Event(t, run, events.QuerySubmittedType, "q1",
		"0", events.QuerySubmitted{Instruction: "Help.", Task: "a", Verify: verify}))
	servicetest.StartRollout(t, log, run, rollout, "q1")
}

func end(t *testing.T, log *eventlog.Log, run, id string) events.Event {
	t.Helper()
	return servicetest.Append(t, log, servicetest.Event(t, run, events.RolloutFinishedType, id,
		"0", servicetest.Finished(t, log.Store(), run, id, servicetest.Trajectory(run, id, "q1"))))
}

func react(t *testing.T, log *eventlog.Log, run, id, ordinal string, f events.FeedbackRecorded) events.Event {
	t.Helper()
	return servicetest.Append(t, log, servicetest.Event(t, run, events.FeedbackRecordedType, id, ordinal, f))
}

// TestFeedbackIsTheReward where there is no verifier, in whichever order end and feedback come.
func TestFeedbackIsTheReward(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	quarter := 0.25
	for i, c := range []struct {
		before, after []events.FeedbackRecorded
		want          float64
	}{
		{nil, []events.FeedbackRecorded{{Signal: events.SignalAccept}}, 1},
		{[]events.FeedbackRecorded{{Signal: events.SignalAccept}}, nil, 1},
		{[]events.FeedbackRecorded{{Signal: events.SignalScore, Reward: &quarter}, {Signal: events.SignalFollow}}, nil,
			0.25},
		{[]events.FeedbackRecorded{{Signal: events.SignalAccept}, {Signal: events.SignalReject}}, nil, 0},
		{[]events.FeedbackRecorded{{Signal: events.SignalFollow}},
			[]events.FeedbackRecorded{{Signal: events.SignalFollow}, {Signal: events.SignalScore, Reward: &quarter}},
			0.25},
	} {
		run := fmt.Sprint("r", i)
		asked(t, log, run, false)
		for n, f := range c.before {
			react(t, log, run, rollout, fmt.Sprint("before", n), f)
		}
		finished := end(t, log, run, rollout)
		for n, f := range c.after {
			react(t, log, run, rollout, fmt.Sprint("after", n), f)
		}
		e := servicetest.Wait(t, log, run, events.RolloutScoredType, rollout, 1)[0]
		s := servicetest.Data[events.RolloutScored](t, e)
		if s.Reward != c.want || s.Components["feedback"] != c.want ||
			s.Trajectory != servicetest.Data[events.RolloutFinished](t, finished).Trajectory {
			t.Errorf("%s: scored %+v, want %g", run, s, c.want)
		}
		// What comes afterwards, or again, changes nothing.
		later := react(t, log, run, rollout, "later", events.FeedbackRecorded{Signal: events.SignalReject})
		for _, in := range []events.Event{finished, later} {
			if facts, err := (&Service{store: log.Store()}).Handle(t.Context(),
				pipeline.Message{Log: log.Reader, Event: in}); len(facts) != 0 || err != nil {
				t.Errorf("%s: after it was scored: %v, %v", run, servicetest.IDs(facts), err)
			}
		}
	}
}

// TestFeedbackThatComesTooEarly, or says nothing, leaves the rollout open.
func TestFeedbackThatComesTooEarly(t *testing.T) {
	log := natstest.Log(t)
	asked(t, log, "r", false)
	s := &Service{store: log.Store()}
	for _, in := range []events.Event{
		react(t, log, "r", rollout, "1", events.FeedbackRecorded{Signal: events.SignalFollow}),
		end(t, log, "r", rollout),
	} {
		if facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: in}); len(facts) != 0 ||
			err != nil {
			t.Errorf("%s: %v, %v", in.ID, servicetest.IDs(facts), err)
		}
	}
	accepted := react(t, log, "r", rollout, "2", events.FeedbackRecorded{Signal: events.SignalAccept})
	facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: accepted})
	if err != nil || len(facts) != 1 || facts[0].Type != events.RolloutScoredType {
		t.Errorf("%v, %v", servicetest.IDs(facts), err)
	}
}

// TestFeedbackBesideAVerifier is a remark.
func TestFeedbackBesideAVerifier(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	asked(t, log, "r", true)
	rejected := react(t, log, "r", rollout, "1", events.FeedbackRecorded{Signal: events.SignalReject})
	end(t, log, "r", rollout)
	if facts, err := (&Service{store: log.Store()}).Handle(t.Context(),
		pipeline.Message{Log: log.Reader, Event: rejected}); len(facts) != 0 || err != nil {
		t.Errorf("%v, %v", servicetest.IDs(facts), err)
	}
	start(t, log)
	if s := servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType,
		rollout); s.Reward != 0.5 {
		t.Errorf("scored %+v", s)
	}
}

// TestExternalRollouts are verified where there is something to verify; otherwise
// who made them scores them.
func TestExternalRollouts(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	asked(t, log, "r", false) // task a has a verifier
	workspace := changes(t, log, map[string]string{"a.txt": "one\n"}, "echo two > a.txt")
	for id, c := range map[string]struct {
		task      string
		workspace bool
	}{"x1-0": {"a", true}, "x1-1": {"a", false}, "x1-2": {"of-their-own", true}} {
		t.Run(id, func(t *testing.T) {
			servicetest.StartRollout(t, log, "r", id, c.task)
			f := servicetest.Finished(t, log.Store(), "r", id, servicetest.Trajectory("r", id, c.task))
			if c.workspace {
				f.Workspace = &workspace
			}
			in := servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFinishedType, id, "0", f))
			if id == "x1-0" {
				return
			}
			if facts, err := (&Service{store: log.Store()}).Handle(t.Context(),
				pipeline.Message{Log: log.Reader, Event: in}); len(facts) != 0 || err != nil {
				t.Errorf("%s: %v, %v", id, servicetest.IDs(facts), err)
			}
		})
	}
	react(t, log, "r", "x1-2", "1", events.FeedbackRecorded{Signal: events.SignalAccept})
	start(t, log)
	for id, want := range map[string]float64{"x1-0": 0.5, "x1-2": 1} {
		if s := servicetest.WaitData[events.RolloutScored](t, log, "r", events.RolloutScoredType,
			id); s.Reward != want {
			t.Errorf("%s is scored %+v, want %g", id, s, want)
		}
	}
}
