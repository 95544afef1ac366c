// Command rondo-bench measures rondo: its stages, its feed, its log, its sandboxes, its weights and
// its index, each beside the same work without it.
package main

import (
	"os"

	"github.com/rondo-rl/rondo/cli/bench"
)

func main() { os.Exit(bench.Main()) }
