package generator

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestNextOfSteps: between two steps the verdict decides, and no turn is sampled before it.
func TestNextOfSteps(t *testing.T) {
	task := runfile.TaskSpec{Steps: []runfile.StepSpec{{Name: "one", MinReward: map[string]float64{"reward": 1}},
		{Name: "two"}}}
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
		"ended": {events.Rollout{Turns: []events.TurnSampled{done}}, endStep, events.StopFinished},
		"awaits a verdict": {events.Rollout{Turns: []events.TurnSampled{done},
			Steps: []events.EndedStep{ended(events.StopFinished, 1)}}, nothing, ""},
		"passed": {events.Rollout{Turns: []events.TurnSampled{done}, Steps: []events.EndedStep{passed}},
			sample, ""},
		"too low": {events.Rollout{Turns: []events.TurnSampled{done},
			Steps: []events.EndedStep{ended(events.StopFinished, 1, 0.5)}}, finish, events.StopFinished},
		"in the second": {events.Rollout{Turns: []events.TurnSampled{done, done}, Steps: []events.EndedStep{passed}},
			endStep, events.StopFinished},
		"last was scored": {events.Rollout{Turns: []events.TurnSampled{done, done},
			Steps: []events.EndedStep{passed, last}}, finish, events.StopLength},
		"turns used up in a step": {
			events.Rollout{Turns: []events.TurnSampled{asking, asking, asking}, Tools: events.ToolAnswers{{}}},
			endStep, events.StopMaxTurns},
		"turns used up between": {
			events.Rollout{Turns: []events.TurnSampled{done, done, done},
				Steps: []events.EndedStep{ended(events.StopFinished, 3, 1)}}, finish, events.StopMaxTurns},
		"a turn cut to the context": {events.Rollout{Turns: []events.TurnSampled{{FinishReason: "length",
			ContextLimit: 50}}}, endStep, events.StopContext},
		"context used up between": {events.Rollout{Turns: []events.TurnSampled{done},
			Steps: []events.EndedStep{ended(events.StopContext, 1, 1)}}, finish, events.StopContext},
		"tokens used up between": {
			events.Rollout{Turns: []events.TurnSampled{{PromptTokens: 100}}, Steps: []events.EndedStep{passed}},
			finish, events.StopMaxTokens},
	} {
		t.Run(name, func(t *testing.T) {
			if step, stop := next(&c.rollout, task, limits); step != c.step || stop != c.stop {
				t.Errorf("%s: step %d with %q, want %d with %q", name, step, stop, c.step, c.stop)
			}
		})
	}
}

// TestAgentTimeout: an agent's time is that of its turns and tools. What it waited for is not in
// it, and each step has its own.
func TestAgentTimeout(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	calls := []events.ToolCall{{ID: "c"}}
	turn := func(n, started int, took float64) events.TurnSampled {
		return events.TurnSampled{Turn: n, StartedAt: at(started), LatencyMS: took * 1000, ToolCalls: calls}
	}
	tools := func(n, started int, took float64) events.ToolsCompleted {
		return events.ToolsCompleted{Turn: n, Results: []events.ToolResult{{StartedAt: at(started),
			DurationMS: took * 1000}}}
	}
	retried := events.RolloutRetried{Stage: events.StageGenerator, Class: events.ClassEndpoint}
	task := runfile.TaskSpec{AgentTimeout: runfile.Duration(time.Minute)}
	steps := runfile.TaskSpec{Steps: []runfile.StepSpec{{AgentTimeout: runfile.Duration(time.Minute)},
		{AgentTimeout: runfile.Duration(time.Second)}}}
	ended, scored := events.StepFinished{Turns: 1}, events.StepScored{Components: map[string]float64{"reward": 1}}
	for name, c := range map[string]struct {
		task  runfile.TaskSpec
		links []any
		want  string
	}{
		"waited 590 s for a slot": {task, []any{turn(0, 0, 1), tools(0, 1, 1),
			turn(1, 592, 1), tools(1, 593, 1)}, ""},
		"waited 590 s for a runner": {task, []any{turn(0, 0, 1), tools(0, 591, 1)}, ""},
		"retries and a restart": {task, []any{retried, turn(0, 300, 1), tools(0, 302, 1), retried, retried,
			turn(1, 900, 57.9), tools(1, 960, 0)}, ""},
		"sampled for all of its time": {task, []any{turn(0, 0, 30), tools(0, 30, 0), turn(1, 30, 30),
			tools(1, 60, 0)}, events.StopTimeout},
		"its tools ran for all of it": {task, []any{turn(0, 0, 0), tools(0, 0, 60)}, events.StopTimeout},
		"both, with waiting between":  {task, []any{turn(0, 0, 30), tools(0, 500, 30)}, events.StopTimeout},
		"a step's time is its own": {steps, []any{turn(0, 0, 59), tools(0, 59, 0), ended, scored,
			turn(1, 900, 0.9), tools(1, 901, 0)}, ""},
		"as is the next one's": {steps, []any{turn(0, 0, 1), tools(0, 1, 0), ended, scored, turn(1, 900, 0.9),
			tools(1, 901, 0.1)}, events.StopTimeout},
		"a fork has not used its origin": {task, []any{events.RolloutCopied{Turns: []events.TurnSampled{turn(0, 0, 99)},
			Tools: []events.ToolsCompleted{tools(0, 99, 99)}}, turn(1, 900, 59), tools(1, 960, 0)}, ""},
		"no limit": {runfile.TaskSpec{}, []any{turn(0, 0, 9999), tools(0, 9999, 0)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			links := []events.Event{servicetest.Event(t, "r", events.RolloutStartedType, rollout,
				"0", events.RolloutStarted{})}
			for i, data := range c.links {
				links = append(links, servicetest.Event(t, "r", typeOf(data), rollout, events.Ordinal(i), data))
			}
			r, err := events.FoldRollout(links)
			if err != nil {
				t.Fatal(err)
			}
			if do, stop := next(&r, c.task, runfile.Limits{Turns: 9, Tokens: 9}); stop != c.want ||
				(do == sample) != (c.want == "") {
				t.Errorf("%d, %q; its agent has used %s", do, stop, r.AgentTime())
			}
		})
	}
}

func typeOf(data any) events.Type {
	switch data.(type) {
	case events.TurnSampled:
		return events.TurnSampledType
	case events.ToolsCompleted:
		return events.ToolsCompletedType
	case events.RolloutRetried:
		return events.RolloutRetriedType
	case events.RolloutCopied:
		return events.RolloutCopiedType
	case events.StepFinished:
		return events.StepFinishedType
	}
	return events.StepScoredType
}

// TestAgentRunsOutOfTime: when the task's time for its agent is over, no further turn is asked for,
// and what there is until then is the episode.
func TestAgentRunsOutOfTime(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := serve(t, asking(`[1,2]`, `[3,4]`, `"{}"`))
	open(t, log, "r", e.URL, func(cfg *runfile.RunConfig) { cfg.Tasks[0].AgentTimeout = runfile.Duration(time.Hour) })
	last := turns(t, log, "r", 1)[0]
	ran := events.ToolResult{CallID: last.ToolCalls[0].ID, Name: last.ToolCalls[0].Name, StartedAt: time.Now().UTC(),
		DurationMS: float64(time.Hour / time.Millisecond)}
	done := events.ToolsCompleted{Turn: 0, Runner: "tester", Isolation: "none", Filesystem: "copy",
		Results: []events.ToolResult{ran}}
	servicetest.Append(t, log, servicetest.Event(t, "r", events.ToolsCompletedType, rollout, "0", done))
	f, trajectory := finished(t, log, "r")
	if f.StopReason != events.StopTimeout || f.Turns != 1 || trajectory.StopReason != events.StopTimeout ||
		trajectory.Messages[len(trajectory.Messages)-1].Role != "tool" {
		t.Errorf("%+v, rows %+v", f, trajectory.Messages)
	}
	if n := len(e.seen()); n != 1 {
		t.Errorf("%d requests instead of 1", n)
	}
}
