package books_test

import (
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// The books count what became of each rollout.
func ExampleRun_Balance() {
	l := books.New("demo")
	for seq, s := range []struct {
		typ     events.Type
		entity  string
		ordinal string
		data    any
	}{
		{events.RunOpenedType, "demo", "0", events.RunOpened{Config: runfile.RunConfig{GroupSize: 2,
			Feeds: []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}}}},
		{events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 2}},
		{events.RolloutStartedType, "g000001-0", "0", events.RolloutStarted{Task: "fix"}},
		{events.RolloutStartedType, "g000001-1", "0", events.RolloutStarted{Task: "fix"}},
		{events.RolloutFailedType, "g000001-1", "0", events.RolloutFailed{Stage: events.StageSampler,
			Class: events.ClassDeadline}},
	} {
		e, err := events.New("demo", s.typ, s.entity, s.ordinal, s.data)
		if err != nil {
			log.Fatal(err)
		}
		e.Seq = uint64(seq + 1)
		if err := l.Apply(e); err != nil {
			log.Fatal(err)
		}
	}
	b := l.Balance("trainer")
	fmt.Printf("%d started: %d failed, %d in flight\n", b.Started, b.Failed, b.InFlight)
	// Output:
	// 2 started: 1 failed, 1 in flight
}
