package rollouts

import (
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
)

// The stages, in the order of a rollout.
const (
	toolsStage = "tool runner: turn to its tools' answers"
	turnStage  = "generator: tools' answers to the next turn"
	endStage   = "generator: last turn to the trajectory"
	scoreStage = "scorer: trajectory to its reward"
	groupStage = "advantage calculator: last reward to the group's advantages"
)

var stageNames = []string{toolsStage, turnStage, endStage, scoreStage, groupStage}

// watch takes the time between the events of a run, from when they are made.
type watch struct {
	think  time.Duration // of the model for a turn
	last   map[string]events.Event
	reward map[string]time.Time // of the group's last
	took   map[string][]time.Duration
	scored int
}

func newWatch(think time.Duration) *watch {
	return &watch{think: think, last: map[string]events.Event{}, reward: map[string]time.Time{},
		took: map[string][]time.Duration{}}
}

func (w *watch) see(e events.Event) {
	before, known := w.last[e.Entity]
	since := e.Time.Sub(before.Time)
	switch e.Type {
	case events.ToolsCompletedType:
		w.add(toolsStage, since)
	case events.TurnSampledType:
		if known && before.Type == events.ToolsCompletedType {
			w.add(turnStage, since-w.think)
		}
	case events.RolloutFinishedType:
		w.add(endStage, since)
	case events.RolloutScoredType:
		w.add(scoreStage, since)
		w.scored++
		w.reward[events.GroupOf(e.Entity)] = e.Time
		delete(w.last, e.Entity)
		return
	case events.GroupCompletedType:
		w.add(groupStage, e.Time.Sub(w.reward[e.Entity]))
		delete(w.reward, e.Entity)
		return
	case events.RolloutStartedType:
	default:
		return
	}
	w.last[e.Entity] = e
}

func (w *watch) add(stage string, took time.Duration) { w.took[stage] = append(w.took[stage], took) }

func (w *watch) stages() (list []Stage) {
	for _, name := range stageNames {
		list = append(list, Stage{name, figures.LatencyOf(w.took[name])})
	}
	return list
}
