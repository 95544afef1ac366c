package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
)

// metrics of services. Labels are the service and the type of its input. Those that the server
// tells of a consumer also have its stream, for as long as it is served.
type metrics struct {
	handled    *prometheus.CounterVec
	stated     *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	publishing *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	parked     *prometheus.GaugeVec
	backlog    *prometheus.GaugeVec
	floor      *prometheus.GaugeVec
	pending    *prometheus.GaugeVec
	unacked    *prometheus.GaugeVec
}

// Buckets reach from a cached lookup to an hour's tool call, and from an in-process
// append to a stuck server.
var (
	handlerSeconds = prometheus.ExponentialBuckets(0.0005, 4, 12)
	publishSeconds = prometheus.ExponentialBuckets(0.0001, 4, 8)
)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_inputs_total",
			Help: "Deliveries by outcome: done, retried, dead."}, []string{"service", "type", "outcome"}),
		stated: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_events_stated_total",
			Help: "Events that handlers stated."}, []string{"service", "type"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_handler_seconds",
			Help: "Time from an input to its events on the log.", Buckets: handlerSeconds},
			[]string{"service", "type"}),
		publishing: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_publish_seconds",
			Help: "Time to put a handler's events on the log.", Buckets: publishSeconds}, []string{"service", "type"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_in_flight", Help: "Inputs in work."},
			[]string{"service", "type"}),
		parked: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_parked",
			Help: "Inputs that wait for the end of an outage; they are also in flight."}, []string{"service", "type"}),
		backlog: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_backlog",
			Help: "Inputs that wait, as of the last delivery, over all runs."}, []string{"service", "type"}),
		floor: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_consumer_ack_floor",
			Help: "Stream sequence up to which a consumer has every input acknowledged, by the server."},
			[]string{"service", "type", "stream"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_consumer_pending",
			Help: "Inputs that a consumer has not delivered yet, by the server."},
			[]string{"service", "type", "stream"}),
		unacked: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_consumer_unacknowledged",
			Help: "Inputs that a consumer has delivered and that are not acknowledged, by the server."},
			[]string{"service", "type", "stream"}),
	}
	var err error
	m.handled, err = share(r, m.handled, err)
	m.stated, err = share(r, m.stated, err)
	m.seconds, err = share(r, m.seconds, err)
	m.publishing, err = share(r, m.publishing, err)
	m.inFlight, err = share(r, m.inFlight, err)
	m.parked, err = share(r, m.parked, err)
	m.backlog, err = share(r, m.backlog, err)
	m.floor, err = share(r, m.floor, err)
	m.pending, err = share(r, m.pending, err)
	m.unacked, err = share(r, m.unacked, err)
	return m, err
}

func share[C prometheus.Collector](r prometheus.Registerer, c C, err error) (C, error) {
	if err != nil {
		return c, err
	}
	return ShareMetric(r, c)
}

// ShareMetric registers a metric that the services of one process share: the first one's is
// everybody's. r may be nil.
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

// newMeter makes the meter of one consumer.
func (m *metrics) newMeter(service string, spec topology.ConsumerSpec) *meter {
	input := inputOf(spec)
	return &meter{
		maxDeliver: uint64(spec.MaxDeliver),
		done:       m.handled.WithLabelValues(service, input, "done"),
		retried:    m.handled.WithLabelValues(service, input, "retried"),
		dead:       m.handled.WithLabelValues(service, input, "dead"),
		stated:     m.stated.WithLabelValues(service, input),
		seconds:    m.seconds.WithLabelValues(service, input),
		publishing: m.publishing.WithLabelValues(service, input),
		inFlight:   m.inFlight.WithLabelValues(service, input),
		parked:     m.parked.WithLabelValues(service, input),
		backlog:    m.backlog.WithLabelValues(service, input),
	}
}

// inputOf names what a consumer delivers.
func inputOf(spec topology.ConsumerSpec) string {
	if spec.Type == "" {
		return spec.Stream
	}
	return string(spec.Type)
}

// consumedBy names the consumer of an input among those of its stream.
func consumedBy(spec topology.ConsumerSpec) string {
	if spec.Queue.Name != "" {
		return spec.Queue.Name
	}
	return inputOf(spec)
}

// askConsumerEvery is how often the server is asked how far a consumer is, and askConsumerFor how
// long it may take to answer.
const (
	askConsumerEvery = 15 * time.Second
	askConsumerFor   = 5 * time.Second
)

// acknowledged keeps what the server tells of a consumer in the metrics, until the context ends.
// Deliveries tell it, too, but a consumer that is stuck has none.
func (m *metrics) acknowledged(ctx context.Context, service, input, stream string, consumer func() jetstream.Consumer) {
	labels := []string{service, input, stream}
	defer func() {
		m.floor.DeleteLabelValues(labels...)
		m.pending.DeleteLabelValues(labels...)
		m.unacked.DeleteLabelValues(labels...)
	}()
	for wait := time.Second; retry.Sleep(ctx, wait); { // the consumer is made first
		wait = askConsumerEvery
		c := consumer()
		if c == nil {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, askConsumerFor)
		info, err := c.Info(asking)
		cancel()
		if err != nil { // outages of the server are told elsewhere
			continue
		}
		m.floor.WithLabelValues(labels...).Set(float64(info.AckFloor.Stream))
		m.pending.WithLabelValues(labels...).Set(float64(info.NumPending))
		m.unacked.WithLabelValues(labels...).Set(float64(info.NumAckPending))
	}
}
