package generator

import (
	"net/http"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestNextOfSteps: between two steps the verdict decides, and no turn is sampled before it.
func TestNextOfSteps(t *testing.T) {
	task := runfile.TaskSpec{Steps: []runfile.StepSpec{{Name: "one", MinReward: map[string]float64{"reward": 1}}, {Name: "two"}}}
	limits := runfile.Limits{Turns: 3, Tokens: 100}
	calls := []events.ToolCall{{ID: "c"}}
	done, asking := events.TurnSampled{}, events.TurnSampled{ToolCalls: calls}
	ended := func(stop string, turns int, reward ...float64) events.EndedStep {
		e := events.EndedStep{StepFinished: events.StepFinished{Turns: turns, StopReason: stop}}
		if len(reward) > 0 {
			e.Verdict = &events.StepScored{Components: map[string]float64{"reward": reward[0]}}
		}
		return e
	}
	passed := ended(events.StopFinished, 1, 1)
	last := ended(events.StopLength, 2, 0)
	last.Step = 1
	for name, c := range map[string]struct {
		rollout events.Rollout
		step    action
		stop    string
	}{
		"ended":            {events.Rollout{Turns: []events.TurnSampled{done}}, endStep, events.StopFinished},
		"awaits a verdict": {events.Rollout{Turns: []events.TurnSampled{done}, Steps: []events.EndedStep{ended(events.StopFinished, 1)}}, nothing, ""},
		"passed":           {events.Rollout{Turns: []events.TurnSampled{done}, Steps: []events.EndedStep{passed}}, sample, ""},
		"too low":          {events.Rollout{Turns: []events.TurnSampled{done}, Steps: []events.EndedStep{ended(events.StopFinished, 1, 0.5)}}, finish, events.StopFinished},
		"in the second":    {events.Rollout{Turns: []events.TurnSampled{done, done}, Steps: []events.EndedStep{passed}}, endStep, events.StopFinished},
		"last was scored":  {events.Rollout{Turns: []events.TurnSampled{done, done}, Steps: []events.EndedStep{passed, last}}, finish, events.StopLength},
		"turns used up in a step": {
			events.Rollout{Turns: []events.TurnSampled{asking, asking, asking}, Tools: events.ToolAnswers{{}}}, endStep, events.StopMaxTurns},
		"turns used up between": {
			events.Rollout{Turns: []events.TurnSampled{done, done, done}, Steps: []events.EndedStep{ended(events.StopFinished, 3, 1)}}, finish, events.StopMaxTurns},
		"a turn cut to the context": {events.Rollout{Turns: []events.TurnSampled{{FinishReason: "length", ContextLimit: 50}}}, endStep, events.StopContext},
		"context used up between":   {events.Rollout{Turns: []events.TurnSampled{done}, Steps: []events.EndedStep{ended(events.StopContext, 1, 1)}}, finish, events.StopContext},
		"tokens used up between": {
			events.Rollout{Turns: []events.TurnSampled{{PromptTokens: 100}}, Steps: []events.EndedStep{passed}}, finish, events.StopMaxTokens},
	} {
		t.Run(name, func(t *testing.T) {
			if step, stop := next(&c.rollout, task, limits, time.Now()); step != c.step || stop != c.stop {
				t.Errorf("%s: step %d with %q, want %d with %q", name, step, stop, c.step, c.stop)
			}
		})
	}
}

// TestAgentDeadline: an agent's time begins with its first turn of a step, and of a fork with the first of its own.
func TestAgentDeadline(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) events.TurnSampled {
		return events.TurnSampled{StartedAt: begin.Add(time.Duration(seconds) * time.Second), ToolCalls: []events.ToolCall{{ID: "c"}}}
	}
	task := runfile.TaskSpec{AgentTimeout: runfile.Duration(time.Minute)}
	steps := runfile.TaskSpec{Steps: []runfile.StepSpec{{AgentTimeout: runfile.Duration(time.Minute)}, {AgentTimeout: runfile.Duration(time.Second)}}}
	three := []events.TurnSampled{at(0), at(10), at(20)}
	scored := []events.EndedStep{{StepFinished: events.StepFinished{Turns: 1}, Verdict: &events.StepScored{}}}
	for name, c := range map[string]struct {
		rollout events.Rollout
		task    runfile.TaskSpec
		want    int // seconds; -1 for none
	}{
		"before the first turn": {events.Rollout{}, task, -1},
		"first turn":            {events.Rollout{Turns: three}, task, 60},
		"no limit":              {events.Rollout{Turns: three}, runfile.TaskSpec{}, -1},
		"fork":                  {events.Rollout{Turns: three, Copied: 2}, task, 80},
		"fork that begins":      {events.Rollout{Turns: three, Copied: 3}, task, -1},
		"second step":           {events.Rollout{Turns: three, Steps: scored}, steps, 11},
		"second step begins":    {events.Rollout{Turns: three[:1], Steps: scored}, steps, -1},
	} {
		t.Run(name, func(t *testing.T) {
			want := time.Time{}
			if c.want >= 0 {
				want = begin.Add(time.Duration(c.want) * time.Second)
			}
			if got := agentDeadline(&c.rollout, c.task); !got.Equal(want) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		})
	}
	over := events.Rollout{Turns: three[:1], Tools: events.ToolAnswers{{}}}
	for seconds, want := range map[int]string{59: "", 60: events.StopTimeout} {
		if step, stop := next(&over, task, runfile.Limits{Turns: 9, Tokens: 9}, begin.Add(time.Duration(seconds)*time.Second)); stop != want || (step == finish) != (want != "") {
			t.Errorf("after %d s: %d, %q", seconds, step, stop)
		}
	}
}

// TestAgentRunsOutOfTime: a request is given up when the task's time for its agent is over, and what there is until then is the episode.
func TestAgentRunsOutOfTime(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	gone := make(chan struct{})
	left := func(w http.ResponseWriter, r *http.Request) { hang(w, r); close(gone) }
	e := serve(t, asking(`[1,2]`, `[3,4]`, `"{}"`), left)
	open(t, log, "r", e.URL, func(cfg *runfile.RunConfig) { cfg.Tasks[0].AgentTimeout = runfile.Duration(500 * time.Millisecond) })
	answerTools(t, log, "r", turns(t, log, "r", 1)[0])
	f, trajectory := finished(t, log, "r")
	if f.StopReason != events.StopTimeout || f.Turns != 1 || trajectory.StopReason != events.StopTimeout || trajectory.Messages[len(trajectory.Messages)-1].Role != "tool" {
		t.Errorf("%+v, rows %+v", f, trajectory.Messages)
	}
	<-gone
	if retried := servicetest.All(t, log, "r", events.RolloutRetriedType, events.RolloutFailedType); len(retried) > 0 {
		t.Errorf("the end of the agent's time is no failure: %v", servicetest.IDs(retried))
	}
}
