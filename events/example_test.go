package events_test

import (
	"fmt"
	"log"

	"github.com/rondo-rl/rondo/events"
)

// An event becomes a NATS message and is read back from one.
func Example() {
	sent, err := events.New("demo", events.BatchConsumedType, "trainer", "7", events.BatchConsumed{Step: 7})
	if err != nil {
		log.Fatal(err)
	}
	m := sent.Message()
	fmt.Println(m.Subject)
	fmt.Println(string(m.Data))

	received, err := events.Parse(m.Subject, m.Header, m.Data)
	if err != nil {
		log.Fatal(err)
	}
	consumed, err := events.Data[events.BatchConsumed](received)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(received.Type, received.Entity, consumed.Step)
	// Output:
	// rondo.v1.demo.batch.trainer.consumed
	// {"step":7}
	// batch.consumed trainer 7
}

// A rollout's id names its group.
func ExampleRolloutID() {
	group := events.GroupID(123)
	rollout := events.RolloutID(group, 4)
	fmt.Println(group, rollout, events.GroupOf(rollout))
	// Output:
	// g000123 g000123-4 g000123
}
