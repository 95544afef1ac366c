package gateway

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_gateway_requests_total", Help: "Requests by route and status."}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_gateway_seconds", Help: "Time from a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 11)}, []string{"route"}),
		tokens:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_gateway_tokens_total", Help: "Tokens of recorded turns: prompt, sampled."}, []string{"kind"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rondo_gateway_running", Help: "Calls at the inference servers."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rondo_gateway_waiting", Help: "Calls that wait for a slot."}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.tokens, m.running, m.waiting} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
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
