package generator

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// A run that pins a version asks for it by name, and takes no turn of another one.
func TestPinnedVersion(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	of := func(version string) answer {
		return text(strings.Replace(final, `"id"`, `"weight_version":`+version+`,"id"`, 1))
	}
	for name, c := range map[string]struct {
		answers []answer
		asked   int
		failed  string
	}{
		"the pinned one":   {[]answer{of("7")}, 1, ""},
		"says nothing":     {[]answer{text(final)}, 1, ""},
		"loads it first":   {[]answer{of("6"), of("7")}, 2, ""},
		"serves a new one": {[]answer{of("8")}, tries, "serves version 8 of small; the run pins version 7"},
	} {
		t.Run(name, func(t *testing.T) {
			run := strings.ReplaceAll(name, " ", "-")
			e := serve(t, c.answers...)
			cfg := servicetest.Config("a")
			cfg.Endpoint, cfg.Limits.Tries, cfg.PolicyVersion = e.URL+"/v1", tries, new(int64(7))
			servicetest.OpenRun(t, log, run, cfg)
			servicetest.Append(t, log, servicetest.Event(t, run, events.RolloutStartedType, rollout,
				"0", events.RolloutStarted{
					Group: events.GroupOf(rollout), Task: "a", PolicyVersion: 7, Deadline: time.Now().Add(time.Hour),
				}))
			if c.failed != "" {
				failed := servicetest.WaitData[events.RolloutFailed](t, log, run, events.RolloutFailedType, rollout)
				if failed.Class != events.ClassEndpoint || !strings.Contains(failed.Message, c.failed) {
					t.Errorf("failed with %+v", failed)
				}
			} else if got := turns(t, log, run, 1)[0].PolicyVersion; got != 7 {
				t.Errorf("a turn of version %d", got)
			}
			requests := e.seen()
			if len(requests) != c.asked || requests[0].body.Model != "small@7" {
				t.Errorf("%d requests, the first for %q", len(requests), requests[0].body.Model)
			}
		})
	}
}
