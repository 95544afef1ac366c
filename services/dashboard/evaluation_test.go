package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// evaluated opens an evaluation of so many tasks, with an attempt at each; those
// from pass on do not pass.
func (d *desk) evaluated(run string, tasks, pass int) {
	d.Helper()
	cfg := servicetest.Config()
	cfg.Feeds, cfg.Epochs, cfg.GroupSize = nil, 1, 1
	for i := range tasks {
		cfg.Tasks = append(cfg.Tasks, servicetest.Config(fmt.Sprintf("task-%02d", i)).Tasks...)
	}
	servicetest.OpenRun(d, d.log, run, cfg)
	state := func(typ events.Type, entity string, data any) {
		servicetest.Append(d, d.log, servicetest.Event(d, run, typ, entity, "0", data))
	}
	for i := range tasks {
		group, task, reward := events.GroupID(int64(i+1)), fmt.Sprintf("task-%02d", i), 0.0
		if i < pass {
			reward = 1
		}
		rollout := events.RolloutID(group, 0)
		state(events.GroupOpenedType, group, events.GroupOpened{Task: task, Size: 1})
		servicetest.StartRollout(d, d.log, run, rollout, task)
		state(events.RolloutFinishedType, rollout, events.RolloutFinished{Task: task, StopReason: events.StopFinished,
			Turns: 3, Tokens: 100})
		state(events.RolloutScoredType, rollout, events.RolloutScored{Reward: reward})
		state(events.GroupCompletedType, group, events.GroupCompleted{Task: task,
			Members: []events.Member{{Rollout: rollout, Reward: reward}}})
	}
}

// TestEvaluation: the report has pass@k with its interval, the tasks, and the verdict beside
// another run. It is made once for each state of the log.
func TestEvaluation(t *testing.T) {
	d := newDesk(t)
	d.evaluated("good", 12, 11)
	d.evaluated("bad", 12, 1)
	d.has("/runs/good", `href="/runs/good/evaluation"`)
	d.has("/runs/good/evaluation", "12 attempts at 12 tasks", "pass@1", "0.917", "task-03", "12 finished")
	d.has("/runs/good/evaluation?against=bad", "On 12 tasks of both", "0.083", "10 won, 0 lost, 2 tied", "better")
	d.has("/runs/bad/evaluation?against=good", "worse", `<input id="against" name="against" value="good"`)
	d.has("/runs/good/evaluation?at=30", "as it was at event 30", "attempts at")
	if page := d.show("/runs/good/evaluation?at=30"); strings.Contains(page, "task-11") {
		t.Error("the past has what came later")
	}
	d.has("/runs/good/evaluation?at=1", "No attempt is scored yet")
	d.has("/runs/good/evaluation?at=1&against=bad", "compare good")
	for _, path := range []string{"/runs/none/evaluation", "/runs/good/evaluation?against=none",
		"/runs/good/evaluation?against=.."} {
		if w := d.ask(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	for at := range 3 * maxMeasured {
		d.show(fmt.Sprintf("/runs/good/evaluation?at=%d", at%60+1))
	}
	if n := d.d.figures.Len(); n > maxMeasured {
		t.Errorf("the figures of %d runs are kept", n)
	}
	kept, _ := d.d.figures.Get(d.d.figures.Keys()[d.d.figures.Len()-1])
	d.show(fmt.Sprintf("/runs/good/evaluation?at=%d", (3*maxMeasured-1)%60+1))
	if again, _ := d.d.figures.Get(d.d.figures.Keys()[d.d.figures.Len()-1]); again != kept {
		t.Error("the figures were made again though nothing has happened")
	}
}

// TestBehaviourCurves: figures by version are on the curves, with gaps where the log says none.
func TestBehaviourCurves(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	d.group(1, "says", 1, 0)
	d.has("/runs/live/curves",
		`"work":{"x":[0],"series":[{"name":"turns","values":[1]},{"name":"calls in a turn with any","values":[null]}]}`,
		`"cost":{"x":`, `"name":"failed calls","values":[null]`)
}
