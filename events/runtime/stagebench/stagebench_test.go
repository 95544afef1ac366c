package stagebench

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"
)

// BenchmarkStage reports what `rondo bench stage` prints at the fast durability.
func BenchmarkStage(b *testing.B) {
	for b.Loop() {
		r, err := Run(b.Context(), Options{Events: benchEvents, Pairs: benchPairs, Durability: []time.Duration{100 * time.Millisecond}, Dir: b.TempDir()}, func(line string) { b.Log(line) })
		if err != nil {
			b.Fatal(err)
		}
		s := r.Settings[0]
		b.ReportMetric(s.Ratio, "ratio")
		b.ReportMetric(s.Runtime.EventsPerSecond, "events/s")
		b.ReportMetric(s.Runtime.CPUMicroseconds, "CPU-µs/event")
		b.ReportMetric(s.Runtime.Allocs, "mallocs/event")
		b.ReportMetric(s.Runtime.AllocBytes, "mallocB/event")
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%s", text)
	}
}

var benchEvents, benchPairs = envInt("N", 0), envInt("P", 0)

func envInt(k string, d int) int {
	if v, err := strconv.Atoi(os.Getenv(k)); err == nil {
		return v
	}
	return d
}
