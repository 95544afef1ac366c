package generator

import (
	"net/http"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestExtraBodyReachesTheServer: what a run adds to requests is in them, and a run
// without seeds sends none.
func TestExtraBodyReachesTheServer(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, change := range map[string]func(*runfile.RunConfig){
		"default": nil,
		"changed": func(c *runfile.RunConfig) {
			c.Sampling.Seed, c.Sampling.ExtraBody = runfile.SeedNone, map[string]any{"cache_salt": "<a>", "priority": 5}
		},
	} {
		var f fields
		e := serve(t, text(final))
		e.Config.Handler = f.keep(t, func(w http.ResponseWriter, _ map[string]any) { w.Write([]byte(final)) })
		open(t, log, name, e.URL, change)
		finished(t, log, name)
		body := f.seen()[0]
		_, seeded := body["seed"]
		if changed := change != nil; seeded == changed || (body["cache_salt"] == "<a>") != changed ||
			(body["priority"] == 5.0) != changed || body["model"] != "small" {
			t.Errorf("%s: the request is %v", name, body)
		}
	}
}

// TestServerThatLoads: a server that answers 503 while it loads its model is waited for, though
// nobody has had an answer of it.
func TestServerThatLoads(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	loads := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte(`{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`))
	}
	answers := []answer{}
	for range tries + 1 {
		answers = append(answers, loads)
	}
	open(t, log, "r", serve(t, append(answers, text(final))...).URL, nil)
	finished(t, log, "r")
	if retried := servicetest.All(t, log, "r", events.RolloutRetriedType); len(retried) != 0 {
		t.Errorf("failed tries: %v", servicetest.IDs(retried))
	}
}
