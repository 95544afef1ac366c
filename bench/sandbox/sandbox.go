// Package sandbox measures what a sandbox costs, beside the same work done by others in the same
// run: absolute times say more of the machine than of the sandbox.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// Options of one measurement.
type Options struct {
	// Pairs is how many turns of either side each ratio is the median of.
	Pairs int
	// Held is how many sandboxes are held at once; 0 leaves that out.
	Held int
}

// Result is what was measured. Times are medians in milliseconds, ratios medians of pairs.
type Result struct {
	Isolation string `json:"isolation"`
	FSMode    string `json:"fs_mode"`
	Cgroup    string `json:"cgroup"`
	// FirstProcess is as sandbox.Report.FirstProcess.
	FirstProcess string `json:"first_process"`
	Go           string `json:"go"`
	CPUs         int    `json:"cpus"`
	Pairs        int    `json:"pairs"`

	// A sandbox is made, runs `true` and is destroyed; bwrap does the same. Without
	// bwrap its figures are 0.
	Create      float64 `json:"create_ms"`
	Bubblewrap  float64 `json:"bwrap_ms,omitempty"`
	CreateRatio float64 `json:"create_vs_bwrap,omitempty"`
	// the same of processor time, which a busy machine disturbs less
	CreateCPU float64 `json:"create_cpu_vs_bwrap,omitempty"`

	// `true` in a held sandbox, beside `true` started by this process.
	Exec      float64 `json:"exec_ms"`
	Bare      float64 `json:"bare_ms"`
	ExecRatio float64 `json:"exec_vs_bare"`

	Held         int     `json:"held,omitempty"`
	HeldCreate   float64 `json:"held_create_s,omitempty"`
	HeldDestroy  float64 `json:"held_destroy_s,omitempty"`
	HeldMiB      float64 `json:"held_mib_each,omitempty"`         // of the machine's memory; other processes disturb it
	HeldCharged  float64 `json:"held_charged_mib_each,omitempty"` // of what the control groups count
	NoBubblewrap string  `json:"no_bwrap,omitempty"`              // why there is nothing to compare with
}

// warmUps are turns that are not counted.
const warmUps = 3

// Run measures. Progress is called line by line.
func Run(ctx context.Context, o Options, progress func(line string)) (Result, error) {
	report, err := sandbox.Probe(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{
		Isolation: report.Isolation, FSMode: report.Filesystem, Cgroup: report.Cgroup,
		FirstProcess: report.FirstProcess, Go: runtime.Version(), CPUs: runtime.NumCPU(), Pairs: o.Pairs,
	}
	bwrap, err := bubblewrap(ctx)
	if err != nil {
		r.NoBubblewrap = err.Error()
		progress(err.Error())
	}
	sb, err := sandbox.New(ctx, sandbox.Spec{Name: "bench"})
	if err != nil {
		return r, err
	}
	progress("a sandbox for one command, made while another one is leased")
	p, err := pairs(o.Pairs, func() error { return once(ctx) }, bwrap)
	if err != nil {
		return r, errors.Join(err, sb.Close())
	}
	r.Create, r.Bubblewrap, r.CreateRatio, r.CreateCPU = p.ours, p.other, p.ratio, p.cpu
	progress("a command in a leased sandbox")
	p, err = pairs(o.Pairs, func() error { return runTrue(ctx, sb) },
		func() error { return exec.CommandContext(ctx, "true").Run() })
	r.Exec, r.Bare, r.ExecRatio = p.ours, p.other, p.ratio
	if err = errors.Join(err, sb.Close()); err != nil || o.Held == 0 {
		return r, err
	}
	progress(fmt.Sprintf("%d sandboxes at once", o.Held))
	return r, hold(ctx, o.Held, &r)
}

// once makes a sandbox, runs a command in it and destroys it.
func once(ctx context.Context) error {
	sb, err := sandbox.New(ctx, sandbox.Spec{Name: "bench"})
	if err != nil {
		return err
	}
	return errors.Join(runTrue(ctx, sb), sb.Close())
}

func runTrue(ctx context.Context, sb *sandbox.Sandbox) error {
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"true"}})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("true in a sandbox ended with %d: %s", result.ExitCode, result.Stderr)
	}
	return err
}

// pair is one ratio: the medians of both sides' times, the median ratio of the pairs, and the ratio
// of the processor time of all.
type pair struct{ ours, other, ratio, cpu float64 }

// pairs takes the two sides in turns. A nil other side is left out.
func pairs(count int, ours, other func() error) (p pair, err error) {
	var ourTimes, otherTimes, ratios []float64
	var ourCPU, otherCPU time.Duration
	for i := range count + warmUps {
		ourTime, cpu, err := timed(ours)
		if err != nil {
			return p, err
		}
		otherTime, cpuOther := 0.0, time.Duration(0)
		if other != nil {
			if otherTime, cpuOther, err = timed(other); err != nil {
				return p, err
			}
		}
		if i >= warmUps {
			ourTimes, otherTimes, ratios = append(ourTimes, ourTime), append(otherTimes, otherTime),
				append(ratios, ourTime/otherTime)
			ourCPU, otherCPU = ourCPU+cpu, otherCPU+cpuOther
		}
	}
	p.ours = middle(ourTimes)
	if other != nil {
		p.other, p.ratio, p.cpu = middle(otherTimes), middle(ratios), float64(ourCPU)/float64(otherCPU)
	}
	return p, nil
}

// timed runs work and tells its time, and the processor time of this process and of
// those that it has waited for.
func timed(work func() error) (milliseconds float64, cpu time.Duration, err error) {
	begin, used := time.Now(), processorTime()
	err = work()
	return float64(time.Since(begin).Microseconds()) / 1000, processorTime() - used, err
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
