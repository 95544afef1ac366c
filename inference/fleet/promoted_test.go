package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

func promotes(t *testing.T, f *Fleet, p events.WeightsPromoted) {
	t.Helper()
	said(t, f, events.WeightsPromotedType, p)
}

// TestPromoted: a rollout's turns go to servers of the version that it gets, whatever is
// newest; without a promotion, in runs that pin a version and where no server says
// anything, all is as before.
func TestPromoted(t *testing.T) {
	f, _ := newFarm(t, nil, nil)
	isPublished(t, f, 12)
	hosts := func(rollout string, pinned *int64) string {
		c := call("x", 8, "a", "b", "c")
		c.Run, c.Affinity = "r", rollout
		c.Config.Staleness.Max, c.Config.PolicyVersion, c.Config.Feeds = 1, pinned, nil
		targets, err := f.targets(c)
		if err != nil {
			t.Fatal(err)
		}
		may, _, _ := f.activations.usable(c, targets)
		got := ""
		for _, host := range []string{"a", "b", "c"} {
			for _, m := range may {
				if m.url == "http://"+host+"/v1" {
					got += host
				}
			}
		}
		return got
	}
	check := func(when, want string) {
		t.Helper()
		if got := hosts("g000001-0", nil); got != want {
			t.Errorf("%s: turns go to %q, want %q", when, got, want)
		}
	}
	promotes(t, f, events.WeightsPromoted{Version: 5})
	check("nothing is known of the servers", "abc")
	serves(t, f, "a", 12, false)
	serves(t, f, "b", 5, false)
	check("an old version is promoted", "b")
	if got := hosts("g000001-0", new(int64(12))); got != "abc" {
		t.Errorf("a run pins a version: %q", got)
	}
	serves(t, f, "b", 5, true)
	check("its server is lost", "")
	promotes(t, f, events.WeightsPromoted{})
	check("the newest again", "ac")
	serves(t, f, "b", 11, false)
	share := events.WeightsPromoted{Version: 12, Share: 0.5, Before: 11}
	promotes(t, f, share)
	seen := map[string]bool{}
	for i := range 64 {
		rollout := fmt.Sprintf("g%06d-1", i)
		got, want := hosts(rollout, nil), map[int64]string{11: "b", 12: "a"}[share.VersionFor("r", rollout)]
		if seen[got] = true; got != want {
			t.Errorf("%s goes to %q, want %q", rollout, got, want)
		}
	}
	if len(seen) != 2 {
		t.Errorf("all rollouts go to %v", seen)
	}
}

// TestRolledBack: a turn waits while no server has the version that it gets, and says so at last;
// a rollback lets it go on.
func TestRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{}), "b": always(reply{})},
			nil)
		isPublished(t, f, 12)
		serves(t, f, "a", 11, false)
		serves(t, f, "b", 11, false)
		promotes(t, f, events.WeightsPromoted{Version: 12, Before: 11})
		ask := func(until time.Duration) error {
			c := call("x", 8, "a", "b")
			c.Config.Staleness.Max, c.Until = 5, time.Now().Add(until)
			_, err := f.Complete(t.Context(), c)
			return err
		}
		if err := ask(time.Second); err == nil ||
			!strings.Contains(err.Error(), "serves version 11, and 12 is promoted") {
			t.Error(err)
		}
		waits := make(chan error)
		go func() { waits <- ask(time.Minute) }()
		synctest.Wait()
		if n := len(farm.times("a")) + len(farm.times("b")); n != 0 {
			t.Errorf("%d turns were asked for", n)
		}
		promotes(t, f, events.WeightsPromoted{Version: 11, RolledBack: 12})
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}

// TestBuiltinPolicyIsAskedForThePromotedVersion: it serves every version by its name, and
// no side-car says so of it.
func TestBuiltinPolicyIsAskedForThePromotedVersion(t *testing.T) {
	f, _ := newFarm(t, nil, nil)
	asked := func(rollout string, pinned *int64) string {
		c := call("x", 8, "a")
		c.Run, c.Affinity, c.Config.PolicyVersion = "r", rollout, pinned
		c.Config.Endpoint, c.Config.Endpoints = runfile.BuiltinEndpoint, nil
		targets, err := f.targets(c)
		if err != nil {
			t.Fatal(err)
		}
		may, _, _ := f.activations.usable(c, targets)
		if len(may) != 1 {
			t.Fatalf("%d servers", len(may))
		}
		return may[0].modelName()
	}
	policy := call("x", 8, "a").Config.Policy
	isPublished(t, f, 12)
	share := events.WeightsPromoted{Version: 12, Share: 0.5, Before: 11}
	for _, c := range []struct {
		name string
		said events.WeightsPromoted
		pin  *int64
		want func(rollout string) int64
	}{
		{"nothing is promoted", events.WeightsPromoted{}, nil, func(string) int64 { return 0 }},
		{"an old version", events.WeightsPromoted{Version: 5}, nil, func(string) int64 { return 5 }},
		{"a share", share, nil, func(rollout string) int64 { return share.VersionFor("r", rollout) }},
		{"a run that pins a version", events.WeightsPromoted{Version: 5}, new(int64(7)),
			func(string) int64 { return 7 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			promotes(t, f, c.said)
			for i := range 16 {
				rollout, want := fmt.Sprintf("g%06d-1", i), policy
				if version := c.want(rollout); version > 0 {
					want = fmt.Sprintf("%s@%d", policy, version)
				}
				if got := asked(rollout, c.pin); got != want {
					t.Errorf("%s asks for %s, want %s", rollout, got, want)
				}
			}
		})
	}
}
