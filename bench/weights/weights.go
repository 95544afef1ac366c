// Package weights measures deltas of weights: their size beside the entropy of the change, and
// their speed beside cmp and cp.
package weights

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// Options say what to measure.
type Options struct {
	MiB     int       // of a checkpoint
	Rates   []float64 // learning rates
	Pairs   int       // turns of each side
	PeerMiB int       // of the checkpoint on which the other programs work; 0: none
	Dir     string    // for the files; "": the system's folder for temporary files
}

// Rate is what was measured at one learning rate.
type Rate struct {
	Rate      float64 `json:"lr"`
	Changed   float64 `json:"changed_frac"` // of the elements
	Bytes     int64   `json:"bytes"`        // of the delta
	BytesFrac float64 `json:"bytes_frac"`   // of the checkpoint
	// the delta's bytes to the entropy of changed positions and their differences
	Entropy    float64 `json:"entropy_ratio"`
	XOREntropy float64 `json:"xor_entropy_ratio"`  // the same with changed bits in place of differences
	Encode     float64 `json:"encode_vs_cmp"`      // speed to that of cmp
	Apply      float64 `json:"apply_vs_cp"`        // speed to that of cp
	Synced     float64 `json:"apply_vs_cp_synced"` // both until the file is on the disk
	EncodeGBs  float64 `json:"encode_gb_s"`        // of the checkpoint's bytes
	ApplyGBs   float64 `json:"apply_gb_s"`
	CmpGBs     float64 `json:"cmp_gb_s"`
	CpGBs      float64 `json:"cp_gb_s"`
}

// Peer is another program's delta of a smaller checkpoint at 1e-6.
type Peer struct {
	Name      string  `json:"name"`
	BytesFrac float64 `json:"bytes_frac,omitempty"`
	Seconds   float64 `json:"seconds,omitempty"`
	Missing   string  `json:"missing,omitempty"` // why there is nothing
}

// Result is what was measured. The figures in front are those of the rate 1e-6.
type Result struct {
	BytesFrac float64 `json:"bytes_frac_1e6"`
	Entropy   float64 `json:"entropy_ratio_1e6"`
	Encode    float64 `json:"encode_vs_cmp"`
	Apply     float64 `json:"apply_vs_cp"`
	PeakMiB   float64 `json:"peak_mib"` // resident memory of this process while it encoded and applied
	MiB       int     `json:"mib"`
	CPUs      int     `json:"cpus"`
	Load      float64 `json:"load"` // of the machine, before
	Go        string  `json:"go"`
	Rates     []Rate  `json:"rates"`
	Peers     []Peer  `json:"peers,omitempty"`
}

// headline is the rate whose figures stand in front.
const headline = 1e-6

// Run measures. progress gets a line for each part.
func Run(ctx context.Context, o Options, progress func(string)) (r Result, err error) {
	if o.MiB < 1 || o.MiB > 64<<10 || o.Pairs < 1 || o.PeerMiB < 0 || o.PeerMiB > o.MiB {
		return r, fmt.Errorf("%d MiB, %d turns and %d MiB for the other programs: want 1 to 65536, 1 or more, and 0 to the first",
			o.MiB, o.Pairs, o.PeerMiB)
	}
	r = Result{MiB: o.MiB, CPUs: runtime.GOMAXPROCS(0), Go: runtime.Version(), Load: load()}
	dir, err := os.MkdirTemp(o.Dir, "rondo-bench-weights")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	base := filepath.Join(dir, "base.safetensors")
	progress(fmt.Sprintf("a checkpoint of %d MiB", o.MiB))
	if _, err := synthesise(ctx, base, int64(o.MiB)<<20, 0); err != nil {
		return r, err
	}
	for _, rate := range o.Rates {
		progress(fmt.Sprintf("learning rate %g", rate))
		measured, peak, err := o.measure(ctx, dir, base, rate)
		if err != nil {
			return r, fmt.Errorf("learning rate %g: %w", rate, err)
		}
		r.Rates, r.PeakMiB = append(r.Rates, measured), max(r.PeakMiB, peak)
		if rate == headline {
			r.BytesFrac, r.Entropy, r.Encode, r.Apply = measured.BytesFrac, measured.Entropy,
				measured.Encode, measured.Apply
		}
	}
	if o.PeerMiB > 0 {
		r.Peers, err = peers(ctx, dir, int64(o.PeerMiB)<<20, progress)
	}
	return r, err
}

func (o Options) measure(ctx context.Context, dir, base string, rate float64) (r Rate, peak float64, err error) {
	next := filepath.Join(dir, "next.safetensors")
	count, err := synthesise(ctx, next, int64(o.MiB)<<20, rate)
	if err != nil {
		return r, 0, err
	}
	runtime.GC()
	forgetPeak()
	var turns []turn
	for range o.Pairs {
		t, err := takeTurn(ctx, dir, base, next)
		if err != nil {
			return r, 0, err
		}
		turns = append(turns, t)
	}
	peak = peakMiB()
	info, err := os.Stat(filepath.Join(dir, deltaName))
	if err != nil {
		return r, 0, err
	}
	raw := float64(2 * count.elements)
	r = Rate{Rate: rate, Changed: float64(count.changed) / float64(count.elements), Bytes: info.Size(),
		BytesFrac: float64(info.Size()) / raw}
	r.Entropy, r.XOREntropy = float64(info.Size())/count.entropy(count.differences),
		float64(info.Size())/count.entropy(count.xors)
	r.Encode = median(turns, func(t turn) float64 { return t.cmp.Seconds() / t.encode.Seconds() })
	r.Apply = median(turns, func(t turn) float64 { return t.cp.Seconds() / t.apply.Seconds() })
	r.Synced = median(turns, func(t turn) float64 { return t.cpSynced.Seconds() / t.applySynced.Seconds() })
	r.EncodeGBs = median(turns, func(t turn) float64 { return raw / 1e9 / t.encode.Seconds() })
	r.ApplyGBs = median(turns, func(t turn) float64 { return raw / 1e9 / t.apply.Seconds() })
	r.CmpGBs = median(turns, func(t turn) float64 { return raw / 1e9 / t.cmp.Seconds() })
	r.CpGBs = median(turns, func(t turn) float64 { return raw / 1e9 / t.cp.Seconds() })
	return r, peak, nil
}

func median(turns []turn, of func(turn) float64) float64 {
	var values []float64
	for _, t := range turns {
		values = append(values, of(t))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// turn is each work done once, one after the other.
type turn struct{ cp, cpSynced, cmp, encode, apply, applySynced time.Duration }

const deltaName = "step" + delta.Extension

func takeTurn(ctx context.Context, dir, base, next string) (t turn, err error) {
	copied, applied, packed := filepath.Join(dir, "copy"), filepath.Join(dir, "applied"), filepath.Join(dir, deltaName)
	run := func(took *time.Duration, work func() error) {
		if err != nil {
			return
		}
		begin := time.Now()
		err = work()
		*took = time.Since(begin)
	}
	command := func(name string, args ...string) func() error {
		return func() error { return program(ctx, name, args...) }
	}
	cp := func(synced bool) func() error {
		return func() error {
			if err := program(ctx, "cp", "--reflink=never", next, copied); err != nil || !synced {
				return err
			}
			return program(ctx, "sync", copied)
		}
	}
	apply := func(how func(context.Context, *safetensors.Checkpoint, *delta.Delta, string) error) func() error {
		return func() error { return applyFile(ctx, base, packed, applied, how) }
	}
	run(new(time.Duration), command("cat", base, next)) // warm the cache
	run(&t.encode, func() error { return Encode(ctx, base, next, packed) })
	run(&t.cp, cp(false))
	run(&t.cmp, command("cmp", next, copied))
	run(new(time.Duration), func() error { return os.Remove(copied) })
	run(&t.apply, apply(delta.ApplyUnsynced))
	run(new(time.Duration), command("cmp", next, filepath.Join(applied, filepath.Base(next))))
	run(new(time.Duration), func() error { return os.RemoveAll(applied) })
	run(&t.cpSynced, cp(true))
	run(new(time.Duration), func() error { return os.Remove(copied) })
	run(&t.applySynced, apply(delta.Apply))
	run(new(time.Duration), func() error { return os.RemoveAll(applied) })
	return t, err
}

func program(ctx context.Context, name string, args ...string) error {
	var out strings.Builder
	cmd := exec.CommandContext(ctx, name, args...) // what cat prints is dropped
	cmd.Stderr = &out
	err := cmd.Run()
	if err != nil {
		return fmt.Errorf("%s: %w: %.200s", name, err, out.String())
	}
	return nil
}

// Encode writes the delta of two files.
func Encode(ctx context.Context, base, next, path string) (err error) {
	old, err := safetensors.Open(base)
	if err != nil {
		return err
	}
	defer old.Close()
	new, err := safetensors.Open(next)
	if err != nil {
		return err
	}
	defer new.Close()
	return create(path, func(w *bufio.Writer) error { return delta.Encode(ctx, w, old, new) })
}

func applyFile(ctx context.Context, base, packed, dir string,
	how func(context.Context, *safetensors.Checkpoint, *delta.Delta, string) error) error {
	old, err := safetensors.Open(base)
	if err != nil {
		return err
	}
	defer old.Close()
	f, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	d, err := delta.Open(f, info.Size())
	if err != nil {
		return err
	}
	return how(ctx, old, d, dir)
}

// peers lets other programs make the delta of a smaller checkpoint.
func peers(ctx context.Context, dir string, bytes int64, progress func(string)) ([]Peer, error) {
	base, next, out := filepath.Join(dir, "small.safetensors"), filepath.Join(dir, "smaller.safetensors"),
		filepath.Join(dir, "peer")
	if _, err := synthesise(ctx, base, bytes, 0); err != nil {
		return nil, err
	}
	if _, err := synthesise(ctx, next, bytes, headline); err != nil {
		return nil, err
	}
	var all []Peer
	for _, p := range [][]string{
		{"rondo"},
		{"zstd -1 --patch-from", "zstd", "-q", "-f", "-1", "--long=30", "--patch-from=" + base, next, "-o", out},
		{"zstd -19 --patch-from", "zstd", "-q", "-f", "-19", "--long=30", "--patch-from=" + base, next, "-o", out},
		{"xdelta3", "xdelta3", "-f", "-e", "-B", strconv.FormatInt(bytes*2, 10), "-s", base, next, out},
	} {
		progress(p[0])
		measured := Peer{Name: p[0]}
		begin := time.Now()
		var err error
		if len(p) == 1 {
			err = Encode(ctx, base, next, out)
		} else if _, missing := exec.LookPath(p[1]); missing != nil {
			measured.Missing = "not installed"
			all = append(all, measured)
			continue
		} else {
			err = program(ctx, p[1], p[2:]...)
		}
		if err != nil {
			return nil, err
		}
		measured.Seconds = time.Since(begin).Seconds()
		info, err := os.Stat(out)
		if err != nil {
			return nil, err
		}
		measured.BytesFrac = float64(info.Size()) / float64(bytes)
		all = append(all, measured)
	}
	return all, nil
}

// forgetPeak makes the peak of the resident memory begin at its present size, where the system can.
func forgetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakMiB is the peak of this process's resident memory; 0 where the system does not say.
func peakMiB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseFloat(fields[0], 64)
	return kib / 1024
}

// load is the number of processes that wanted a CPU during the last minute; 0 where
// the system does not say.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	value, _ := strconv.ParseFloat(first, 64)
	return value
}
