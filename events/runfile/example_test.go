package runfile_test

import (
	"fmt"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Validate reports all mistakes of a configuration at once.
func ExampleRunConfig_Validate() {
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint = "small", "http://127.0.0.1:8000/v1"
	cfg.External = true
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 8}}
	fmt.Println(cfg.Validate())

	cfg.GroupSize, cfg.Feeds[0].GroupsPerBatch = 0, -1
	fmt.Println(cfg.Validate())
	// Output:
	// <nil>
	// group_size 0: must be 1 to 1024
	// feeds: trainer: groups_per_batch -1: must be 1 to 10000
}

// A stage of a task follows if the stage before it reached its least rewards.
func ExampleStepSpec_Passes() {
	stage := runfile.StepSpec{MinReward: map[string]float64{"reward": 0.5}}
	fmt.Println(stage.Passes(map[string]float64{"reward": 0.75}),
		stage.Passes(map[string]float64{"reward": 0.25}), stage.Passes(nil))
	// Output:
	// true false false
}
