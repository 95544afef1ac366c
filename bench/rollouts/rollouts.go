// Package rollouts measures the pipeline's own speed: rollouts from their opening to the batch,
// with a model, tools and verifiers that answer at once.
//
// The query sampler, generator, advantage calculator, trainer feeder and archiver are the
// real ones, in this process, on an embedded log that is synced every 100 ms. The inference
// server is scripted; tool runner and scorer are stand-ins that state their answers at once,
// through the same runtime.
//
// Two runs are made. In the first one all rollouts are open at once and nothing waits but for the
// pipeline: it gives throughput and processor time. In the second one 48 rollouts are open, and the
// model's pace halves the turns a second. The time of each stage is taken, from the event that
// begins it to the one that ends it, less the model's time. Beside it an event is passed on by
// nats.go alone, on the same log under the same load.
package rollouts

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/rondo-rl/rondo/bench/figures"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Rollouts of the first run.
	Rollouts int `json:"rollouts"` // default 800
	// Turns of a rollout of the first run: in all but the last one a tool is called.
	Turns int `json:"turns"` // default 4
	// Tokens that are sampled in a turn.
	Tokens int `json:"tokens"` // default 128
	// Open, if positive, is how many rollouts a third run has open at once, while the model does
	// not answer, for their memory.
	Open int `json:"open"`
	// Dir holds the files while they are needed; "" is a temporary directory.
	Dir string `json:"-"`
}

// groupSize is that of all runs.
const groupSize = 8

func (o Options) withDefaults() (Options, error) {
	o.Rollouts = cmp.Or(o.Rollouts, 800)
	o.Turns = cmp.Or(o.Turns, 4)
	o.Tokens = cmp.Or(o.Tokens, 128)
	if o.Rollouts < 8*groupSize || o.Rollouts > 10_000*groupSize || o.Turns < 2 || o.Turns > 100 || o.Tokens < 16 ||
		o.Tokens > 4096 || o.Open < 0 || o.Open > 10_000*heldGroup {
		return o, fmt.Errorf("%d rollouts of %d turns of %d tokens, %d open: must be %d to %d of 2 to 100 of 16 to 4096, and at most %d",
			o.Rollouts, o.Turns, o.Tokens, o.Open, 8*groupSize, 10_000*groupSize, 10_000*heldGroup)
	}
	return o, nil
}

// Result of a measurement.
type Result struct {
	Options
	Go   string `json:"go"`
	CPUs int    `json:"cpus"`
	// RolloutsPerSecond and EventsPerSecond are those of the first run, from the first
	// rollout's start to the batch.
	RolloutsPerSecond float64 `json:"rollouts_s"`
	EventsPerSecond   float64 `json:"events_s"`
	// CPUPerRollout is the processor time in ms of the whole process, log and
	// scripted server included.
	CPUPerRollout float64 `json:"cpu_ms_per_rollout"`
	// StoreWrites and StoreReads are the requests to the store of a rollout of the first run. Its
	// tools change no workspace.
	StoreWrites float64 `json:"store_writes_per_rollout"`
	StoreReads  float64 `json:"store_reads_per_rollout"`
	// Raw is what nats.go takes to pass an event on.
	Raw    figures.Latency `json:"raw"`
	Stages []Stage         `json:"stages"`
	// AddedP50 and AddedP99 are the sums over the stages of a turn and of a rollout's end,
	// less Raw for each, in ms.
	AddedP50 float64 `json:"added_ms_p50"`
	AddedP99 float64 `json:"added_ms_p99"`
	// OpenGiB is the resident memory of the process with Open rollouts open, and OpenGiB100k the
	// same where that is 100,000.
	OpenGiB     float64 `json:"gib_open,omitempty"`
	OpenGiB100k float64 `json:"gib_at_100k_open,omitempty"`
}

// Stage is the way from one event to the next.
type Stage struct {
	Name string `json:"name"`
	figures.Latency
}

// Run measures; now is told what is being done.
func Run(ctx context.Context, o Options, now func(string)) (r Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return Result{}, err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "rondo-bench-"); err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(o.Dir)
	}
	r = Result{Options: o, Go: runtime.Version(), CPUs: runtime.NumCPU()}
	return r, withPlane(ctx, o, func(b *bench) error {
		if err := b.full(ctx, &r, now); err != nil {
			return fmt.Errorf("all at once: %w", err)
		}
		if err := b.half(ctx, &r, now); err != nil {
			return fmt.Errorf("half of that: %w", err)
		}
		if o.Open == 0 {
			return nil
		}
		if err := b.held(ctx, &r, now); err != nil {
			return fmt.Errorf("many open: %w", err)
		}
		return nil
	})
}
