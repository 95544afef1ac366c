package toolrunner

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestSandboxesEndWithTheirRollouts: a rollout that is over keeps no sandbox, though its last turn
// is nothing that a tool runner is asked for.
func TestSandboxesEndWithTheirRollouts(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "finished", nil)
	open(t, log, "failed", nil)
	s, _ := service(t, log, nil)
	for _, run := range []string{"finished", "failed"} {
		turn(t, log, run, 0, poolRoute, shell("c0", "true"))
		answers(t, log, run, 0)
	}
	natstest.Eventually(t, "both sandboxes are held", func() bool { return s.held.count() == 2 })
	servicetest.Append(t, log, servicetest.Event(t, "finished", events.RolloutFinishedType, rollout,
		"0", events.RolloutFinished{}))
	natstest.Eventually(t, "the finished rollout's sandbox is gone", func() bool { return s.held.count() == 1 })
	servicetest.Append(t, log, servicetest.Event(t, "failed", events.RolloutFailedType, rollout,
		"0", events.RolloutFailed{Stage: events.StageSampler, Class: events.ClassDeadline}))
	natstest.Eventually(t, "the failed rollout's sandbox is gone", func() bool { return s.held.count() == 0 })
	natstest.Eventually(t, "no run is watched", func() bool { return s.held.endings.count() == 0 })
}

// TestMemoryDoesNotGrow has 200 rollouts come and go, of which some end
// before their box is put back.
func TestMemoryDoesNotGrow(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	h := newPool(log.Reader, slog.New(slog.DiscardHandler), Options{}, nil)
	var ended atomic.Int64
	const rollouts = 200
	for i := range rollouts {
		id := events.RolloutID(events.GroupID(int64(i)), 0)
		started := servicetest.StartRollout(t, log, "r", id, "a")
		unwatch := h.endings.watch("r", started.Seq)
		h.put(&leased{key: "r/" + id, end: func() { unwatch(); ended.Add(1) }})
		end := servicetest.Event(t, "r", events.RolloutFinishedType, id, "0", events.RolloutFinished{})
		if i%3 == 0 {
			end = servicetest.Event(t, "r", events.RolloutFailedType, id, "0", events.RolloutFailed{})
		}
		servicetest.Append(t, log, end)
	}
	natstest.Eventually(t, "all sandboxes have ended", func() bool { return ended.Load() == rollouts })
	if h.count() != 0 || h.endings.count() != 0 {
		t.Errorf("%d sandboxes are held and %d runs watched", h.count(), h.endings.count())
	}
}

// TestRunThatIsDeleted: nothing is left to watch, and the idle time still holds.
func TestRunThatIsDeleted(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	h := newPool(log.Reader, slog.New(slog.DiscardHandler), Options{}, nil)
	var ended atomic.Bool
	unwatch := h.endings.watch("r", 1)
	h.put(&leased{key: "r/x", end: func() { unwatch(); ended.Store(true) }})
	if err := log.Streams.DeleteRun(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if keys := h.idleSince(time.Now().Add(-idleAfter)); len(keys) != 0 {
		t.Errorf("%v count as idle at once", keys)
	}
	if keys := h.idleSince(time.Now().Add(idleAfter)); len(keys) != 1 {
		t.Errorf("%v count as idle after a while", keys)
	}
	h.closeAll()
	if !ended.Load() || h.endings.count() != 0 {
		t.Errorf("ended %v, %d runs watched", ended.Load(), h.endings.count())
	}
}

// TestTheLongestIdleMakesRoom fills the held sandboxes beyond their bound.
func TestTheLongestIdleMakesRoom(t *testing.T) {
	h := newPool(natstest.Log(t).Reader, slog.New(slog.DiscardHandler), Options{}, nil)
	var ended []string
	for i := range DefaultCapacity + 2 {
		key := fmt.Sprint(i)
		h.put(&leased{key: key, end: func() { ended = append(ended, key) }})
	}
	if h.count() != DefaultCapacity || len(ended) != 2 || ended[0] != "0" || ended[1] != "1" {
		t.Errorf("%d are held, %v had to go", h.count(), ended)
	}
}

// TestStateOf: the files of a step make another workspace of what the turn before has left, until
// the step's first answer.
func TestStateOf(t *testing.T) {
	ref, laid := &storage.Ref{SHA256: "abc"}, &storage.Ref{SHA256: "laid"}
	r := &events.Rollout{Turns: []events.TurnSampled{{Turn: 0}, {Turn: 1}, {Turn: 2}}}
	with := &events.Rollout{Turns: r.Turns, Steps: []events.EndedStep{{StepFinished: events.StepFinished{Turns: 2},
		Verdict: &events.StepScored{Workspace: laid}}}}
	for _, c := range []struct {
		r     *events.Rollout
		tools events.ToolAnswers
		want  state
		now   *storage.Ref
	}{
		{r, nil, state{turn: -1}, nil},
		{r, events.ToolAnswers{{}}, state{turn: 0}, nil},
		{r, events.ToolAnswers{{}, {Turn: 1, Workspace: ref}}, state{turn: 1, workspace: "abc"}, ref},
		{with, nil, state{turn: 2, laid: true, workspace: "laid"}, laid},
		{with, events.ToolAnswers{{Turn: 1, Workspace: ref}}, state{turn: 2, laid: true, workspace: "laid"}, laid},
		{with, events.ToolAnswers{{Turn: 1, Workspace: ref}, {Turn: 2}}, state{turn: 2}, nil},
	} {
		c.r.Tools = c.tools
		if got := stateOf(c.r); got != c.want || c.r.Workspace() != c.now {
			t.Errorf("after %v: %+v, want %+v; workspace %v, want %v", c.tools, got, c.want, c.r.Workspace(), c.now)
		}
		if after, err := c.r.WorkspaceAfter(1); c.tools.Answer(1).Turn == 1 && (err != nil || after != ref) {
			t.Errorf("after turn 1 of %v: %v, %v", c.tools, after, err)
		}
	}
}

// TestSandboxesAreCounted: those in use and those that are kept; one that is never given back stays
// in use, which the alert on leaks looks at.
func TestSandboxesAreCounted(t *testing.T) {
	h := newPool(natstest.Log(t).Reader, slog.New(slog.DiscardHandler), Options{}, nil)
	registry := prometheus.NewRegistry()
	if err := h.meter(registry); err != nil {
		t.Fatal(err)
	}
	counted := func() (idle, busy float64) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			switch f.GetName() {
			case "rondo_sandboxes_idle":
				idle = f.Metric[0].GetGauge().GetValue()
			case "rondo_sandboxes_busy":
				busy = f.Metric[0].GetGauge().GetValue()
			}
		}
		return idle, busy
	}
	taken := func(key string) *leased { return &leased{key: key, end: h.opened(func() {})} }
	a, _ := taken("r/a"), taken("r/leaks")
	if idle, busy := counted(); idle != 0 || busy != 2 {
		t.Errorf("%g idle, %g busy, want 0 and 2", idle, busy)
	}
	h.put(a)
	if idle, busy := counted(); idle != 1 || busy != 1 {
		t.Errorf("%g idle, %g busy, want 1 and 1", idle, busy)
	}
	h.closeAll()
	a.end() // again
	if idle, busy := counted(); idle != 0 || busy != 1 {
		t.Errorf("%g idle, %g busy, want 0 and 1", idle, busy)
	}
}
