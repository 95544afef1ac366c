// Package utilisation simulates how busy four schedules keep an inference server: a barrier, a queue of batches, the plainest asynchronous one, and
// Rondo.
//
// Time is virtual. Rondo's side is not modelled: the real deciders of the query sampler, the advantage calculator and the trainer feeder
// decide on a log in memory, and turns come to the server by the generator's slots and its fleet's ramp. The server, the trainer,
// tools and verifiers are modelled, and have the same to do in every schedule.
package utilisation

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Options of a simulation.
type Options struct {
	Seed      int64 `json:"seed"`
	Steps     int   `json:"steps"` // of training that are measured, in the steady state
	Groups    int   `json:"groups_per_batch"`
	GroupSize int   `json:"group_size"`
	// Staleness and Policy are those of Rondo's run.
	Staleness int64  `json:"staleness_max"`
	Policy    string `json:"staleness_policy"`
	// InFlight is that of Rondo's run: how many rollouts are under way at once; 0 leaves that to Staleness.
	InFlight runfile.InFlight `json:"in_flight"`
	// Generators ask the server.
	Generators int `json:"generators"`
	// Restart lets the server restart in the first half of the measurement: it is away for a while, and cold.
	Restart bool `json:"restart,omitempty"`
	// ToolSlots are those of all tool runners together; 0: there are always enough. ToolOrder is which turn gets a free one.
	ToolSlots int    `json:"tool_slots,omitempty"`
	ToolOrder string `json:"tool_order,omitempty"`
	// Train is how long a step of training takes, as a part of the time in which a server that is always busy samples its batch.
	Train float64 `json:"train"`
	// Equal makes all rollouts alike: one turn, no tools, and no time to take up weights. All schedules must come out the same then.
	Equal bool `json:"equal,omitempty"`
}

// DefaultOptions are a run of 128 rollouts a step. Where nothing overlaps, rollouts are some 70 % of the time of training, as
// RollPacker reports (https://www.themoonlight.io/review/rollpacker-mitigating-long-tail-rollouts-for-fast-synchronous-rl-post-training).
// The staleness is the default of prime-rl (max_off_policy_steps) and of verl's V1 trainer (max_off_policy_threshold).
func DefaultOptions() Options {
	return Options{Seed: 1, Steps: 40, Groups: 16, GroupSize: 8, Staleness: 8, Policy: runfile.StaleDrop, InFlight: 96, Generators: 1, ToolOrder: OrderTurns, Train: 0.6}
}

func (o Options) validate() error {
	switch {
	case o.Seed < 0:
		return errSeed
	case o.Steps < 1 || o.Steps > 1000:
		return fmt.Errorf("%d steps: must be 1 to 1000", o.Steps)
	case o.Groups < 1 || o.Groups > 1000:
		return fmt.Errorf("%d groups a batch: must be 1 to 1000", o.Groups)
	case o.GroupSize < 1 || o.GroupSize > 64:
		return fmt.Errorf("%d rollouts a group: must be 1 to 64", o.GroupSize)
	case o.Staleness < 0 || o.Staleness > 64:
		return fmt.Errorf("staleness %d: must be 0 to 64", o.Staleness)
	case o.InFlight != runfile.AutoInFlight && (o.InFlight < 0 || o.InFlight > 100000):
		return fmt.Errorf("%d rollouts in flight: must be 0 to 100000, or %s", int(o.InFlight), runfile.AutoInFlight)
	case o.Generators < 1 || o.Generators > 64:
		return fmt.Errorf("%d generators: must be 1 to 64", o.Generators)
	case o.ToolSlots < 0 || o.ToolSlots > 100000:
		return fmt.Errorf("%d tool slots: must be 0 to 100000", o.ToolSlots)
	case o.ToolOrder != OrderTurns && o.ToolOrder != OrderGroups:
		return fmt.Errorf("tool order %q: must be %s or %s", o.ToolOrder, OrderTurns, OrderGroups)
	case !slices.Contains([]string{runfile.StaleDrop, runfile.StaleWait, runfile.StaleKeep}, o.Policy):
		return fmt.Errorf("policy %q: must be %s, %s or %s", o.Policy, runfile.StaleDrop, runfile.StaleWait, runfile.StaleKeep)
	case !(o.Train >= 0 && o.Train <= 10):
		return fmt.Errorf("train %g: must be 0 to 10", o.Train)
	}
	return nil
}

// Result of a simulation.
type Result struct {
	Options
	// Barrier, Queue, Async and Rondo are the tokens that the server sampled in each schedule, as a part of those that one which is always busy samples.
	Barrier float64 `json:"barrier"`
	Queue   float64 `json:"queue"`
	Async   float64 `json:"async"`
	Rondo   float64 `json:"rondo"`
	// Knee and Peak are the server's: sequences at once, and tokens a second.
	Knee      int        `json:"knee"`
	Peak      int        `json:"peak_tokens_s"`
	Tokens    float64    `json:"mean_rollout_tokens"`
	Schedules []Schedule `json:"schedules"`
}

// Schedule is what was measured of one.
type Schedule struct {
	Name string `json:"name"`
	// Busy is the server's time at its peak, by tokens that it sampled, and Trained the same by tokens that were trained on.
	Busy            float64 `json:"busy"`
	Trained         float64 `json:"trained"`
	RolloutsPerHour float64 `json:"rollouts_per_hour"` // trained on
	StepSeconds     float64 `json:"step_seconds"`
	// Staleness counts groups that were trained on, by the versions between their dispatch and the one that was trained.
	Staleness     []int64 `json:"staleness"`
	MeanStaleness float64 `json:"mean_staleness"`
	Dropped       int     `json:"dropped_rollouts"` // as too old
	// ToolWait is how long turns waited for a tool runner, in seconds, and Group how long groups took from their first turn to their last verdict.
	ToolWaitP50 float64 `json:"tool_wait_s_p50"`
	ToolWaitP99 float64 `json:"tool_wait_s_p99"`
	GroupMean   float64 `json:"group_s_mean"`
	GroupP99    float64 `json:"group_s_p99"`
	// Capacities are how often a generator stated what the server can do, and Capacity is the last of that; where the run follows it.
	Capacities int `json:"capacities,omitempty"`
	Capacity   int `json:"capacity,omitempty"`
}

// Run simulates the four schedules. progress receives what is being done.
func Run(o Options, progress func(string)) (Result, error) {
	r := Result{Options: o, Knee: knee, Peak: peakTPS}
	if err := o.validate(); err != nil {
		return r, err
	}
	r.Tokens = load{seed: uint64(o.Seed), size: o.GroupSize, equal: o.Equal}.meanTokens()
	for _, queued := range []bool{false, true} {
		name, figure := "barrier", &r.Barrier
		if queued {
			name, figure = "queue", &r.Queue
		}
		progress(name)
		w, err := simulateBatches(o, queued)
		if err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
		s := w.measured(name)
		*figure, r.Schedules = s.Busy, append(r.Schedules, s)
	}
	progress("async")
	a, err := simulateAsync(o)
	if err != nil {
		return r, fmt.Errorf("async: %w", err)
	}
	plain := a.measured("async")
	plain.Dropped = a.dropped
	r.Async, r.Schedules = plain.Busy, append(r.Schedules, plain)
	progress("rondo")
	p, err := simulateRondo(o)
	if err != nil {
		return r, fmt.Errorf("rondo: %w", err)
	}
	s := p.measured("rondo")
	s.Dropped, s.Capacities, s.Capacity = p.dropped, p.capacities, p.capacity.Turns
	r.Rondo, r.Schedules = s.Busy, append(r.Schedules, s)
	return r, nil
}

// measured is what a schedule came to between the first measured step and the last.
func (w *world) measured(name string) Schedule {
	elapsed := w.to.at - w.from.at
	s := Schedule{
		Name: name, Staleness: w.stale,
		Busy:            (w.to.produced - w.from.produced) / elapsed / peakTPS,
		Trained:         (w.to.tokens - w.from.tokens) / elapsed / peakTPS,
		RolloutsPerHour: (w.to.rollouts - w.from.rollouts) / elapsed * 3600,
		StepSeconds:     elapsed / float64(w.last-w.warm),
		ToolWaitP50:     quantile(w.tools.waited, 0.5), ToolWaitP99: quantile(w.tools.waited, 0.99),
		GroupMean: mean(w.tools.took), GroupP99: quantile(w.tools.took, 0.99),
	}
	groups, sum := int64(0), int64(0)
	for staleness, n := range w.stale {
		groups += n
		sum += n * int64(staleness)
	}
	s.MeanStaleness = float64(sum) / float64(max(1, groups))
	return s
}
