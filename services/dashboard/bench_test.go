package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// BenchmarkPages asks for every page where there are 200 runs, one of them with 10,000 rollouts and
// 100,000 events. It reports the median and the 99th percentile of the answers, in milliseconds,
// and the time that the processor took for one, the log's server included.
func BenchmarkPages(b *testing.B) {
	log := natstest.Log(b)
	for n := range 199 {
		servicetest.OpenRun(b, log, fmt.Sprintf("run-%03d", n), servicetest.Config("fix"))
	}
	large := newBulk(b, log, "large")
	large.groups(0, 1250)
	last := large.seq
	began := time.Now()
	d := open(b, log)
	held, release, err := d.shelf.hold("large", 0) // as an open page does
	if err != nil {
		b.Fatal(err)
	}
	defer release()
	d.patience, d.cardTime = patience, cardTime
	d.shelf.follow(held)
	held.await(b.Context(), last)
	b.Logf("%d events are folded in %s", last, time.Since(began).Round(time.Millisecond))
	evaluated, stop, err := d.evals.hold("large", 0)
	if err != nil {
		b.Fatal(err)
	}
	d.evals.follow(evaluated)
	evaluated.await(b.Context(), last)
	stop()
	n := 0
	for _, page := range []struct {
		name string
		path func() string
	}{
		{"runs", func() string { return "/" }},
		{"runs-last", func() string { return "/?page=8" }},
		{"plane", func() string { return "/plane" }},
		{"fleet", func() string { return "/fleet" }},
		{"evaluation", func() string { return "/runs/large/evaluation" }},
		{"run", func() string { return "/runs/large" }},
		{"run-failed", func() string { return "/runs/large?outcome=failed&page=2" }},
		{"run-deep", func() string { return "/runs/large?page=150&groups=40" }},
		{"curves", func() string { return "/runs/large/curves" }},
		{"past-again", func() string { return fmt.Sprintf("/runs/large?at=%d", last/2) }},
		{"past-new", func() string { n++; return fmt.Sprintf("/runs/large?at=%d", uint64(n)*7919%last+1) }},
		{"group", func() string { return "/runs/large/groups/g000100" }},
		{"rollout-early", func() string { return "/runs/large/rollouts/g000003-1" }},
		{"rollout-late", func() string { return "/runs/large/rollouts/g001200-1" }},
		{"siblings", func() string { return "/runs/large/rollouts/g000100-1/siblings" }},
		{"runfile", func() string { return "/runs/large/file" }},
		{"tasks", func() string { return "/runs/large/tasks" }},
		{"changes", func() string { return "/runs/large/rollouts/g000100-1/changes" }},
		{"message", func() string { return "/runs/large/rollouts/g000100-1/messages/1" }},
		{"tokens", func() string { return "/runs/large/rollouts/g000100-1/messages/1/tokens" }},
	} {
		b.Run(page.name, func(b *testing.B) { measure(b, d, page.path) })
	}
	b.Run("run-live", func(b *testing.B) { // as new groups end
		next := 1250
		measure(b, d, func() string {
			large.groups(next, next+1)
			next++
			return "/runs/large"
		})
	})
	b.Run("first", func(b *testing.B) {
		measure(b, nil, func() string { d = open(b, log); d.patience = patience; return "/runs/large" },
			func() *Dashboard { return d })
	})
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.Logf("%d MiB on the heap in the end", m.HeapAlloc>>20)
	runtime.KeepAlive(held)
}

// measure asks for pages, one after the other.
func measure(b *testing.B, d *Dashboard, path func() string, of ...func() *Dashboard) {
	var took []time.Duration
	var worked time.Duration
	for b.Loop() {
		b.StopTimer()
		r := httptest.NewRequest(http.MethodGet, path(), nil)
		on := d
		for _, f := range of {
			on = f()
		}
		b.StartTimer()
		w := httptest.NewRecorder()
		before, began := worktime(b), time.Now()
		on.ServeHTTP(w, r)
		took = append(took, time.Since(began))
		worked += worktime(b) - before
		if w.Code != http.StatusOK {
			b.Fatalf("%s: %d: %s", r.URL, w.Code, w.Body)
		}
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[min(len(took)-1, int(share*float64(len(took))))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(float64(worked.Microseconds())/1000/float64(len(took)), "cpu-ms")
	b.ReportMetric(0, "ns/op")
}

// worktime is how long this process has had a processor.
func worktime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
