// Package utilisation simulates how busy schedules keep an inference server: a barrier, a queue of
// batches, the plainest asynchronous one, and Rondo.
//
// Time is virtual. Rondo's side is not modelled: the real deciders of the query sampler, the
// advantage calculator and the trainer feeder decide on a log in memory, and turns come to the
// server by the generator's slots and its fleet's ramp. The server, the trainer, tools and
// verifiers are modelled, and have the same to do in every schedule.
package utilisation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Options of a simulation.
type Options struct {
	Seed int64 `json:"seed"`
	// Workloads are what rollouts do, by the names of the Workload constants.
	Workloads []string `json:"workloads"`
	Steps     int      `json:"steps"` // of training that are measured, in the steady state
	Groups    int      `json:"groups_per_batch"`
	GroupSize int      `json:"group_size"`
	// Staleness is that of Rondo's run.
	Staleness int64 `json:"staleness_max"`
	// InFlight is that of Rondo's run: how many rollouts are under way at once; 0
	// leaves that to Staleness.
	InFlight runfile.InFlight `json:"in_flight"`
	// Generators ask the server.
	Generators int `json:"generators"`
	// Restart lets the server restart in the first half of the measurement: it is
	// away for a while, and cold.
	Restart bool `json:"restart,omitempty"`
	// ToolSlots are those of all tool runners together; 0: there are always enough.
	ToolSlots int `json:"tool_slots,omitempty"`
	// Train is how long a step of training takes, as a part of the time in which a server that is
	// always busy samples its batch.
	Train float64 `json:"train"`
}

// DefaultOptions are a run with a new run file. Where nothing overlaps, rollouts are some 70 % of
// the time of training, as RollPacker reports
// (https://www.themoonlight.io/review/rollpacker-mitigating-long-tail-rollouts-for-fast-synchronous-rl-post-training).
func DefaultOptions() Options {
	o := Options{Seed: 1, Workloads: []string{WorkloadAgents, WorkloadTests, WorkloadLong}, Steps: 20,
		Generators: 1, Train: 0.6}
	o.take(runfile.DefaultRunConfig())
	return o
}

// take takes from a run file what a simulation has of it.
func (o *Options) take(cfg runfile.RunConfig) {
	o.Groups, o.GroupSize, o.InFlight = cfg.Feeds[0].GroupsPerBatch, cfg.GroupSize, cfg.InFlight
	o.Staleness = cfg.Staleness.Max
}

// newRunFile are the options with the staleness and the rollouts under way of a new run file.
func (o Options) newRunFile() Options {
	groups, size := o.Groups, o.GroupSize
	o.take(runfile.DefaultRunConfig())
	o.Groups, o.GroupSize = groups, size
	return o
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
	case !(o.Train >= 0 && o.Train <= 10):
		return fmt.Errorf("train %g: must be 0 to 10", o.Train)
	case len(o.Workloads) == 0:
		return errors.New("no workload")
	}
	for _, name := range o.Workloads {
		if _, err := workloadOf(name); err != nil {
			return err
		}
	}
	return nil
}

// Result of a simulation.
type Result struct {
	Options
	// Barrier, Queue, Async and Rondo are the tokens that the server sampled in each schedule of
	// the first workload, as a part of those that it samples at its peak.
	Barrier float64 `json:"barrier"`
	Queue   float64 `json:"queue"`
	Async   float64 `json:"async"`
	Rondo   float64 `json:"rondo"`
	// Knee and Peak are the server's: sequences at once, and tokens a second.
	Knee      int        `json:"knee"`
	Peak      int        `json:"peak_tokens_s"`
	Schedules []Schedule `json:"schedules"`
	// Sharing is how runs share the slots of one service.
	Sharing []Sharing `json:"sharing"`
}

// Names of the schedules.
const (
	Barrier = "barrier"
	Queue   = "queue"
	Async   = "async"
	Rondo   = "rondo"
	// NewRunFile is Rondo with what a new run file says of staleness and of rollouts under way.
	NewRunFile = "rondo, a new run file"
)

// Schedule is what was measured of one with one workload.
type Schedule struct {
	Workload string  `json:"workload"`
	Tokens   float64 `json:"mean_rollout_tokens"` // sampled
	Name     string  `json:"name"`
	// Busy is the server's time at its peak, by tokens that it sampled, and Trained the same by
	// tokens that were trained on.
	Busy            float64 `json:"busy"`
	Trained         float64 `json:"trained"`
	RolloutsPerHour float64 `json:"rollouts_per_hour"` // trained on
	StepSeconds     float64 `json:"step_seconds"`
	// Staleness counts groups that were trained on, by the versions between their dispatch and
	// the one that was trained.
	Staleness     []int64 `json:"staleness"`
	MeanStaleness float64 `json:"mean_staleness"`
	Dropped       int     `json:"dropped_rollouts"` // as too old
	// FirstToken is how long turns waited at the server for their first token, in seconds, and
	// Cached the part of their prompts that the server had kept.
	FirstTokenP50 float64 `json:"first_token_s_p50"`
	FirstTokenP99 float64 `json:"first_token_s_p99"`
	Cached        float64 `json:"cached"`
	// ToolWait is how long turns waited for a tool runner, in seconds.
	ToolWaitP50 float64 `json:"tool_wait_s_p50"`
	ToolWaitP99 float64 `json:"tool_wait_s_p99"`
	// Capacities are how often a generator stated what the server can do, and Capacity is the last
	// of that; where the run follows it.
	Capacities int `json:"capacities,omitempty"`
	Capacity   int `json:"capacity,omitempty"`
}

// Run simulates all schedules with each workload. progress receives what is being done.
func Run(o Options, progress func(string)) (Result, error) {
	r := Result{Options: o, Knee: knee, Peak: peakTPS}
	if err := o.validate(); err != nil {
		return r, err
	}
	schedules := []string{Barrier, Queue, Async, Rondo, NewRunFile}
	if reflect.DeepEqual(o, o.newRunFile()) {
		schedules = slices.DeleteFunc(schedules, func(name string) bool { return name == Rondo })
	}
	for _, workload := range o.Workloads {
		tokens := o.load(workload).meanTokens()
		for _, name := range schedules {
			progress(workload + ", " + name)
			s, err := simulate(o, workload, name)
			if err != nil {
				return r, fmt.Errorf("%s, %s: %w", workload, name, err)
			}
			s.Tokens = tokens
			r.Schedules = append(r.Schedules, s)
		}
	}
	first := func(name string) (busy float64) {
		for _, s := range slices.Backward(r.Schedules) {
			if s.Workload == o.Workloads[0] && s.Name == name {
				busy = s.Busy
			}
		}
		return busy
	}
	r.Barrier, r.Queue, r.Async, r.Rondo = first(Barrier), first(Queue), first(Async), first(schedules[3])
	progress("sharing")
	r.Sharing = shareAll(uint64(o.Seed))
	return r, nil
}

// simulate simulates one schedule with one workload.
func simulate(o Options, workload, name string) (s Schedule, err error) {
	var w *world
	switch name {
	case Barrier, Queue:
		w, err = simulateBatches(o, workload, name == Queue)
	case Async:
		var a *async
		if a, err = simulateAsync(o, workload); err == nil {
			w, s.Dropped = a.world, a.dropped
		}
	default:
		if name == NewRunFile {
			o = o.newRunFile()
		}
		var p *plane
		if p, err = simulateRondo(o, workload); err == nil {
			w, s.Dropped, s.Capacities, s.Capacity = p.world, p.dropped, p.capacities, p.capacity.Turns
		}
	}
	if err != nil {
		return s, err
	}
	s.Name, s.Workload = name, workload
	w.measured(&s)
	return s, nil
}

// measured is what a schedule came to between the first measured step and the last.
func (w *world) measured(s *Schedule) {
	elapsed, prompts := w.to.at-w.from.at, w.to.computed-w.from.computed+w.to.reused-w.from.reused
	s.Busy = (w.to.produced - w.from.produced) / elapsed / peakTPS
	s.Trained = (w.to.tokens - w.from.tokens) / elapsed / peakTPS
	s.RolloutsPerHour = (w.to.rollouts - w.from.rollouts) / elapsed * 3600
	s.StepSeconds = elapsed / float64(w.last-w.warm)
	s.FirstTokenP50, s.FirstTokenP99 = quantile(w.firstToken, 0.5), quantile(w.firstToken, 0.99)
	s.Cached = (w.to.reused - w.from.reused) / max(1, prompts)
	s.ToolWaitP50, s.ToolWaitP99 = quantile(w.tools.waited, 0.5), quantile(w.tools.waited, 0.99)
	s.Staleness = w.stale
	groups, sum := int64(0), int64(0)
	for staleness, n := range w.stale {
		groups += n
		sum += n * int64(staleness)
	}
	s.MeanStaleness = float64(sum) / float64(max(1, groups))
}
