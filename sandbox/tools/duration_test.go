package tools

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// timedSet has tools that take some time: work waits for three seconds before two of its own, and
// read and write take a second.
func timedSet() *Set {
	named := func(name string, readOnly bool, waits, works time.Duration) tool {
		return tool{Definition: Definition{Name: name, ReadOnly: readOnly, Follows: FromSnapshot}, key: name,
			run: func(context.Context, *work, string) (observation, error) {
				time.Sleep(waits + works)
				return observation{content: name, waited: waits}, nil
			}}
	}
	s := &Set{tools: []tool{named("work", false, 3*time.Second, 2*time.Second), named("read", true, 0, time.Second),
		named("write", false, 0, time.Second)}, byName: map[string]*tool{}}
	for i := range s.tools {
		s.byName[s.tools[i].Name] = &s.tools[i]
	}
	return s
}

// TestDurationIsTheToolsOwn: neither what a tool waited for nor a slow cache is in it.
func TestDurationIsTheToolsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		slow := &Cache{Effect: Nothing, Answer: func(_ context.Context, key Key) (Result, bool) {
			time.Sleep(time.Minute)
			return Result{}, false
		}}
		shared := Work{Sandbox: &sandbox.Sandbox{}, State: &toolset.State{}, Known: slow}
		results, err := timedSet().Run(t.Context(), shared, []Call{{Name: "read"}, {Name: "read"}, {Name: "work"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct{ after, took time.Duration }{{time.Minute, time.Second},
			{time.Minute, time.Second}, {64 * time.Second, 2 * time.Second}} {
			if got := results[i]; got.StartedAt.Sub(began) != want.after || got.Duration != want.took {
				t.Errorf("call %d began after %s and took %s, want %s and %s", i, got.StartedAt.Sub(began),
					got.Duration, want.after, want.took)
			}
		}
	})
}

// TestTimeThatIsLeft: calls are begun until they have run for as long as they may. What they waited
// for does not count, and calls beside each other count once.
func TestTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]string{
			-time.Second: "-----", 0: "-----", 2 * time.Second: "w----", 3 * time.Second: "wrr--",
			3500 * time.Millisecond: "wrrw-", 5 * time.Second: "wrrww", time.Hour: "wrrww",
		} {
			results, err := timedSet().Run(t.Context(), Work{State: &toolset.State{}, Left: &left},
				[]Call{{Name: "work"}, {Name: "read"}, {Name: "read"}, {Name: "write"}, {Name: "write"}})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, r := range results {
				switch {
				case !r.Error:
					got += r.Content[:1]
				case strings.Contains(r.Content, "the time that tools may take"):
					got += "-"
				}
			}
			if got != want {
				t.Errorf("with %s: %s, want %s", left, got, want)
			}
		}
	})
}
