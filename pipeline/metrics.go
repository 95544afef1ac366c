package pipeline

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/topology"
)

// metrics of services. Labels are the service and the type of its input: nothing that grows with runs.
type metrics struct {
	handled    *prometheus.CounterVec
	stated     *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	publishing *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	backlog    *prometheus.GaugeVec
}

// Buckets reach from a cached lookup to an hour's tool call, and from an in-process append to a stuck server.
var (
	handlerSeconds = prometheus.ExponentialBuckets(0.0005, 4, 12)
	publishSeconds = prometheus.ExponentialBuckets(0.0001, 4, 8)
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	labels := []string{"service", "type"}
	m := &metrics{
		handled:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_inputs_total", Help: "Deliveries by outcome: done, retried, dead."}, append(labels, "outcome")),
		stated:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_events_stated_total", Help: "Events that handlers stated."}, labels),
		seconds:    prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_handler_seconds", Help: "Time from an input to its events on the log.", Buckets: handlerSeconds}, labels),
		publishing: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_publish_seconds", Help: "Time to put a handler's events on the log.", Buckets: publishSeconds}, labels),
		inFlight:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_in_flight", Help: "Inputs in work."}, labels),
		backlog:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_backlog", Help: "Inputs that wait, as of the last delivery, over all runs."}, labels),
	}
	var err error
	m.handled, err = share(r, m.handled, err)
	m.stated, err = share(r, m.stated, err)
	m.seconds, err = share(r, m.seconds, err)
	m.publishing, err = share(r, m.publishing, err)
	m.inFlight, err = share(r, m.inFlight, err)
	m.backlog, err = share(r, m.backlog, err)
	return m, err
}

func share[C prometheus.Collector](r prometheus.Registerer, c C, err error) (C, error) {
	if err != nil {
		return c, err
	}
	return ShareMetric(r, c)
}

// ShareMetric registers a metric that the services of one process share: the first one's is everybody's. r may be nil.
func ShareMetric[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	if r == nil {
		return c, nil
	}
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		return already.ExistingCollector.(C), nil
	}
	return c, err
}

// of makes the meter of one consumer.
func (m *metrics) of(service string, spec topology.ConsumerSpec) *meter {
	input := string(spec.Type)
	if input == "" {
		input = spec.Stream
	}
	return &meter{
		maxDeliver: uint64(spec.MaxDeliver),
		done:       m.handled.WithLabelValues(service, input, "done"),
		retried:    m.handled.WithLabelValues(service, input, "retried"),
		dead:       m.handled.WithLabelValues(service, input, "dead"),
		stated:     m.stated.WithLabelValues(service, input),
		seconds:    m.seconds.WithLabelValues(service, input),
		publishing: m.publishing.WithLabelValues(service, input),
		inFlight:   m.inFlight.WithLabelValues(service, input),
		backlog:    m.backlog.WithLabelValues(service, input),
	}
}
