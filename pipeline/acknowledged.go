package pipeline

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/retry"
)

// askConsumerEvery is how often the server is asked how far a consumer is, and askConsumerFor how long it may take to answer.
const (
	askConsumerEvery = 15 * time.Second
	askConsumerFor   = 5 * time.Second
)

// askConsumerAgain is how long it rests where it does not answer: keys of an earlier version may not ask.
var askConsumerAgain = retry.Policy{First: askConsumerEvery, Most: time.Hour}

// acknowledged keeps what the server tells of a consumer in the metrics, until the context ends. Deliveries tell it, too, but a consumer that is stuck has none.
func (m *metrics) acknowledged(ctx context.Context, service, input, stream string, consumer func() jetstream.Consumer) {
	labels := []string{service, input, stream}
	defer func() {
		m.floor.DeleteLabelValues(labels...)
		m.pending.DeleteLabelValues(labels...)
		m.unacked.DeleteLabelValues(labels...)
	}()
	for failed, wait := 0, time.Second; retry.Sleep(ctx, wait); { // the consumer is made first
		wait = askConsumerEvery
		c := consumer()
		if c == nil {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, askConsumerFor)
		info, err := c.Info(asking)
		cancel()
		if err != nil { // outages of the server are told elsewhere
			failed++
			wait = askConsumerAgain.Delay(failed)
			continue
		}
		failed = 0
		m.floor.WithLabelValues(labels...).Set(float64(info.AckFloor.Stream))
		m.pending.WithLabelValues(labels...).Set(float64(info.NumPending))
		m.unacked.WithLabelValues(labels...).Set(float64(info.NumAckPending))
	}
}
