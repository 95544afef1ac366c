package evaluation

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestGroupsOf(t *testing.T) {
	for attempts := 1; attempts <= 300; attempts++ {
		for _, inFlight := range []int{0, 1, 8, 100} {
			size, groups := GroupsOf(attempts, inFlight)
			if size*groups != attempts || size > largestGroup || inFlight > 0 && size > inFlight {
				t.Fatalf("%d attempts with %d in flight: %d groups of %d", attempts, inFlight, groups, size)
			}
		}
	}
	if size, groups := GroupsOf(64, 0); size != 32 || groups != 2 {
		t.Errorf("64 attempts are %d groups of %d", groups, size)
	}
}

// The same evaluation has the same name, and another one another name that a run may have.
func TestRunName(t *testing.T) {
	seen := map[string]bool{}
	for _, change := range []func(*runfile.RunConfig){
		func(*runfile.RunConfig) {},
		func(c *runfile.RunConfig) { c.Seed = 9 },
		func(c *runfile.RunConfig) { c.PolicyVersion = new(int64(0)) },
		func(c *runfile.RunConfig) { c.PolicyVersion = new(int64(1 << 62)) },
		func(c *runfile.RunConfig) { c.Tasks[0].Digest = "another" },
		func(c *runfile.RunConfig) { c.Policy = strings.Repeat("x", 64); c.PolicyVersion = new(int64(1 << 62)) },
	} {
		cfg := servicetest.Config("a")
		change(&cfg)
		name := RunName(cfg)
		if seen[name] || RunName(cfg) != name || !events.ValidRun(name) {
			t.Errorf("name %q", name)
		}
		seen[name] = true
	}
}
