package runtime

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/runtime/jetsub"
)

// metrics of effect services. Labels are the service and the outcome: nothing that grows with runs.
type metrics struct {
	handled  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	backlog  *prometheus.GaugeVec
}

// handlerSeconds reach from a cached lookup to an hour's tool call.
var handlerSeconds = prometheus.ExponentialBuckets(0.0005, 4, 12)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		handled:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_handled_total", Help: "Inputs by outcome: done, retried, dead."}, []string{"service", "outcome"}),
		seconds:  prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_handler_seconds", Help: "Time from an input to its events on the log.", Buckets: handlerSeconds}, []string{"service"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_in_flight", Help: "Inputs in work."}, []string{"service"}),
		backlog:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_backlog", Help: "Inputs that wait behind the last one, over all its consumers alike."}, []string{"service"}),
	}
	var err error
	m.handled, err = register(r, m.handled, err)
	m.seconds, err = register(r, m.seconds, err)
	m.inFlight, err = register(r, m.inFlight, err)
	m.backlog, err = register(r, m.backlog, err)
	return m, err
}

// register shares a metric between the services of one process.
func register[C prometheus.Collector](r prometheus.Registerer, c C, err error) (C, error) {
	if err != nil || r == nil {
		return c, err
	}
	err = r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		return already.ExistingCollector.(C), nil
	}
	return c, err
}

// measure is the middleware that counts and times.
func (m *metrics) measure(service string) message.HandlerMiddleware {
	seconds, inFlight, backlog := m.seconds.WithLabelValues(service), m.inFlight.WithLabelValues(service), m.backlog.WithLabelValues(service)
	done, retried, dead := m.handled.WithLabelValues(service, "done"), m.handled.WithLabelValues(service, "retried"), m.handled.WithLabelValues(service, "dead")
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if d := jetsub.DeliveryOf(msg); d != nil {
				backlog.Set(float64(d.Meta.NumPending))
			}
			inFlight.Inc()
			began := time.Now()
			out, err := next(msg)
			seconds.Observe(time.Since(began).Seconds())
			inFlight.Dec()
			w, wished := wishOf(err)
			switch {
			case err == nil:
				done.Inc()
			case wished && w.permanent:
				dead.Inc()
			default:
				retried.Inc()
			}
			return out, err
		}
	}
}
