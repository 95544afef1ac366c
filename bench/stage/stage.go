// Package stage measures what the service runtime costs: one stage of the pipeline (consume,
// handle, append to the chain, acknowledge) run by the runtime, beside the same stage
// written directly on nats.go.
//
// Both run in this process, each turn on an embedded server of its own over an in-process
// connection, one side after the other, and the figure is the ratio of the two: it says something
// on any machine, busy or not.
//
// What both do is the same: the work of the handler (half a kilobyte of JSON in, as much out), the
// headers and the conditions of the append, as many events in work at once, an acknowledgement that
// the server confirms. How they do it is each side's own: the raw stage is what one writes with
// nats.go's Consume, PublishMsg and DoubleAck, and may fetch ahead; the runtime never asks for more
// than it has free slots, beats for what is in work, parses and traces, counts and times.
//
// A third side is the ceiling: the same on nats.go without waiting for any answer
// before the next message.
package stage

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Events of one turn at the fast durability; every append being synced, an
	// eighth as many take as long.
	Events int `json:"events"` // default 20000
	// Pairs of turns per durability: raw, runtime, raw, runtime, …
	Pairs int `json:"pairs"` // default 7
	// Slots is how many events are in work at once on either side.
	Slots int `json:"slots"` // default 64
	// Durability settings to measure: how much a power cut may lose, 0 for nothing.
	Durability []time.Duration `json:"-"` // default 0 and 100 ms
	// Dir holds the servers' files while they run; "" is a temporary directory.
	Dir string `json:"-"`
}

func (o Options) withDefaults() (Options, error) {
	o.Events = cmp.Or(o.Events, 20000)
	o.Pairs = cmp.Or(o.Pairs, 7)
	o.Slots = cmp.Or(o.Slots, 64)
	if o.Durability == nil {
		o.Durability = []time.Duration{0, 100 * time.Millisecond}
	}
	if o.Events < syncedShare || o.Events > 1_000_000 || o.Pairs < 1 || o.Pairs > 1000 ||
		o.Slots < 1 || o.Slots > 1024 {
		return o, fmt.Errorf("events %d, pairs %d, slots %d: must be %d to 1000000, 1 to 1000, 1 to 1024", o.Events,
			o.Pairs, o.Slots, syncedShare)
	}
	return o, nil
}

// syncedShare is how many times fewer events a turn has when every append is synced.
const syncedShare = 8

// Result of a measurement.
type Result struct {
	Options
	Go           string    `json:"go"`
	CPUs         int       `json:"cpus"`
	PayloadBytes int       `json:"payload_bytes"` // of an input
	Settings     []Setting `json:"settings"`
}

// Setting is what was measured at one durability.
type Setting struct {
	Durability string `json:"durability"` // "always" or the interval between syncs
	Events     int    `json:"events"`     // of one turn
	// Ratio is the median over the pairs of the runtime's throughput to the raw
	// stage's, and its spread.
	Ratio    float64 `json:"ratio"`
	RatioMin float64 `json:"ratio_min"`
	RatioMax float64 `json:"ratio_max"`
	// ToCeiling is the median ratio to a stage on nats.go that waits for nothing.
	ToCeiling float64 `json:"ratio_to_ceiling"`
	Raw       Cost    `json:"raw"`
	Runtime   Cost    `json:"runtime"`
	Ceiling   Cost    `json:"ceiling"`
}

// Cost of one event, the median over the turns. It contains the server's part,
// which is the same for both.
type Cost struct {
	EventsPerSecond float64 `json:"events_per_second"`
	CPUMicroseconds float64 `json:"cpu_us_per_event"` // user and system time of the process
	Allocs          float64 `json:"allocs_per_event"`
	AllocBytes      float64 `json:"alloc_bytes_per_event"`
}

// Run measures, and tells of each turn by progress. Errors name the turn that failed.
func Run(ctx context.Context, o Options, progress func(string)) (Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Result{}, err
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "rondo-stagebench-"); err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(o.Dir)
	}
	result := Result{Options: o, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0),
		PayloadBytes: len(newInput(0).Data)}
	for _, d := range o.Durability {
		s, err := measure(ctx, o, d, progress)
		if err != nil {
			return result, err
		}
		result.Settings = append(result.Settings, s)
	}
	return result, nil
}

func measure(ctx context.Context, o Options, durability time.Duration, progress func(string)) (Setting, error) {
	s := Setting{Durability: "always", Events: o.Events / syncedShare}
	if durability > 0 {
		s.Durability, s.Events = durability.String(), o.Events
	}
	var raws, ours, ceilings []Cost
	var ratios, toCeiling []float64
	for pair := range o.Pairs {
		raw, err := turn(ctx, o, durability, s.Events, rawStage)
		if err != nil {
			return s, fmt.Errorf("durability %s, pair %d, raw stage: %w", s.Durability, pair+1, err)
		}
		our, err := turn(ctx, o, durability, s.Events, runtimeStage)
		if err != nil {
			return s, fmt.Errorf("durability %s, pair %d, runtime: %w", s.Durability, pair+1, err)
		}
		ceiling, err := turn(ctx, o, durability, s.Events, ceilingStage)
		if err != nil {
			return s, fmt.Errorf("durability %s, pair %d, ceiling: %w", s.Durability, pair+1, err)
		}
		raws, ours, ceilings = append(raws, raw), append(ours, our), append(ceilings, ceiling)
		ratios, toCeiling = append(ratios, our.EventsPerSecond/raw.EventsPerSecond),
			append(toCeiling, our.EventsPerSecond/ceiling.EventsPerSecond)
		progress(fmt.Sprintf("durability %s, pair %d of %d: raw %.0f events/s (%.0f µs CPU), runtime %.0f events/s (%.0f µs CPU), ratio %.2f; ceiling %.0f events/s",
			s.Durability, pair+1, o.Pairs, raw.EventsPerSecond, raw.CPUMicroseconds, our.EventsPerSecond,
			our.CPUMicroseconds, ratios[pair], ceiling.EventsPerSecond))
	}
	s.Ratio, s.RatioMin, s.RatioMax, s.ToCeiling = figures.Median(ratios), slices.Min(ratios), slices.Max(ratios),
		figures.Median(toCeiling)
	s.Raw, s.Runtime, s.Ceiling = medianCost(raws), medianCost(ours), medianCost(ceilings)
	return s, nil
}

func medianCost(costs []Cost) Cost {
	of := func(field func(Cost) float64) float64 {
		values := make([]float64, len(costs))
		for i, c := range costs {
			values[i] = field(c)
		}
		return figures.Median(values)
	}
	return Cost{
		EventsPerSecond: of(func(c Cost) float64 { return c.EventsPerSecond }),
		CPUMicroseconds: of(func(c Cost) float64 { return c.CPUMicroseconds }),
		Allocs:          of(func(c Cost) float64 { return c.Allocs }),
		AllocBytes:      of(func(c Cost) float64 { return c.AllocBytes }),
	}
}
