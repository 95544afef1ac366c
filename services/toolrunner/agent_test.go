package toolrunner

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// elsewhere is the model of an agent whose rollout another runner has, as it finds out when it is
// asked for something.
type elsewhere struct {
	http.Handler
	resumed int // recorded turns that it has
}

func (m *elsewhere) Resume(_ string, r *events.Rollout) { m.resumed = len(r.Turns) }

func (m *elsewhere) End() <-chan struct{} {
	end := make(chan struct{})
	close(end)
	return end
}

func (m *elsewhere) Ended(int) (events.AgentEnded, error) {
	return events.AgentEnded{}, events.ErrElsewhere
}

func (m *elsewhere) Knows(*events.Rollout) bool { return false }

func (m *elsewhere) Used(time.Time) time.Duration { return 0 }

func (m *elsewhere) Finished(context.Context, *events.Rollout, string) (events.RolloutFinished, error) {
	return events.RolloutFinished{}, errors.New("it is not over")
}

// openAgent opens a run whose rollout has a turn of an agent with a command, which is called again.
func openAgent(t *testing.T, log *eventlog.Log, command ...string) pipeline.Message {
	t.Helper()
	open(t, log, "r", func(c *runfile.RunConfig) {
		c.Agent, c.InFlight, c.SystemPrompt = &runfile.Agent{Command: command}, 1, ""
	})
	call := servicetest.Event(t, "r", events.WorkspaceCalledType, rollout, events.AgentCall,
		events.WorkspaceCalled{Op: events.WorkspaceAgent})
	call.Route = poolRoute
	call = servicetest.Append(t, log, call)
	recordTurn(t, log, 0)
	return pipeline.Message{Log: log.At(call.Run, call.Seq), Event: call, Seq: call.Seq, Time: call.Time, Delivered: 2}
}

func recordTurn(t *testing.T, log *eventlog.Log, n int) {
	t.Helper()
	turn := servicetest.Event(t, "r", events.TurnSampledType, rollout, events.Ordinal(n),
		events.TurnSampled{Turn: n, FinishReason: "stop"})
	turn.Route = runfile.RouteFinal
	servicetest.Append(t, log, turn)
}

// TestAgentsOfOneRollout: while a rollout's agent runs here no second one is started, and a
// delivery whose rollout another runner has is left to that one. Neither ends the delivery, which
// is all that starts the agent anew if its runner dies.
func TestAgentsOfOneRollout(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	message := openAgent(t, log, "/bin/sleep", "3600")
	model := &elsewhere{Handler: http.NotFoundHandler()}
	s, _ := newServiceOnly(t, log, func(o *Options) { o.Model = func(string, string) Model { return model } })

	_, done := s.held.running("r", rollout)
	if facts, err := s.Handle(t.Context(), message); err == nil || len(facts) > 0 || model.resumed > 0 {
		t.Errorf("a second agent of a rollout: %v, %v", facts, err)
	}
	done()
	facts, err := s.Handle(t.Context(), message)
	if !errors.Is(err, events.ErrElsewhere) || len(facts) > 0 || model.resumed != 1 {
		t.Errorf("an agent whose rollout is elsewhere: %v, %v", facts, err)
	}
	if retried := servicetest.All(t, log, "r", events.RolloutRetriedType); len(retried) != 1 ||
		servicetest.Data[events.RolloutRetried](t, retried[0]).Behind != 1 {
		t.Errorf("started anew: %v", retried)
	}
}

// overtaken is the model of an agent that ends and has not asked since another runner's agent of
// the rollout was started: before its end is judged, or only then.
type overtaken struct {
	elsewhere
	late   bool
	others func()
}

func (m *overtaken) Ended(int) (events.AgentEnded, error) {
	if !m.late {
		m.others()
	}
	return events.AgentEnded{Requests: 1}, nil
}

func (m *overtaken) Knows(r *events.Rollout) bool {
	known := len(r.Turns) == 1 && r.Restarts == 1
	if m.late {
		m.others()
	}
	return known
}

// TestAgentEndsBehindAnother: how an agent ended is not told where another runner has started the
// rollout's agent since, also where this one never asks again and so does not hear of it.
func TestAgentEndsBehindAnother(t *testing.T) {
	sandboxtest.Require(t)
	for name, late := range map[string]bool{"before it is judged": false, "behind that": true} {
		t.Run(name, func(t *testing.T) {
			log := natstest.Log(t)
			message := openAgent(t, log, "/bin/true")
			model := &overtaken{elsewhere{Handler: http.NotFoundHandler()}, late, func() {
				servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutRetriedType, rollout, "agent-2",
					events.RolloutRetried{Stage: events.StageTools, Class: events.ClassSandbox, Try: 2, Behind: 1}))
				recordTurn(t, log, 1)
			}}
			s, _ := newServiceOnly(t, log, func(o *Options) { o.Model = func(string, string) Model { return model } })
			facts, err := s.Handle(t.Context(), message)
			if !errors.Is(err, events.ErrElsewhere) || len(facts) > 0 || s.ended.Len() > 0 {
				t.Errorf("an end behind another agent's start: %v, %v, %d kept", facts, err, s.ended.Len())
			}
		})
	}
}
