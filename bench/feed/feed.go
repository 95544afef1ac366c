// Package feed measures the way of finished rollouts to the trainer: pushed to the log and the
// store, composed into batches by the trainer feeder, and pulled out of the store into arrays.
//
// Beside push and pull stand the raw write and read of the same bytes, and beside push plain
// appends to NATS, in the same run on the same disk. Nothing is mocked: the log is an embedded
// server, the batches are the feeder's own, and the memory that a backlog takes is that of a feeder
// in a process of its own.
package feed

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Lengths of the trajectories, in tokens.
	Lengths []int `json:"lengths"` // default 1024, 8192, 32768
	// Tokens of one turn, over all of its trajectories.
	Tokens int `json:"tokens"` // default 8 Mi
	// Durability settings to measure: how much of the log a power cut may lose, 0 for nothing.
	Durability []time.Duration `json:"-"` // default 0 and 100 ms
	// Backlogs, in groups, whose memory is measured.
	Backlogs []int `json:"backlogs"` // default 100 and 10000
	// Python runs the Python client, which pulls; "" pulls with the Go reader.
	Python string `json:"-"`
	// Rondo is the binary whose feeder's memory is measured; "" leaves memory out.
	Rondo string `json:"-"`
	// Dir holds the files while they are needed; "" is a temporary directory.
	Dir string `json:"-"`
}

// groupSize is the number of rollouts of a group.
const groupSize = 8

// workers push at once, as many as the generator has slots.
const workers = 64

func (o Options) withDefaults() (Options, error) {
	if o.Lengths == nil {
		o.Lengths = []int{1 << 10, 8 << 10, 32 << 10}
	}
	if o.Tokens == 0 {
		o.Tokens = 8 << 20
	}
	if o.Durability == nil {
		o.Durability = []time.Duration{0, 100 * time.Millisecond}
	}
	if o.Backlogs == nil {
		o.Backlogs = []int{100, 10000}
	}
	for _, n := range o.Lengths {
		if n < 16 || n > 1<<20 || o.Tokens < n*groupSize || o.Tokens > 1<<28 {
			return o, fmt.Errorf("%d tokens in trajectories of %d: a turn needs a group of %d, and at most %d tokens",
				o.Tokens, n, groupSize, 1<<28)
		}
	}
	for _, n := range o.Backlogs {
		if n < 1 || n > 100_000 {
			return o, fmt.Errorf("a backlog of %d groups: must be 1 to 100000", n)
		}
	}
	return o, nil
}

// Result of a measurement.
type Result struct {
	Options
	Go         string   `json:"go"`
	CPUs       int      `json:"cpus"`
	PullReader string   `json:"pull_reader"` // "python" or "go"
	Turns      []Turn   `json:"turns"`
	Memory     []Memory `json:"memory"`
}

// Turn is what was measured at one length and durability. Speeds are in million tokens a second.
type Turn struct {
	Tokens       int     `json:"tokens"` // of one trajectory
	Trajectories int     `json:"trajectories"`
	Durability   string  `json:"durability"` // "always", or the interval between syncs of the log
	Push         float64 `json:"push_mtok_s"`
	RawWrite     float64 `json:"raw_write_mtok_s"`
	RawAppend    float64 `json:"raw_append_mtok_s"` // one plain publish for each event of the push, without files
	Compose      float64 `json:"compose_mtok_s"`
	Pull         float64 `json:"pull_mtok_s"`
	RawRead      float64 `json:"raw_read_mtok_s"`
	// BytesPerToken at rest of ids, log-probabilities and loss mask, and of
	// the whole trajectory file.
	BytesPerToken float64 `json:"bytes_per_token"`
	FilePerToken  float64 `json:"file_bytes_per_token"`
	// LogPerToken is what id and log-probability of a sampled token take in the events of its turn.
	LogPerToken float64 `json:"log_bytes_per_sampled_token"`
}

// PushRatio is the push's speed as a part of the raw write's.
func (t Turn) PushRatio() float64 { return t.Push / t.RawWrite }

// AppendRatio is the push's speed as a part of the raw append's.
func (t Turn) AppendRatio() float64 { return t.Push / t.RawAppend }

// PullRatio is the pull's speed as a part of the raw read's.
func (t Turn) PullRatio() float64 { return t.Pull / t.RawRead }

// Memory is what a feeder takes that holds a backlog of groups.
type Memory struct {
	Groups    int     `json:"groups"`
	FeederMiB float64 `json:"feeder_rss_mib"` // resident memory of the feeder's process when it has folded the backlog
	ServerMiB float64 `json:"server_rss_mib"` // and of the process with the log
}

// Run measures. progress is told what is being done.
func Run(ctx context.Context, o Options, progress func(string)) (Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Result{}, err
	}
	parent, err := os.MkdirTemp(o.Dir, "rondo-bench-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(parent)
	o.Dir = parent
	r := Result{Options: o, Go: runtime.Version(), CPUs: runtime.NumCPU(), PullReader: "go"}
	if o.Python != "" {
		r.PullReader = "python"
	}
	for _, length := range o.Lengths {
		for _, durability := range o.Durability {
			progress(fmt.Sprintf("trajectories of %d tokens, durability %s", length, name(durability)))
			t, err := turn(ctx, o, length, durability)
			if err != nil {
				return r, fmt.Errorf("trajectories of %d tokens: %w", length, err)
			}
			r.Turns = append(r.Turns, t)
		}
	}
	if o.Rondo == "" {
		return r, nil
	}
	for _, groups := range o.Backlogs {
		progress(fmt.Sprintf("a backlog of %d groups", groups))
		m, err := memory(ctx, o, groups)
		if err != nil {
			return r, fmt.Errorf("a backlog of %d groups: %w", groups, err)
		}
		r.Memory = append(r.Memory, m)
	}
	return r, nil
}

func name(durability time.Duration) string {
	if durability == 0 {
		return "always"
	}
	return durability.String()
}
