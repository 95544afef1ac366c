package rollouts

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/bench/figures"
	"github.com/rondo-rl/rondo/retry"
)

// echoEvery is the pace of the raw messages, and echoBytes their size, that of a turn's event.
const (
	echoEvery = 20 * time.Millisecond
	echoBytes = 1024
)

// echo passes messages on by nats.go alone until the context ends: consume, publish, acknowledge.
// The time is that between the two messages on the log, by the server's clock.
func echo(ctx context.Context, nc *nats.Conn, raw *figures.Latency) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	setup, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	stream, err := js.CreateStream(setup, jetstream.StreamConfig{Name: "BENCH_RAW", Subjects: []string{"bench.raw.*"},
		Storage: jetstream.FileStorage})
	if err != nil {
		return err
	}
	consumers := map[string]jetstream.Consumer{}
	for _, subject := range []string{"bench.raw.in", "bench.raw.out"} {
		consumers[subject], err = stream.CreateConsumer(setup,
			jetstream.ConsumerConfig{FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			return err
		}
	}
	began := make(chan time.Time, 1)
	var took []time.Duration
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error {
		return each(inner, consumers["bench.raw.in"], func(msg jetstream.Msg, stored time.Time) error {
			began <- stored
			if _, err := js.Publish(inner, "bench.raw.out", msg.Data()); err != nil {
				return err
			}
			return msg.DoubleAck(inner)
		})
	})
	group.Go(func() error {
		return each(inner, consumers["bench.raw.out"], func(msg jetstream.Msg, stored time.Time) error {
			took = append(took, stored.Sub(<-began))
			return msg.Ack()
		})
	})
	group.Go(func() error {
		for retry.Sleep(inner, echoEvery) {
			if _, err := js.Publish(inner, "bench.raw.in", make([]byte, echoBytes)); err != nil {
				return err
			}
		}
		return inner.Err()
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	*raw = figures.LatencyOf(took)
	return nil
}

// each hands one message after the other to f until the context ends.
func each(ctx context.Context, c jetstream.Consumer, f func(msg jetstream.Msg, stored time.Time) error) error {
	// A server that says nothing for long, as on a busy machine, is asked again.
	messages, err := c.Messages(jetstream.PullMaxMessages(1), jetstream.WithMessagesErrOnMissingHeartbeat(false))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		about, err := msg.Metadata()
		if err == nil {
			err = f(msg, about.Timestamp)
		}
		if err != nil {
			return err
		}
	}
}
