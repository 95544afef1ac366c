package fleet

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// metrics by server; there are at most maxReplicas of them.
type metrics struct {
	fleet    *Fleet
	requests *prometheus.CounterVec
	turns    *prometheus.CounterVec
	refusals *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	ramps    *prometheus.CounterVec
	state    *prometheus.Desc
	inFlight *prometheus.Desc
	allowed  *prometheus.Desc
	waiting  *prometheus.Desc
}

func newMetrics(r prometheus.Registerer, f *Fleet) (*metrics, error) {
	m := &metrics{
		fleet: f,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_endpoint_requests_total",
			Help: "Requests to inference servers by outcome: answered, " +
				"refused, throttled, aborted, away, broken, failed, left."}, []string{"endpoint", "outcome"}),
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_endpoint_turns_total",
			Help: "Turns of inference servers by why they ended: stop, tool_calls, " +
				"length, repetition, filtered, unknown; and unread_call, for one that ended with a call that the server did not read."},
			[]string{"endpoint", "finish"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_endpoint_refusals_total",
			Help: "Requests that inference servers refused as wrong, by " +
				"what they say of them: overflow, fields, filtered, unknown."}, []string{"endpoint", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_endpoint_seconds",
			Help: "Time from a request to an inference server to the end of its " +
				"answer.", Buckets: prometheus.ExponentialBuckets(0.01, 3, 11)}, []string{"endpoint"}),
		ramps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_endpoint_ramp_total",
			Help: "Changes of the requests that an inference server gets: opened (its " +
				"circuit), closed, reduced, restored."}, []string{"endpoint", "change"}),
		state: prometheus.NewDesc("rondo_endpoint_state",
			"0: it is asked; 1: it rests, as it asked for; 2: its circuit is open.", []string{"endpoint"}, nil),
		inFlight: prometheus.NewDesc("rondo_endpoint_in_flight", "Requests under way.", []string{"endpoint"}, nil),
		allowed: prometheus.NewDesc("rondo_endpoint_allowed",
			"Requests that its ramp allows this process at once.", []string{"endpoint"}, nil),
		waiting: prometheus.NewDesc("rondo_endpoints_waiting", "Calls that wait for an inference server.", nil, nil),
	}
	if r == nil {
		return m, nil
	}
	return m, r.Register(m)
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.requests.Describe(ch)
	m.turns.Describe(ch)
	m.refusals.Describe(ch)
	m.seconds.Describe(ch)
	m.ramps.Describe(ch)
	for _, d := range []*prometheus.Desc{m.state, m.inFlight, m.allowed, m.waiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: a rest ends without an event, so the state is looked
// at when it is asked for.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.requests.Collect(ch)
	m.turns.Collect(ch)
	m.refusals.Collect(ch)
	m.seconds.Collect(ch)
	m.ramps.Collect(ch)
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	now := time.Now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for url, r := range m.fleet.replicas {
		state := 0.0
		switch {
		case r.open:
			state = 2
		case now.Before(r.until):
			state = 1
		}
		gauge(m.state, state, url)
		gauge(m.inFlight, float64(r.inFlight), url)
		gauge(m.allowed, float64(r.room()), url)
	}
	gauge(m.waiting, float64(len(m.fleet.waiting)))
}

// sampled counts a turn by why it ended.
func (m *metrics) sampled(url string, t *events.TurnSampled) {
	finish := t.FinishReason
	if slices.Contains(t.Lacks, events.LackTools) {
		finish = events.StopUnread
	}
	m.turns.WithLabelValues(url, finish).Inc()
}

func (m *metrics) observe(url string, what outcome, took time.Duration, failure *inference.Failure) {
	m.requests.WithLabelValues(url, string(what)).Inc()
	if failure != nil && failure.Refusal != "" {
		m.refusals.WithLabelValues(url, failure.Refusal).Inc()
	}
	if what == answered {
		m.seconds.WithLabelValues(url).Observe(took.Seconds())
	}
}

// ramp counts a change of a server's ramp.
func (m *metrics) ramp(url, change string) { m.ramps.WithLabelValues(url, change).Inc() }

func (m *metrics) forget(url string) {
	for _, counters := range []*prometheus.CounterVec{m.requests, m.turns, m.refusals} {
		counters.DeletePartialMatch(prometheus.Labels{"endpoint": url})
	}
	m.seconds.DeleteLabelValues(url)
	m.ramps.DeletePartialMatch(prometheus.Labels{"endpoint": url})
}
