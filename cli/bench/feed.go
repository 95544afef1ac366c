package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/bench/feed"
	"github.com/rondo-rl/rondo/cli/app"
)

func newBenchFeed(g *app.Global) *cobra.Command {
	var o feed.Options
	python := os.Getenv("RONDO_PYTHON")
	python = cmp.Or(python, "python3")
	noMemory := false
	cmd := &cobra.Command{
		Use:   "feed",
		Short: "Finished trajectories to the log and the store, and batches into arrays",
		Long: `Push encodes finished trajectories, stores them and appends the events that name them, as the generator does. The
feeder composes batches of them. Pull reads the batches into numpy arrays with the Python package rondo, or with
the Go reader if that package is not installed. Feed compares both with the plain write and read of the same bytes, which is
the speed of the disk. raw_append_mtok_s is NATS alone: one plain JetStream publish for each trajectory's event, of the same size, without
the trajectory's file. Feed measures each with every append synced to disk, and with a sync of the log each 100 ms; objects are
always synced.

The memory is that of a feeder in a separate process whose trainer takes no batch.

The measured plane is in a temporary directory. No other plane is touched.`,
		Example: "  rondo-bench feed\n  rondo-bench feed --lengths 8192 --tokens 67108864 --json\n  RONDO_PYTHON=.venv/bin/python rondo-bench feed --backlogs 100,1000,10000",
	}
	measure := func(ctx context.Context, show *app.Progress) (feedSummary, error) {
		if err := exec.CommandContext(ctx, python, "-c", "import rondo.bench").Run(); err == nil {
			o.Python = python
		} else {
			show.Line("the Python package rondo is not installed for %s: pull is measured with the Go reader", python)
		}
		if !noMemory {
			var err error
			if o.Rondo, err = rondo(); err != nil {
				return feedSummary{}, fmt.Errorf("%w; or skip the memory (--no-memory)", err)
			}
		}
		r, err := feed.Run(ctx, o, func(line string) { show.Line("%s", line) })
		if err != nil {
			return feedSummary{}, err
		}
		return summariseFeed(r), nil
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&o.Lengths, "lengths", []int{1 << 10, 8 << 10, 32 << 10}, "tokens of a trajectory")
	flags.IntVar(&o.Tokens, "tokens", 8<<20, "tokens of one turn, over all of its trajectories")
	flags.IntSliceVar(&o.Backlogs, "backlogs", []int{100, 10000},
		"groups that wait in the feeder whose memory is measured")
	flags.BoolVar(&noMemory, "no-memory", false, "skip the measurement of memory")
	flags.StringVar(&python, "python", python, "Python that has the package rondo")
	return measuring(g, "the feed", cmd, measure)
}

// feedSummary puts the figures that one looks for first in front: those of the middle length
// with every append synced.
type feedSummary struct {
	Push          float64 `json:"push_mtok_s"`
	Pull          float64 `json:"pull_mtok_s"`
	PushRatio     float64 `json:"push_vs_raw"`
	PullRatio     float64 `json:"pull_vs_raw"`
	RawAppend     float64 `json:"raw_append_mtok_s"`
	AppendRatio   float64 `json:"push_vs_raw_append"`
	BytesPerToken float64 `json:"bytes_per_token"`
	LogPerToken   float64 `json:"log_bytes_per_sampled_token"`
	// The resident memory of the feeder by the groups that wait, under rss_mib_<groups>.
	RSS100   float64 `json:"rss_mib_100,omitempty"`
	RSS10000 float64 `json:"rss_mib_10000,omitempty"`
	feed.Result
}

func summariseFeed(r feed.Result) feedSummary {
	s := feedSummary{Result: r}
	middle := r.Lengths[len(r.Lengths)/2]
	for _, t := range r.Turns {
		if t.Tokens == middle && t.Durability == "always" {
			s.Push, s.Pull, s.PushRatio, s.PullRatio, s.BytesPerToken, s.LogPerToken = t.Push, t.Pull, t.PushRatio(),
				t.PullRatio(), t.BytesPerToken, t.LogPerToken
			s.RawAppend, s.AppendRatio = t.RawAppend, t.AppendRatio()
		}
	}
	for _, m := range r.Memory {
		switch m.Groups {
		case 100:
			s.RSS100 = m.FeederMiB
		case 10000:
			s.RSS10000 = m.FeederMiB
		}
	}
	return s
}
