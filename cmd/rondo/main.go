// Command rondo is the rollout plane in one binary: the demo, the embedded plane, each service by
// its name, and the tools that look into a run.
package main

import (
	"os"

	"github.com/rondo-rl/rondo/cli"
)

func main() { os.Exit(cli.Main()) }
