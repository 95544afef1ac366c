package pipeline_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	service "github.com/rondo-rl/rondo/pipeline"
)

// The memory of a service must not grow with what it has handled.
func TestMemoryDoesNotGrow(t *testing.T) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 256
	defer func() { runtime.MemProfileRate = rate }()
	p := newPlane(t)
	p.open(t, testRun)
	var handled atomic.Int64
	effect(t, p.env(t, ""), 16, func(_ context.Context, m service.Message) ([]events.Event, error) {
		handled.Add(1)
		return []events.Event{event(t, testRun, events.RolloutAnnotatedType, "of-"+m.Event.Entity,
			"0", events.RolloutAnnotated{})}, nil
	})
	done := 0
	handle := func(n int) {
		p.finish(t, testRun, done, n)
		done += n
		natstest.Eventually(t, "all are handled", func() bool { return handled.Load() == int64(done) })
		p.acknowledged(t, testRun)
	}
	handle(500)
	before := held()
	const many = 2500
	handle(many)
	grown := held() - before
	t.Logf("%d KiB more are held", grown>>10)
	if grown > many*20 { // bytes for each input: not even its sequence in a map
		t.Errorf("%d KiB more are held after %d inputs", grown>>10, many)
	}
}

// held is what all but the server, which is in this process too, holds on the heap.
func held() (bytes int64) {
	runtime.GC()
	runtime.GC() // the profile is of the last but one
	records := make([]runtime.MemProfileRecord, 100_000)
	n, _ := runtime.MemProfile(records, false)
	for _, r := range records[:n] {
		if !ofServer(r.Stack()) {
			bytes += r.InUseBytes()
		}
	}
	return bytes
}

func ofServer(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.Contains(f.Function, "nats-server") {
			return true
		}
	}
	return false
}
