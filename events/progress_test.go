package events

import (
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

func TestProgress(t *testing.T) {
	type at struct {
		Type
		route string
	}
	turn, last := at{TurnSampledType, "pool-shell"}, at{TurnSampledType, runfile.RouteFinal}
	started, answered := at{Type: RolloutStartedType}, at{Type: ToolsCompletedType}
	for name, c := range map[string]struct {
		chain []at
		want  Progress
		moved bool // by the last event
	}{
		"started": {[]at{started}, Progress{Stage: StageGenerator, Since: 1}, true},
		"copied": {[]at{started, {Type: RolloutCopiedType}},
			Progress{Stage: StageGenerator, Since: 1}, true},
		"asks for tools": {[]at{started, turn}, Progress{Stage: StageTools, Since: 2, Answered: true}, true},
		"has its answer": {[]at{started, turn, answered},
			Progress{Stage: StageGenerator, Since: 3, Answered: true}, true},
		"said its last word": {[]at{started, turn, answered, last},
			Progress{Stage: StageTools, Since: 3, Answered: true}, true},
		"a try failed": {[]at{started, {Type: RolloutRetriedType}},
			Progress{Stage: StageGenerator, Since: 1}, false},
		"a remark": {[]at{started, turn, {Type: RolloutAnnotatedType}},
			Progress{Stage: StageTools, Since: 2, Answered: true}, false},
		"forked from": {[]at{started, turn, {Type: RolloutForkedType}},
			Progress{Stage: StageTools, Since: 2, Answered: true}, false},
		"a type of the later": {[]at{started, {Type: "rollout.teleported"}},
			Progress{Stage: StageGenerator, Since: 1}, false},
		"summed up": {[]at{started, turn, answered, {TurnSampledType, runfile.RouteSummary}},
			Progress{Stage: StageGenerator, Since: 3, Answered: true}, true},
		"ended a step": {[]at{started, last, {Type: StepFinishedType}},
			Progress{Stage: StageScorer, Since: 3, Answered: true}, true},
		"the next step": {[]at{started, last, {Type: StepFinishedType}, {Type: StepScoredType}},
			Progress{Stage: StageGenerator, Since: 4, Answered: true}, true},
		"finished": {[]at{started, {Type: RolloutFinishedType}},
			Progress{Stage: StageScorer, Since: 2, Answered: true, Finished: true}, true},
		"scored": {[]at{started, {Type: RolloutFinishedType}, {Type: RolloutScoredType}},
			Progress{Stage: StageGroup, Since: 3, Answered: true, Finished: true, Scored: true}, true},
		"failed at the tools": {[]at{started, turn, {Type: RolloutFailedType}},
			Progress{Stage: StageTools, Since: 2, Answered: true, Failed: true}, true},
		"invalidated": {[]at{started, {Type: RolloutInvalidatedType}},
			Progress{Stage: StageGenerator, Since: 1, Invalidated: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var got Progress
			moved := false
			for i, link := range c.chain {
				moved = got.Apply(Event{Type: link.Type, Route: link.route, Seq: uint64(i + 1)})
			}
			if got != c.want || moved != c.moved {
				t.Errorf("got  %+v, moved %v\nwant %+v, moved %v", got, moved, c.want, c.moved)
			}
			if over := c.want.Scored || c.want.Failed; got.HasOutcome() != over {
				t.Errorf("over is %v, want %v", got.HasOutcome(), over)
			}
		})
	}
}
