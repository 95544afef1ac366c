package tracing

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
)

// counted is a counter that can be read.
type counted struct {
	prometheus.Counter
	n int
}

func (c *counted) Inc() { c.n++ }

// TestRecorderThatIsBehind: who states events waits for no span. Those that there is no room
// for are counted as lost.
func TestRecorderThatIsBehind(t *testing.T) {
	lost := &counted{}
	tr := &Tracing{jobs: make(chan job, 2), lost: lost}              // and nobody works on them
	tr.enqueue("s", trace.SpanContext{}, make([]events.Event, 3)...) // of which no spans are made
	for range 5 {
		tr.enqueue("s", trace.SpanContext{}, events.Event{Type: events.TurnSampledType})
	}
	if len(tr.jobs) != 2 || lost.n != 3 {
		t.Errorf("%d wait, %d are lost", len(tr.jobs), lost.n)
	}
}
