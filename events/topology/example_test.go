package topology_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/rondo-rl/rondo/events/topology"
)

// A trainer may submit events of its own feed and policy only.
func ExampleOutsiderPermissions() {
	p, err := topology.OutsiderPermissions(topology.Outsider{Name: "torch", Role: topology.RoleTrainer, Run: "demo",
		Feed: "main", Policy: "small"})
	if err != nil {
		log.Fatal(err)
	}
	for _, subject := range p.Publish {
		if strings.HasPrefix(subject, "rondo.in.") {
			fmt.Println(subject)
		}
	}
	// Output:
	// rondo.in._.weights.small.submitted
	// rondo.in.demo.batch.main.checkpointed
	// rondo.in.demo.batch.main.consumed
	// rondo.in.demo.batch.main.rewound
}

func ExampleConsumersOf() {
	for _, c := range topology.ConsumersOf(topology.WeightPublisher) {
		fmt.Println(c.Name, "reads", c.Type, "from", c.Stream)
	}
	// Output:
	// weightpublisher-v1 reads weights.submitted from RONDO
	// weightpublisher-runs-v1 reads run.opened from RONDO
}
