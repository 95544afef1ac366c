package generator

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestThrottledTriesDoNotCount: a server that says when to come again has not failed,
// however often it says so.
func TestThrottledTriesDoNotCount(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	again := status(429, "Retry-After", "0")
	e := serve(t, again, again, again, again, again, text(final))
	open(t, log, "patient", e.URL, func(c *runfile.RunConfig) { c.Limits.Tries = 1 })
	open(t, log, "rude", serve(t, status(429)).URL, func(c *runfile.RunConfig) { c.Limits.Tries = 1 })
	finished(t, log, "patient")
	if n := len(e.seen()); n != 6 {
		t.Errorf("%d requests instead of 6", n)
	}
	if retried := servicetest.All(t, log, "patient", events.RolloutRetriedType); len(retried) != 0 {
		t.Errorf("failed tries are stated: %v", servicetest.IDs(retried))
	}
	// Without a time to wait for, it is a failure as any other.
	servicetest.WaitData[events.RolloutFailed](t, log, "rude", events.RolloutFailedType, rollout)
}

// TestLongWaitsGiveTheSlotBack: the input comes again, and nothing is stated.
func TestLongWaitsGiveTheSlotBack(t *testing.T) {
	log := natstest.Log(t)
	open(t, log, "r", serve(t, status(429, "Retry-After", "30")).URL, nil)
	s := service(t, log)
	began := time.Now()
	facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader,
		Event: events.Event{Run: "r", Entity: rollout}, Delivered: 1})
	if len(facts) != 0 || err == nil || time.Since(began) > throttledSlot {
		t.Errorf("after %s: %v, %v", time.Since(began), servicetest.IDs(facts), err)
	}
	var f *inference.Failure
	if !errors.As(err, &f) || !f.Throttled || f.After != 30*time.Second {
		t.Errorf("the error is %v", err)
	}
}

// TestServerThatComesBack: an outage costs no tries in a run that the server has answered, and ends
// the rollout, with the reason, only at its deadline.
func TestServerThatComesBack(t *testing.T) {
	log := natstest.Log(t)
	away := status(http.StatusServiceUnavailable)
	e := serve(t, asking("[1,2]", "[3,4]", `"{}"`), away, away, ending("[1,2,3,4,5]", "[6,7]"))
	open(t, log, "r", e.URL, func(c *runfile.RunConfig) { c.Limits.Tries = 1 })
	start(t, log, nil)
	answerTools(t, log, "r", servicetest.WaitData[events.TurnSampled](t, log, "r", events.TurnSampledType, rollout))
	servicetest.Wait(t, log, "r", events.RolloutFinishedType, rollout, 1)
	if n, retried := len(e.seen()), servicetest.All(t, log, "r", events.RolloutRetriedType); n != 4 ||
		len(retried) != 0 {
		t.Errorf("%d requests, and failed tries %v", n, servicetest.IDs(retried))
	}
	e.Close() // from here on nobody is there
	for left, want := range map[time.Duration]int{5 * time.Second: 1, time.Hour: 0} {
		id := fmt.Sprintf("g0000%02d-0", 10+want)
		started := events.RolloutStarted{Group: events.GroupOf(id), Task: "a", Deadline: time.Now().Add(left)}
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutStartedType, id, "0", started))
		s := service(t, log)
		facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: events.Event{Run: "r", Entity: id},
			Delivered: 1})
		if len(facts) != want || (err == nil) != (want == 1) || time.Now().After(started.Deadline) {
			t.Errorf("%s before the deadline: %v, %v", left, servicetest.IDs(facts), err)
		}
		if want == 1 && len(facts) == 1 {
			if f := servicetest.Data[events.RolloutFailed](t, facts[0]); f.Class != events.ClassEndpoint ||
				!strings.Contains(f.Message, "refused") {
				t.Errorf("failed as %+v", f)
			}
		}
	}
}

func TestPutOff(t *testing.T) {
	most := uint64(topology.ConsumersOf(topology.Generator)[0].MaxDeliver)
	for _, c := range []struct {
		after, left time.Duration
		delivered   uint64
		want        time.Duration
	}{
		{time.Second, time.Duration(most-1) * time.Minute, 1, time.Minute},
		{2 * time.Minute, time.Duration(most-1) * time.Minute, 1, 2 * time.Minute},
		{time.Second, time.Minute, most - 1, time.Minute}, // the last delivery comes when the time is over
		{time.Second, time.Minute, most, time.Minute},
		{time.Second, -time.Minute, 3, time.Second},
	} {
		if got := putOff(c.after, c.left, c.delivered); got != c.want {
			t.Errorf("putOff(%s, %s, %d) = %s, want %s", c.after, c.left, c.delivered, got, c.want)
		}
	}
}

// startUntil starts a rollout in a group of its own that is due at a moment.
func startUntil(t *testing.T, log *eventlog.Log, run string, due time.Time) events.Event {
	t.Helper()
	group := events.GroupID(int64(len(servicetest.All(t, log, run, events.RolloutStartedType)) + 1))
	started := events.RolloutStarted{Group: group, Task: "a", Deadline: due}
	return servicetest.Append(t, log, servicetest.Event(t, run, events.RolloutStartedType,
		events.RolloutID(group, 0), "0", started))
}

// TestDeadlineStopsTheRequest: no server works on a turn that nobody will take.
func TestDeadlineStopsTheRequest(t *testing.T) {
	log := natstest.Log(t)
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopped) })
	e := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		stop()
	})
	cfg := servicetest.Config("a")
	cfg.Endpoint = e.URL + "/v1"
	servicetest.OpenRun(t, log, "r", cfg)
	s, in := service(t, log), pipeline.Message{Log: log.Reader, Delivered: 1}
	isOver := func() {
		t.Helper()
		if facts, err := s.Handle(t.Context(), in); len(facts) != 0 || err == nil ||
			!strings.Contains(err.Error(), "is over") {
			t.Fatalf("past the deadline: %v, %v", servicetest.IDs(facts), err)
		}
	}
	// while it asks, which a busy machine may not do in time
	for left := 300 * time.Millisecond; len(e.seen()) == 0; left *= 2 {
		in.Event = startUntil(t, log, "r", time.Now().Add(left))
		isOver()
	}
	<-stopped
	asked := len(e.seen())
	isOver() // when it would ask too late
	last := in
	last.Delivered = uint64(topology.ConsumersOf(topology.Generator)[0].MaxDeliver)
	if facts, err := s.Handle(t.Context(), last); len(facts) != 0 || err != nil {
		t.Errorf("at its last delivery: %v, %v", servicetest.IDs(facts), err)
	}
	if n := len(e.seen()); n != asked {
		t.Errorf("%d requests instead of %d", n, asked)
	}
}

// TestOutageIsNoTurnsTime: a turn whose rollout waited for the end of an outage past
// its deadline is sampled.
func TestOutageIsNoTurnsTime(t *testing.T) {
	for _, stage := range []string{events.StageGenerator, events.EveryStage} {
		log := natstest.Log(t)
		e := serve(t, text(final))
		cfg := servicetest.Config("a")
		cfg.Endpoint, cfg.Limits.Timeout = e.URL+"/v1", runfile.Duration(time.Minute)
		servicetest.OpenRun(t, log, "r", cfg)
		late := events.RolloutStarted{Group: "g000001", Task: "a", Deadline: time.Now().Add(-time.Hour)}
		servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutStartedType, rollout, "0", late))
		long := servicetest.Append(t, log, servicetest.Event(t, "r", events.StageWaitedType, stage,
			"0", events.StageWaited{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(2 * time.Hour)}))
		later := servicetest.Event(t, "r", events.StageWaitedType, stage,
			"1", events.StageWaited{Since: time.Now(), Until: time.Now().Add(time.Minute)})
		later.Prev = long.Seq
		servicetest.Append(t, log, later) // it does not say that again
		in := pipeline.Message{Log: log.Reader, Event: events.Event{Run: "r", Entity: rollout}, Delivered: 1}
		if facts, err := service(t, log).Handle(t.Context(), in); len(facts) == 0 || err != nil {
			t.Errorf("%s: %v, %v", stage, servicetest.IDs(facts), err)
		}
	}
}

// TestOutageThatIsStatedLater: a turn whose rollout was due while it was asked for is asked for
// again, where the log says by then that it waited for the end of an outage.
func TestOutageThatIsStatedLater(t *testing.T) {
	log := natstest.Log(t)
	for left := time.Second; ; left *= 2 {
		run, stated := left.String(), make(chan time.Time, 1)
		e := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			now := time.Now()
			waited := servicetest.Event(t, run, events.StageWaitedType, events.EveryStage,
				"0", events.StageWaited{Since: now, Until: now.Add(time.Hour)})
			if _, _, err := log.Appender.Append(t.Context(), waited); err != nil {
				t.Error(err)
			}
			stated <- time.Now()
			<-r.Context().Done()
		})
		cfg := servicetest.Config("a")
		cfg.Endpoint = e.URL + "/v1"
		servicetest.OpenRun(t, log, run, cfg)
		due := time.Now().Add(left)
		facts, err := service(t, log).Handle(t.Context(),
			pipeline.Message{Log: log.Reader, Event: startUntil(t, log, run, due), Delivered: 1})
		select {
		case at := <-stated:
			if at.After(due) {
				continue // on a busy machine
			}
		default:
			if len(facts) == 0 && err != nil && strings.Contains(err.Error(), "is over") {
				continue // it did not even ask in time
			}
		}
		if len(facts) != 0 || !errors.Is(err, pipeline.ErrCallAgain) {
			t.Errorf("%v, %v", servicetest.IDs(facts), err)
		}
		return
	}
}

// TestExternalRolloutsAreSampledElsewhere: nothing is asked for them, and nothing stated.
func TestExternalRolloutsAreSampledElsewhere(t *testing.T) {
	log := natstest.Log(t)
	e := serve(t, text(final))
	cfg := servicetest.Config("a")
	cfg.Endpoint = e.URL + "/v1"
	servicetest.OpenRun(t, log, "r", cfg)
	started := servicetest.StartRollout(t, log, "r", "x1-0", "a")
	s := service(t, log)
	if facts, err := s.Handle(t.Context(), pipeline.Message{Log: log.Reader, Event: started,
		Delivered: 1}); len(facts) != 0 || err != nil {
		t.Errorf("%v, %v", servicetest.IDs(facts), err)
	}
	if n := len(e.seen()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestQueriesAreAsked in the words of the user, in the workspace of their task.
func TestQueriesAreAsked(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := serve(t, text(final))
	cfg := servicetest.Config("a")
	cfg.Endpoint = e.URL + "/v1"
	servicetest.OpenRun(t, log, "r", cfg)
	servicetest.Append(t, log, servicetest.Event(t, "r", events.QuerySubmittedType, "q1",
		"0", events.QuerySubmitted{Instruction: "Why is it slow?", Task: "a"}))
	servicetest.StartRollout(t, log, "r", rollout, "q1")
	f, tr := finished(t, log, "r")
	if f.Task != "q1" || tr.Messages[1].Content != "Why is it slow?" {
		t.Errorf("the query was asked as %q of task %s", tr.Messages[1].Content, f.Task)
	}
	servicetest.StartRollout(t, log, "r", "g000002-0", "q2")
	failed := servicetest.WaitData[events.RolloutFailed](t, log, "r", events.RolloutFailedType, "g000002-0")
	if failed.Class != events.ClassInternal {
		t.Errorf("a rollout of no task is %+v", failed)
	}
}
