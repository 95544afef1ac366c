package toolrunner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func searchFor(id, query string) events.ToolCall {
	return events.ToolCall{ID: id, Name: "codebase_search", Arguments: fmt.Sprintf(`{"query":%q}`, query)}
}

// TestCodebaseSearch finds what the snapshot has, and, at once, what the rollout made of it;
// another runner comes to the same, from the index that the first one left in the store.
func TestCodebaseSearch(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) {
		c.Features = []string{runfile.FeatureCodebaseSearch}
		c.Tasks[0].Snapshot = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{
			"session.go": "package shop\n\n// removeExpired removes expired sessions.\nfunc removeExpired(sessions map[string]int) {\n\tclear(sessions)\n}\n",
			"price.go":   "package shop\n\n// total adds up the prices of a basket.\nfunc total(prices []int) int {\n\treturn len(prices)\n}\n",
		}))
	})
	const question = "where are expired sessions removed?"
	_, stop := service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, searchFor("c0", question))
	before := answers(t, log, "r", 0).Results[0]
	if !strings.HasPrefix(before.Content, "session.go:1-6 removeExpired\n1|package shop\n") || before.Error {
		t.Errorf("before anything is changed: %+v", before)
	}
	turn(t, log, "r", 1, poolRoute,
		shell("c1", `mv session.go sweep.go; printf 'package shop\n\n// discount lowers what a basket costs for loyal customers.\nfunc discount() {}\n' > loyal.go`))
	answers(t, log, "r", 1)
	turn(t, log, "r", 2, poolRoute, searchFor("c2", question),
		searchFor("c3", "what do loyal customers pay for a basket?"))
	after := answers(t, log, "r", 2).Results
	if !strings.HasPrefix(after[0].Content, "sweep.go:1-6 ") || strings.Contains(after[0].Content, "session.go") ||
		!strings.HasPrefix(after[1].Content, "loyal.go:1-4 ") {
		t.Errorf("after the changes: %+v", after)
	}
	stop()

	objects := 0
	for o, err := range log.Store().List(t.Context(), "index/") {
		if err != nil {
			t.Fatal(err)
		}
		objects++
		t.Logf("%s, %d bytes", o.Key, o.Size)
	}
	if objects != 3 { // one segment, one manifest, one pointer: what rollouts change is stored nowhere
		t.Errorf("%d objects of the index, want 3", objects)
	}
	service(t, log, nil)
	turn(t, log, "r", 3, poolRoute, searchFor("c4", question))
	if again := answers(t, log, "r", 3).Results[0]; again.Content != after[0].Content {
		t.Errorf("by another runner: %q, want %q", again.Content, after[0].Content)
	}
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	if again := repeat(t, log, r); again.Calls != 5 || len(again.Changed) > 0 {
		t.Errorf("run again: %+v", again)
	}
}

func TestNoSearchUnlessTheRunWantsIt(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, searchFor("c0", "where?"))
	if got := answers(t, log, "r", 0).Results[0]; !got.Error || !strings.Contains(got.Content, "there is no tool") {
		t.Errorf("%+v", got)
	}
}
