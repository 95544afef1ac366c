package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// fast is the durability at which the stage, not the disk, is measured.
var fast = []time.Duration{100 * time.Millisecond}

// A stage on the runtime keeps up with one on nats.go. The bound is loose, and a measurement below
// it is made again, because a shared machine can do anything to one of them; what the runtime costs
// is the benchmark's matter.
func TestRuntimeKeepsUp(t *testing.T) {
	const least, tries = 0.5, 3
	var ratios []float64
	for range tries {
		r, err := Run(t.Context(), Options{Events: 400, Pairs: 3, Durability: fast, Dir: t.TempDir()},
			func(line string) { t.Log(line) })
		if err != nil {
			t.Fatal(err)
		}
		if r.Settings[0].Ratio >= least {
			return
		}
		ratios = append(ratios, r.Settings[0].Ratio)
	}
	t.Errorf("the runtime has %.2f of the raw stage's throughput, three times over; want %.1f", ratios, least)
}

func TestResult(t *testing.T) {
	lines := 0
	r, err := Run(t.Context(), Options{Events: 80, Pairs: 2, Slots: 4, Dir: t.TempDir()}, func(string) { lines++ })
	if err != nil {
		t.Fatal(err)
	}
	if lines != 4 || len(r.Settings) != 2 {
		t.Fatalf("%d turns were told of and %d settings measured, want 4 and 2", lines, len(r.Settings))
	}
	synced, fast := r.Settings[0], r.Settings[1]
	if synced.Durability != "always" || synced.Events != 10 || fast.Durability != "100ms" || fast.Events != 80 {
		t.Errorf("measured %d events at %s and %d at %s", synced.Events, synced.Durability,
			fast.Events, fast.Durability)
	}
	for _, s := range r.Settings {
		if s.RatioMin > s.Ratio || s.Ratio > s.RatioMax || s.RatioMin <= 0 || s.ToCeiling <= 0 {
			t.Errorf("%s: ratio %g between %g and %g", s.Durability, s.Ratio, s.RatioMin, s.RatioMax)
		}
		for name, c := range map[string]Cost{"raw": s.Raw, "runtime": s.Runtime, "ceiling": s.Ceiling} {
			if c.EventsPerSecond <= 0 || c.CPUMicroseconds <= 0 || c.Allocs <= 0 || c.AllocBytes <= 0 {
				t.Errorf("%s: cost of the %s stage: %+v", s.Durability, name, c)
			}
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Settings, r.Settings) || back.PayloadBytes != r.PayloadBytes {
		t.Errorf("the result reads back as %+v, want %+v", back, r)
	}
}

// Both stages put the same on the log but for what differs each time, or the comparison is none.
func TestStagesWriteTheSame(t *testing.T) {
	const n = 8
	raw, our := outputs(t, rawStage, n), outputs(t, runtimeStage, n)
	if ceiling := outputs(t, ceilingStage, n); !slices.Equal(raw, ceiling) {
		t.Errorf("the raw stage wrote\n%s\nand the ceiling\n%s", strings.Join(raw, "\n"), strings.Join(ceiling, "\n"))
	}
	if len(raw) != n || !slices.Equal(raw, our) {
		t.Errorf("the raw stage wrote\n%s\nand the runtime\n%s", strings.Join(raw, "\n"), strings.Join(our, "\n"))
	}
}

// outputs runs a stage over n inputs and describes what it put on the log, sorted.
func outputs(t *testing.T, run stage, n int) (lines []string) {
	ctx := t.Context()
	err := withLog(ctx, t.TempDir(), fast[0], func(log *eventlog.Log) error {
		if err := prepare(ctx, log, n); err != nil {
			return err
		}
		if _, err := timed(ctx, log, 2, n, run); err != nil {
			return err
		}
		stream, err := log.JetStream().Stream(ctx, events.RunStream(benchRun))
		if err != nil {
			return err
		}
		for e, err := range log.All(ctx, benchRun, uint64(n+1)) {
			if err != nil {
				return err
			}
			input, err := log.Event(ctx, benchRun, e.Prev)
			if err != nil {
				return err
			}
			msg, err := stream.GetMsg(ctx, e.Seq)
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("%s %s behind %s, trace %s, source %s, headers %v: %s",
				msg.Subject, e.ID, input.ID, e.TraceParent[:35], e.Source,
				slices.Sorted(maps.Keys(msg.Header)), e.Data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"too few events": {Events: 1}, "no pairs": {Pairs: -1}, "too many slots": {Slots: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Run(t.Context(), o, func(string) {}); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

func TestStageThatEndsEarly(t *testing.T) {
	broken := errors.New("broken")
	_, err := turn(t.Context(), Options{Dir: t.TempDir(), Slots: 1}, fast[0], 1,
		func(context.Context, *eventlog.Log, int, *meter) error { return broken })
	if !errors.Is(err, errShort) || !errors.Is(err, broken) {
		t.Errorf("error %v, want that it ended early and why", err)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := figures.Median(c.values); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.values, got, c.want)
		}
	}
}

// BenchmarkStage reports what `rondo-bench stage` prints at the fast durability.
func BenchmarkStage(b *testing.B) {
	for b.Loop() {
		r, err := Run(b.Context(), Options{Durability: fast, Dir: b.TempDir()}, func(line string) { b.Log(line) })
		if err != nil {
			b.Fatal(err)
		}
		s := r.Settings[0]
		b.ReportMetric(s.Ratio, "ratio")
		b.ReportMetric(s.Runtime.EventsPerSecond, "events/s")
		b.ReportMetric(s.Runtime.CPUMicroseconds, "CPU-µs/event")
		b.ReportMetric(s.Runtime.Allocs, "mallocs/event")
		b.ReportMetric(s.Runtime.AllocBytes, "mallocB/event")
	}
}
