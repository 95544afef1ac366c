// Package replay measures how fast a recorded run is read back: folded from its stream, folded from
// its archive, and verified decision by decision.
//
// Beside the folds stand a bare ordered consumer of the same messages and a bare Arrow reader of
// the same segments, in the same process in turns. The run is recorded by the deciding services
// themselves on an embedded server; what the world does in between (turns, tools, verdicts,
// weights) is made up, in the sizes of a demo.
package replay

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/pipeline"
)

// Options of a measurement.
type Options struct {
	Rollouts int `json:"rollouts"` // recorded, rounded to whole batches
	Pairs    int `json:"pairs"`    // turns of either side of each ratio
	// Services decide on the run that is recorded.
	Services []func(context.Context, pipeline.Env) error `json:"-"`
	// Rondo is the binary that verifies, in a process of its own.
	Rondo string `json:"-"`
}

const (
	groupSize = 8
	batchSize = 16 // groups, at most
)

func (o Options) validate() error {
	if o.Rollouts < groupSize || o.Rollouts > 12_000 {
		return fmt.Errorf("%d rollouts: must be %d to 12000, which is what a run's stream holds", o.Rollouts, groupSize)
	}
	if o.Pairs < 1 || o.Pairs > 100 {
		return fmt.Errorf("%d pairs: must be 1 to 100", o.Pairs)
	}
	return nil
}

// Result of a measurement. Speeds are in events a second; ratios are medians over pairs of turns.
// Those of the time that passed are what a user sees on a machine that does nothing else; on a busy
// one those of processor time say more.
type Result struct {
	Options
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
	Events uint64 `json:"events"`
	Bytes  uint64 `json:"bytes"` // of the stream
	// Replay folds the books of the run, as an audit does; Raw is a bare ordered consumer.
	Replay      float64 `json:"replay_events_s"`
	Raw         float64 `json:"raw_events_s"`
	ReplayRatio float64 `json:"replay_vs_raw"`
	ReplayCPU   float64 `json:"replay_cpu_vs_raw"` // the bare reader's processor time as a part of the fold's
	// Archive folds the same from the segments; ArchiveRaw is a bare Arrow reader.
	Archive      float64 `json:"archive_events_s"`
	ArchiveRaw   float64 `json:"archive_raw_events_s"`
	ArchiveRatio float64 `json:"archive_vs_raw"`
	ArchiveCPU   float64 `json:"archive_cpu_vs_raw"`
	ArchiveBytes int64   `json:"archive_bytes"`
	// Verify makes every decision again, with every batch's file.
	Verified       int     `json:"verified_rollouts"`
	Verify         float64 `json:"verify_rollouts_s"`
	VerifySeconds  float64 `json:"verify_seconds"`
	PeakMiB        float64 `json:"peak_mib"` // resident memory of the process that verifies
	VerifiedFacts  int     `json:"verified_facts"`
	RecordedSecond float64 `json:"recorded_seconds"`
}

// Run measures. progress receives what is being done.
func Run(ctx context.Context, o Options, progress func(string)) (r Result, err error) {
	r = Result{Options: o, Go: goruntime.Version(), CPUs: goruntime.NumCPU()}
	if err := o.validate(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "rondo-bench-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	p, err := startPlane(ctx, dir)
	if err != nil {
		return r, err
	}
	defer p.close()
	progress(fmt.Sprintf("recording a run of %d rollouts", o.Rollouts))
	began := time.Now()
	if r.Verified, err = p.record(ctx, o); err != nil {
		return r, fmt.Errorf("record: %w", err)
	}
	r.RecordedSecond = time.Since(began).Seconds()
	goruntime.GC()
	if err := p.measureStream(ctx, &r, progress); err != nil {
		return r, fmt.Errorf("replay: %w", err)
	}
	progress("every decision again")
	if err := p.measureVerify(ctx, &r); err != nil {
		return r, fmt.Errorf("verify: %w", err)
	}
	if err := p.measureArchive(ctx, &r, progress); err != nil {
		return r, fmt.Errorf("archive: %w", err)
	}
	return r, nil
}

// compared is what two ways to do the same cost, as medians.
type compared struct {
	a, b       float64 // things a second
	ratio, cpu float64 // a's speed as a part of b's, by the time that passed and by processor time
}

// inTurns measures two ways to do n things, one after the other, pairs times.
func inTurns(pairs int, n float64, a, b func() error) (compared, error) {
	var as, bs, ratios, cpus []float64
	for i := range pairs {
		first, second := a, b
		if i%2 == 1 { // neither always comes first
			first, second = b, a
		}
		x, err := measure(first)
		if err != nil {
			return compared{}, err
		}
		y, err := measure(second)
		if err != nil {
			return compared{}, err
		}
		if i%2 == 1 {
			x, y = y, x
		}
		as, bs = append(as, n/x.passed), append(bs, n/y.passed)
		ratios, cpus = append(ratios, y.passed/x.passed), append(cpus, y.processor/x.processor)
	}
	return compared{figures.Median(as), figures.Median(bs), figures.Median(ratios), figures.Median(cpus)}, nil
}

// cost is in seconds.
type cost struct{ passed, processor float64 }

func measure(f func() error) (cost, error) {
	goruntime.GC()
	before, began := figures.ProcessorTime(), time.Now()
	err := f()
	return cost{time.Since(began).Seconds(), (figures.ProcessorTime() - before).Seconds()}, err
}
