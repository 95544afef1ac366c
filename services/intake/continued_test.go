package intake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestContinuedRuns: a run takes along only what another run of this plane may have learnt.
func TestContinuedRuns(t *testing.T) {
	log := natstest.Log(t)
	start(t, log)
	servicetest.OpenRun(t, log, "old", servicetest.Config("a"))
	high, rate := 1.5, 0.5
	for name, c := range map[string]struct {
		before events.Continued
		want   string
	}{
		"no run":   {events.Continued{Run: "nobody", Until: 1}, "no such run"},
		"itself":   {events.Continued{Run: "new", Until: 1}, "name another run"},
		"no event": {events.Continued{Run: "old"}, "minimum"},
		"other task": {events.Continued{Run: "old", Until: 1,
			Tasks: map[string]events.TaskLearnt{"b": {Misfit: true}}}, `no task "b"`},
		"rate": {events.Continued{Run: "old", Until: 1,
			Tasks: map[string]events.TaskLearnt{"a": {PassRate: &high}}}, "maximum"},
		"negative":      {events.Continued{Run: "old", Until: 1, Drawn: -1}, "drawn"},
		"overflow":      {events.Continued{Run: "old", Until: 1, Groups: 1 << 62}, "groups"},
		"step":          {events.Continued{Run: "old", Until: 1, Steps: map[string]int64{"f": -1}}, "steps.f"},
		"mean":          {events.Continued{Run: "old", Until: 1, MeanTokens: -1}, "mean_tokens"},
		"other version": {events.Continued{Run: "old", Until: 1, PolicyVersion: 4}, "never published"},
		"good": {events.Continued{Run: "old", Until: 1, Drawn: 3,
			Tasks: map[string]events.TaskLearnt{"a": {PassRate: &rate}}}, ""},
	} {
		run := "new"
		if c.want == "" {
			run = "good"
		}
		body, err := json.Marshal(events.RunOpened{Config: servicetest.Config("a"), Continues: &c.before})
		if err != nil {
			t.Fatal(err)
		}
		answer := send(t, log, submission{subject: "rondo.in." + run + ".run." + run + ".opened", body: string(body)})
		if (c.want == "") != (answer.Error == "") || !strings.Contains(answer.Error, c.want) {
			t.Errorf("%s: %+v, want %q", name, answer, c.want)
		}
	}
}
