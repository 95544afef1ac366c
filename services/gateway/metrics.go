package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/pipeline"
)

// metrics of the gateway. Labels grow with neither runs nor tenants.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	tokens   *prometheus.CounterVec
	running  prometheus.Gauge
	waiting  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_gateway_requests_total",
			Help: "Requests by route and status."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_gateway_seconds",
			Help:    "Time from a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 11)}, []string{"route"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_gateway_tokens_total",
			Help: "Tokens of recorded turns: prompt, sampled."}, []string{"kind"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rondo_gateway_running",
			Help: "Calls at the inference servers."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rondo_gateway_waiting",
			Help: "Calls that wait for a slot."}),
	}
	// A process may have one gateway for harnesses and one for agents.
	errs := make([]error, 5)
	m.requests, errs[0] = pipeline.ShareMetric(r, m.requests)
	m.seconds, errs[1] = pipeline.ShareMetric(r, m.seconds)
	m.tokens, errs[2] = pipeline.ShareMetric(r, m.tokens)
	m.running, errs[3] = pipeline.ShareMetric(r, m.running)
	m.waiting, errs[4] = pipeline.ShareMetric(r, m.waiting)
	return m, errors.Join(errs...)
}

func (m *metrics) observe(route string, err error, took time.Duration) {
	status := http.StatusOK
	var p *refusal
	switch {
	case errors.As(err, &p):
		status = p.status
	case err != nil:
		status = http.StatusServiceUnavailable
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
