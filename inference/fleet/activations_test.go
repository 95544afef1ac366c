package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/inference"
)

// said notes a fact of the catalogue in a fleet.
func said(t *testing.T, f *Fleet, typ events.Type, data any) {
	t.Helper()
	e, err := events.New(events.Catalogue, typ, "p", "0", data)
	if err != nil {
		t.Fatal(err)
	}
	f.activations.mu.Lock()
	e.Seq = f.activations.seq + 1
	f.activations.mu.Unlock()
	if err := f.activations.take(e); err != nil {
		t.Fatal(err)
	}
	f.activations.reach(0)
}

func serves(t *testing.T, f *Fleet, host string, version int64, lost bool) {
	t.Helper()
	said(t, f, events.WeightsActivatedType, events.WeightsActivated{Version: version,
		Replica: "http://" + host + "/v1/", Lost: lost})
}

func isPublished(t *testing.T, f *Fleet, version int64) {
	t.Helper()
	said(t, f, events.WeightsPublishedType, events.WeightsPublished{Policy: "p", Version: version})
}

// TestVersionsRoute: a turn goes to servers that are within the run's bound alone. Those of which
// nothing is known get turns as before, unless the run demands versions.
func TestVersionsRoute(t *testing.T) {
	type state struct {
		version int64
		lost    bool
	}
	for name, c := range map[string]struct {
		published, max int64
		require        bool
		pinned         *int64
		known          map[string]state
		may            string
	}{
		"nothing is known":               {published: 9, max: 1, may: "ab"},
		"nothing, and versions demanded": {published: 9, max: 1, require: true, may: "ab"},
		"both are new": {published: 9, max: 1,
			known: map[string]state{"a": {9, false}, "b": {8, false}}, may: "ab"},
		"one lags": {published: 9, max: 1,
			known: map[string]state{"a": {7, false}, "b": {8, false}}, may: "b"},
		"one was started again": {published: 9, max: 1,
			known: map[string]state{"a": {9, true}, "b": {8, false}}, may: "b"},
		"a wide bound": {published: 9, max: 5,
			known: map[string]state{"a": {4, false}, "b": {3, false}}, may: "a"},
		"one is unknown": {published: 9, max: 1, known: map[string]state{"a": {7, false}}, may: "b"},
		"one is unknown, versions wanted": {published: 9, max: 1, require: true,
			known: map[string]state{"a": {9, false}}, may: "a"},
		"none may": {published: 9, max: 0,
			known: map[string]state{"a": {8, false}, "b": {9, true}}, may: ""},
		"an old one is pinned": {published: 9, max: 0, pinned: new(int64(3)),
			known: map[string]state{"a": {3, false}, "b": {3, true}}, may: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFarm(t, nil, nil)
			isPublished(t, f, c.published)
			for host, s := range c.known {
				serves(t, f, host, s.version, s.lost)
			}
			asked := call("x", 8, "a", "b")
			asked.Config.Staleness.Max, asked.Config.Staleness.RequireVersions, asked.Config.PolicyVersion = c.max,
				c.require, c.pinned
			asked.Config.Feeds = nil
			if c.require {
				asked.Config.Feeds = append(asked.Config.Feeds, call("x", 1).Config.Feeds...)
			}
			targets, err := f.targets(asked)
			if err != nil {
				t.Fatal(err)
			}
			may, wrong, _ := f.activations.usable(asked, targets)
			got := ""
			for _, host := range []string{"a", "b"} {
				for _, m := range may {
					if m.url == "http://"+host+"/v1" {
						got += host
					}
				}
			}
			if got != c.may || len(wrong)+len(may) != 2 {
				t.Errorf("turns go to %q, want %q (%q)", got, c.may, wrong)
			}
		})
	}
}

// TestDrained: a server that lags gets no new turn, and those in flight end; a turn that finds
// nobody waits for the first that catches up.
func TestDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{takes: time.Second}),
			"b": always(reply{takes: time.Second})}, nil)
		isPublished(t, f, 1)
		serves(t, f, "a", 1, false)
		serves(t, f, "b", 1, true)
		ask := func(until time.Duration) error {
			c := call("x", 8, "a", "b")
			c.Config.Staleness.Max, c.Until = 0, time.Now().Add(until)
			_, err := f.Complete(t.Context(), c)
			return err
		}
		inFlight := make(chan error)
		go func() { inFlight <- ask(time.Minute) }()
		synctest.Wait()
		isPublished(t, f, 2)
		waits := make(chan error)
		go func() { waits <- ask(time.Minute) }()
		if err := <-inFlight; err != nil {
			t.Errorf("the turn in flight: %v", err)
		}
		time.Sleep(10 * time.Second)
		if a, b := len(farm.times("a")), len(farm.times("b")); a != 1 || b != 0 {
			t.Errorf("a was asked %d times, b %d", a, b)
		}
		serves(t, f, "b", 2, false)
		if err := <-waits; err != nil {
			t.Errorf("the turn that waits: %v", err)
		}
		if a, b := len(farm.times("a")), len(farm.times("b")); a != 1 || b != 1 {
			t.Errorf("a was asked %d times, b %d", a, b)
		}
		isPublished(t, f, 3)
		err := ask(5 * time.Second)
		var failure *inference.Failure
		if !errors.As(err, &failure) || !failure.Throttled || failure.Permanent ||
			!strings.Contains(failure.Error(), "http://b/v1 serves version 2") {
			t.Errorf("nobody catches up: %v", err)
		}
		ctx, end := context.WithCancel(t.Context())
		end()
		c := call("x", 8, "a", "b")
		if _, err := f.Complete(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has gone: %v", err)
		}
	})
}

// TestManyVersionsAreBounded: names beyond the bound are left out, and what is said of
// known ones is still heard.
func TestManyVersionsAreBounded(t *testing.T) {
	f, _ := newFarm(t, nil, nil)
	isPublished(t, f, 1)
	serves(t, f, "a", 1, false)
	for i := range maxPolicies + 1 {
		note(f.activations.published, fmt.Sprint("p", i), 1, maxPolicies)
		note(f.activations.serving, fmt.Sprint("p", i), nil, maxPolicies)
	}
	of := f.activations.serving["p"]
	for i := range maxActivated + 1 {
		note(of, fmt.Sprint(i), activated{}, maxActivated)
	}
	isPublished(t, f, 2)
	serves(t, f, "a", 2, true)
	serves(t, f, "new", 2, false)
	if n := len(f.activations.published); n != maxPolicies || f.activations.published["p"] != 2 {
		t.Errorf("%d policies, p at version %d", n, f.activations.published["p"])
	}
	if n := len(f.activations.serving); n != maxPolicies || len(of) != maxActivated ||
		of["http://a/v1"] != (activated{version: 2, lost: true}) {
		t.Errorf("%d policies, %d servers, a at %+v", n, len(of), of["http://a/v1"])
	}
}

// TestLagsInTheQueue: a server that falls behind while a turn waits for a
// place at it does not get it.
func TestLagsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, farm := newFarm(t, map[string]func(int, time.Duration) reply{"a": always(reply{takes: time.Second})}, nil)
		isPublished(t, f, 1)
		serves(t, f, "a", 1, false)
		done := make(chan error, 2)
		for range 2 {
			go func() {
				c := call("x", 1, "a")
				c.Config.Staleness.Max, c.Until = 0, time.Now().Add(time.Minute)
				_, err := f.Complete(t.Context(), c)
				done <- err
			}()
		}
		synctest.Wait()
		serves(t, f, "a", 1, true)
		if err := <-done; err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if n := len(farm.times("a")); n != 1 {
			t.Errorf("a was asked %d times", n)
		}
		serves(t, f, "a", 1, false)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestUnreadLog: until the log has been read, what was said first does not keep turns away: it
// may be long out of date.
func TestUnreadLog(t *testing.T) {
	f, _ := newFarm(t, nil, nil)
	c := call("x", 1, "a")
	targets, err := f.targets(c)
	if err != nil {
		t.Fatal(err)
	}
	e, err := events.New(events.Catalogue, events.WeightsActivatedType, "p",
		"0", events.WeightsActivated{Version: 1, Replica: "http://a/v1", Lost: true})
	if err != nil {
		t.Fatal(err)
	}
	e.Seq = 1
	if err := f.activations.take(e); err != nil {
		t.Fatal(err)
	}
	f.activations.reach(2)
	if may, _, _ := f.activations.usable(c, targets); len(may) != 1 {
		t.Error("a log that is read half way decides")
	}
	f.activations.reach(1)
	if may, _, _ := f.activations.usable(c, targets); len(may) != 0 {
		t.Error("a log that is read decides nothing")
	}
}

// TestVersionsAreRead: what the log says of servers is known, also what is said later.
func TestVersionsAreRead(t *testing.T) {
	log := natstest.Log(t)
	n := 0
	state := func(typ events.Type, data any) {
		n++
		e, err := events.New(events.Catalogue, typ, "p", events.Ordinal(int64(n)), data)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := log.Appender.AppendLast(t.Context(), e, func(*events.Event) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	state(events.WeightsPublishedType, events.WeightsPublished{Policy: "p", Version: 3})
	state(events.WeightsActivatedType, events.WeightsActivated{Version: 3, Replica: "http://a/v1"})
	state(events.WeightsActivatedType, events.WeightsActivated{Version: 3, Replica: "server-1"}) // of no address
	f, _ := newFarm(t, nil, nil)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		f.FollowVersions(ctx, log.Reader)
		close(ended)
	}()
	c := call("x", 1, "a")
	targets, err := f.targets(c)
	if err != nil {
		t.Fatal(err)
	}
	may := func() int {
		may, _, _ := f.activations.usable(c, targets)
		return len(may)
	}
	state(events.WeightsActivatedType, events.WeightsActivated{Version: 3, Replica: "http://a/v1", Lost: true})
	natstest.Eventually(t, "the server is lost", func() bool { return may() == 0 })
	state(events.WeightsActivatedType, events.WeightsActivated{Version: 3, Replica: "http://a/v1"})
	natstest.Eventually(t, "the server is back", func() bool { return may() == 1 })
	end()
	<-ended
}
