package run

import (
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
)

// shownGaps is how many steps `run show` prints; --json has all of them.
const shownGaps = 10

// printGaps shows how far the trainer's log-probabilities were from the
// sampler's at the latest steps.
func printGaps(w io.Writer, gaps []books.StepGap) {
	if len(gaps) == 0 {
		return
	}
	warned := 0
	for _, g := range gaps {
		if g.Warning {
			warned++
		}
	}
	if warned > 0 {
		fmt.Fprintf(w, "warning: logprob gap above %g nats at %d of %d steps: trainer and sampler compute different probabilities; see docs/guide/trainers.md\n",
			books.GapWarning, warned, len(gaps))
	}
	fmt.Fprintln(w, "logprob gap by step, trainer against sampler, in nats")
	t := app.NewColumns(w)
	fmt.Fprintln(t, "STEP\tMEAN\tLARGEST\tKL\tTOKENS\t")
	for _, g := range gaps[max(0, len(gaps)-shownGaps):] {
		mark := ""
		if g.Warning {
			mark = "!"
		}
		fmt.Fprintf(t, "%d\t%.4g\t%.4g\t%.4g\t%d\t%s\n", g.Step, g.MeanAbs, g.MaxAbs, g.KL, g.Tokens, mark)
	}
	_ = t.Flush() // as with any other write to w, its reader is gone
}
