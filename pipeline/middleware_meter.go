package pipeline

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
)

// meter counts and times the work on one consumer.
type meter struct {
	maxDeliver            uint64
	done, retried, dead   prometheus.Counter
	stated                prometheus.Counter
	seconds, publishing   prometheus.Observer
	inFlight, backlog     prometheus.Gauge
	parked                prometheus.Gauge
	mu                    sync.Mutex
	lastBacklog, lastSeen uint64
}

// middleware measures handlers.
func (m *meter) middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		d := jetpubsub.DeliveryOf(msg)
		if d != nil {
			m.waiting(d.Sequence.Stream, d.NumPending)
		}
		m.inFlight.Inc()
		began := time.Now()
		out, err := next(msg)
		m.seconds.Observe(time.Since(began).Seconds())
		m.inFlight.Dec()
		w, wished := wishOf(err)
		switch {
		case err == nil:
			m.done.Inc()
		case wished && w.permanent || d != nil && m.exhausted(d):
			m.dead.Inc()
		default:
			m.retried.Inc()
		}
		return out, err
	}
}

// exhausted reports whether the server will not deliver the message again.
func (m *meter) exhausted(d *jetpubsub.Delivery) bool {
	return m.maxDeliver > 0 && d.NumDelivered >= m.maxDeliver
}

func (m *meter) published(took time.Duration, n int) {
	m.publishing.Observe(took.Seconds())
	m.stated.Add(float64(n))
}

// waiting notes how many messages wait. The gauge sums over the consumers of all
// runs, so changes are added.
func (m *meter) waiting(seq, pending uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seq < m.lastSeen {
		return // an older delivery, or one that came again, knows less
	}
	m.backlog.Add(float64(pending) - float64(m.lastBacklog))
	m.lastBacklog, m.lastSeen = pending, seq
}

// end takes the consumer's share out of the gauge.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backlog.Sub(float64(m.lastBacklog))
	m.lastBacklog = 0
}
