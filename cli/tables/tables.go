// Package tables prints the books of a run, and what retention finds of weights.
package tables

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
)

// PrintBalance prints the balance of a feed as a line.
func PrintBalance(w io.Writer, b books.Balance) {
	if b.Feed == books.NoFeed {
		fmt.Fprintf(w, "evaluation: %d started = %d evaluated + %d failed + %d in flight; %d invalidated\n", b.Started,
			b.Filtered, b.Failed, b.InFlight, b.Invalidated)
		return
	}
	fmt.Fprintf(w, "feed %s: %d started = %d trained + %d stale + %d filtered + %d failed + %d in flight; step %d of %d consumed\n",
		b.Feed, b.Started, b.Trained, b.Stale, b.Filtered, b.Failed, b.InFlight, b.Consumed, b.Steps)
}

// PrintBooks prints divided books as a table.
func PrintBooks(w io.Writer, b books.Division) {
	fmt.Fprintf(w, "\nfeed %s by %s\n", b.Feed, b.By)
	table := app.NewColumns(w)
	fmt.Fprintln(table, "started\ttrained\tstale\tfiltered\tfailed\tin flight\t  "+b.By)
	for _, r := range b.Rows {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", r.Started, r.Trained, r.Stale, r.Filtered,
			r.Failed, r.InFlight, r.Key)
	}
	table.Flush()
}

// PrintBias prints each measure as a table and a plot of two bars for each part of its range.
func PrintBias(w io.Writer, b books.Bias) {
	for _, m := range b.Measures {
		fmt.Fprintf(w, "\nfeed %s: %s of dropped against trained rollouts\n", b.Feed, m.Name)
		table := app.NewColumns(w)
		fmt.Fprintln(table, "rollouts\tmean\tp10\tp50\tp90\t  ")
		line := func(name string, d books.Distribution) {
			if d.Rollouts == 0 {
				fmt.Fprintf(table, "0\t-\t-\t-\t-\t  %s\n", name)
				return
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t  %s\n", d.Rollouts, figure(d.Mean), figure(d.P10),
				figure(d.P50), figure(d.P90), name)
		}
		line("trained", m.Trained)
		line("dropped", m.Dropped)
		for _, o := range []books.Outcome{books.Stale, books.Filtered, books.Failed} {
			if d, ok := m.Outcomes[o]; ok {
				line("… "+string(o), d)
			}
		}
		table.Flush()
		if m.Superiority == nil {
			fmt.Fprintln(w, "there is nothing to compare yet")
			continue
		}
		plotBins(w, m.Plot)
		fmt.Fprintf(w, "a dropped rollout has more %s than a trained one with probability %.2f (0.50 is no bias)\n",
			m.Name, *m.Superiority)
	}
}

// barWidth is the length of a bar that stands for all rollouts.
const barWidth = 50

func plotBins(w io.Writer, bins []books.Bin) {
	bar := func(share float64) string {
		blocks := strings.Repeat("█", int(math.Round(share*barWidth)))
		if blocks == "" && share > 0 {
			blocks = "▏"
		}
		return fmt.Sprintf("%s %.0f%%", blocks, 100*share)
	}
	for _, b := range bins {
		fmt.Fprintf(w, "%9s – %-9s trained %s\n", figure(b.From), figure(b.To), bar(b.Trained))
		fmt.Fprintf(w, "%21s dropped %s\n", "", bar(b.Dropped))
	}
}

// figure writes whole numbers whole, and others with three digits.
func figure(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
