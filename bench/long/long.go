// Package long measures what a turn costs in long rollouts: whether it grows with the
// number of turns before it.
//
// The services are the real ones, on an embedded log, a store and sandboxes of this machine. The
// inference server is scripted and in this process: it answers at once, with token ids and
// log-probabilities. A request has the whole conversation in it, and its answer the ids of the
// whole prompt, so the cost of carrying these must grow. It is measured apart: behind each tenth of
// the rollouts, while these wait, the same client sends the same requests to the same server, and
// no more, and what that takes is subtracted. Their messages are written before that: to write
// them, and to look at the ids that come back, is the services' own work.
package long

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Lengths of the rollouts, in turns; the shortest and the longest are compared.
	Lengths []int `json:"lengths"` // default 100, 300, 1000
	// Rollouts of each length, which run at once.
	Rollouts int `json:"rollouts"` // default 2
	// Tokens that are sampled in a turn.
	Tokens int `json:"tokens"` // default 128
	// Dir holds the files while they are needed; "" is a temporary directory.
	Dir string `json:"-"`
	// AllowInsecure runs the tools without isolation where the kernel refuses it.
	AllowInsecure bool `json:"-"`
}

const (
	// parts is how many parts a rollout is divided into.
	parts = 10
	// least is how many turns a rollout has at least: a tenth without its last turn has one.
	least = 2 * parts
)

func (o Options) withDefaults() (Options, error) {
	if o.Lengths == nil {
		o.Lengths = []int{100, 300, 1000}
	}
	o.Rollouts = cmp.Or(o.Rollouts, 2)
	o.Tokens = cmp.Or(o.Tokens, 128)
	o.Lengths = slices.Sorted(slices.Values(o.Lengths))
	if len(o.Lengths) == 0 || len(o.Lengths) > 10 || o.Lengths[0] < least || o.Lengths[len(o.Lengths)-1] > 10_000 {
		return o, fmt.Errorf("lengths %v: must be 1 to 10 of %d to 10000 turns", o.Lengths, least)
	}
	if o.Rollouts < 1 || o.Rollouts > 64 || o.Tokens < 16 || o.Tokens > 4096 {
		return o, fmt.Errorf("%d rollouts of %d tokens a turn: must be 1 to 64, and 16 to 4096", o.Rollouts, o.Tokens)
	}
	return o, nil
}

// Result of a measurement.
type Result struct {
	Options
	Go      string   `json:"go"`
	CPUs    int      `json:"cpus"`
	Lengths []Length `json:"by_length"`
	// CPURatio is Own of a turn in the last tenth of the longest rollouts to Own of a turn of the
	// shortest; BytesRatio is the same of the bytes on the log.
	CPURatio float64 `json:"cpu_ratio"`
	// CPURatioMean is Own of a mean turn of the longest to that of a mean turn of the shortest.
	CPURatioMean float64 `json:"cpu_ratio_mean"`
	BytesRatio   float64 `json:"bytes_ratio"`
	// CPURatio1000 and CPURatioMean1000 are the same where the lengths are those of their names.
	CPURatio1000     float64 `json:"cpu_ratio_1000_to_100,omitempty"`
	CPURatioMean1000 float64 `json:"cpu_ratio_mean_1000_to_100,omitempty"`
	// AllocatedRatio compares Allocated as CPURatio compares Own. It does not depend on
	// what else the machine does.
	AllocatedRatio     float64 `json:"allocated_ratio"`
	AllocatedRatio1000 float64 `json:"allocated_ratio_1000_to_100,omitempty"`
	LogPerToken        float64 `json:"log_bytes_per_sampled_token"` // of the longest
	// RSS is the largest resident memory of the process, with log, services and scripted server in
	// it, and HeapRatio the live memory behind the longest rollouts to that behind the shortest.
	RSS       float64 `json:"rss_mib"`
	HeapRatio float64 `json:"heap_ratio"`
}

// Length is what was measured of rollouts of one length. Times are of this process, in milliseconds
// of processor time for a turn.
type Length struct {
	Turns int `json:"turns"`
	// CPU is all, the scripted server included, and Requests what the same requests take alone: in
	// the client and in the server.
	CPU      float64 `json:"cpu_ms"`
	Requests float64 `json:"requests_ms"`
	// Own is the difference: that of the services, the log and the store. Parts has it by
	// the tenths of the rollouts.
	Own   float64   `json:"own_ms"`
	Parts []float64 `json:"own_ms_by_tenth"`
	// Allocated is what a turn allocates beside its request, and AllocatedRequests what that takes,
	// in kB; Objects counts what is allocated beside the request.
	Allocated         float64   `json:"own_allocated_kb"`
	AllocatedRequests float64   `json:"requests_allocated_kb"`
	AllocatedParts    []float64 `json:"own_allocated_kb_by_tenth"`
	Objects           float64   `json:"own_objects"`
	ObjectsParts      []float64 `json:"own_objects_by_tenth"`
	// Bytes on the log for a turn, with its subjects and headers, and by tenths.
	Bytes     float64   `json:"log_bytes_per_turn"`
	ByteParts []float64 `json:"log_bytes_per_turn_by_tenth"`
	// LogPerToken is what id and log-probability of a sampled token take of that.
	LogPerToken float64 `json:"log_bytes_per_sampled_token"`
	Heap        float64 `json:"heap_mib"` // live behind the run
	RSS         float64 `json:"rss_mib"`
	Seconds     float64 `json:"seconds"`
}

// Run measures. Lines say what was measured, and now is what is going on.
func Run(ctx context.Context, o Options, line, now func(string)) (r Result, err error) {
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
	err = withPlane(ctx, o, func(p *bench) error {
		// The first rollouts of a process pay for what is made once.
		if _, err := p.measure(ctx, o, least, func(string) {}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		for _, turns := range o.Lengths {
			l, err := p.measure(ctx, o, turns, now)
			if err != nil {
				return fmt.Errorf("rollouts of %d turns: %w", turns, err)
			}
			r.Lengths = append(r.Lengths, l)
			line(fmt.Sprintf("rollouts of %d turns: %.2f ms and %.0f bytes on the log for a turn", turns, l.Own,
				l.Bytes))
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	short, long := r.Lengths[0], r.Lengths[len(r.Lengths)-1]
	r.CPURatio, r.CPURatioMean = long.Parts[parts-1]/short.Own, long.Own/short.Own
	r.BytesRatio, r.AllocatedRatio = long.ByteParts[parts-1]/short.Bytes, long.AllocatedParts[parts-1]/short.Allocated
	if short.Turns == 100 && long.Turns == 1000 {
		r.CPURatio1000, r.CPURatioMean1000, r.AllocatedRatio1000 = r.CPURatio, r.CPURatioMean, r.AllocatedRatio
	}
	r.LogPerToken, r.HeapRatio = long.LogPerToken, long.Heap/short.Heap
	for _, l := range r.Lengths {
		r.RSS = max(r.RSS, l.RSS)
	}
	return r, nil
}
