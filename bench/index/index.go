// Package index measures the index of code: how well it finds, what it costs to make and to keep,
// and how soon it answers.
//
// All of it is done by what users have: trees are brought up to date by index/update and searched
// by index/search, in a store in a temporary directory. What a store elsewhere adds is its round
// trips, of which a cold query needs three.
package index

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
)

// Options of a measurement. The zero value is the documented default.
type Options struct {
	// Questions about each standard library; default 1000.
	Questions int `json:"questions"`
	// Times is how many times as large as the standard library of Go the second tree is;
	// default 10, 1 leaves it out.
	Times int `json:"times"`
	// Chunks are the sizes of the indexes that are asked; default 10,000, 100,000 and 1,000,000.
	Chunks []int `json:"chunks"`
	// Queries at each size, warm and cold; default 50.
	Queries int `json:"queries"`
	// Dir holds the trees and the stores while they are measured; "" is a temporary directory.
	Dir string `json:"-"`
}

func (o Options) withDefaults() (Options, error) {
	o.Questions = cmp.Or(o.Questions, 1000)
	o.Times = cmp.Or(o.Times, 10)
	if o.Chunks == nil {
		o.Chunks = []int{10_000, 100_000, 1_000_000}
	}
	o.Queries = cmp.Or(o.Queries, 50)
	if o.Questions < 10 || o.Questions > 100_000 || o.Times < 1 || o.Times > 100 ||
		o.Queries < 2 || o.Queries > 10_000 {
		return o, fmt.Errorf("questions %d, times %d, queries %d: must be 10 to 100000, 1 to 100, 2 to 10000",
			o.Questions, o.Times, o.Queries)
	}
	for _, n := range o.Chunks {
		if n < 1000 || n > 4_000_000 {
			return o, fmt.Errorf("%d chunks: must be 1000 to 4000000", n)
		}
	}
	return o, nil
}

// Result of a measurement.
type Result struct {
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Embedder string    `json:"embedder"`
	Quality  []Quality `json:"quality"`
	Trees    []Tree    `json:"trees"`
	Sizes    []Size    `json:"sizes"`
}

// Run measures. Show receives what is being done.
func Run(ctx context.Context, o Options, show func(string)) (r Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp(o.Dir, "rondo-bench-index-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	r.Go, r.CPUs = runtime.Version(), runtime.GOMAXPROCS(0)
	if err := r.quality(ctx, o, dir, show); err != nil {
		return r, fmt.Errorf("quality: %w", err)
	}
	if err := r.trees(ctx, o, dir, show); err != nil {
		return r, fmt.Errorf("first index and updates: %w", err)
	}
	for _, n := range o.Chunks {
		if err := r.size(ctx, o, dir, n, show); err != nil {
			return r, fmt.Errorf("queries at %d chunks: %w", n, err)
		}
	}
	return r, nil
}

// took is what something took, in milliseconds: of the clock, and of all processors together, which
// says more on a machine that is busy.
type took struct{ passed, processor float64 }

func measure(do func() error) (took, error) {
	before, began := figures.ProcessorTime(), time.Now()
	err := do()
	return took{milliseconds(time.Since(began)), milliseconds(figures.ProcessorTime() - before)}, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentile of times, which it sorts.
func percentile(times []float64, p float64) float64 {
	slices.Sort(times)
	return times[min(len(times)-1, int(p*float64(len(times))))]
}

// bytesBelow is the size of all files below a folder.
func bytesBelow(folder string) (total int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
