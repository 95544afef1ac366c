package jetpubsub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/pipeline/slots"
)

// severalAnswers is a consumer whose pull is answered by several messages and errors, as after a reconnect, when the library asks again and
// the server knows both requests, or when a new leader answers as well.
type severalAnswers struct {
	jetstream.Consumer
	messages int
	returned chan time.Duration // the delays with which messages were given back
	closed   chan struct{}
}

func (c *severalAnswers) Consume(handle jetstream.MessageHandler, opts ...jetstream.PullConsumeOpt) (jetstream.ConsumeContext, error) {
	go func() { // the library calls the handler for one message after the other, and is drained when it has returned
		defer close(c.closed)
		for i := range c.messages {
			handle(&answer{number: uint64(i + 1), returned: c.returned})
		}
	}()
	return consuming{c}, nil
}

func (c *severalAnswers) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{AckWait: time.Hour}}
}

type consuming struct{ *severalAnswers }

func (consuming) Stop()                     {}
func (consuming) Drain()                    {}
func (c consuming) Closed() <-chan struct{} { return c.closed }

type answer struct {
	jetstream.Msg
	number   uint64
	returned chan time.Duration
}

func (m *answer) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: m.number}}, nil
}
func (m *answer) Headers() nats.Header            { return nil }
func (m *answer) Data() []byte                    { return nil }
func (m *answer) DoubleAck(context.Context) error { return nil }
func (m *answer) NakWithDelay(d time.Duration) error {
	m.returned <- d
	return nil
}

// TestPullAnsweredSeveralTimes: one message has the slot, the others go back at once, and nothing waits for ever, neither where the pull takes its
// message nor where it has just given up.
func TestPullAnsweredSeveralTimes(t *testing.T) {
	for name, ended := range map[string]bool{"while it waits": false, "when it has given up": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const handOver = 10 * time.Millisecond
				c := &severalAnswers{messages: 4, returned: make(chan time.Duration, 10), closed: make(chan struct{})}
				capacity := slots.New(1)
				s := newSubscription(context.Background(), Config{Slots: capacity.Tenant("test"), HandOver: handOver}, "topic", c)
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				if ended {
					stop()
				}
				lease := <-s.cfg.Slots.Ask(1, false).Lease()
				came, err := s.wait(ctx, lease)
				if came != 1 || err != nil {
					t.Errorf("%d messages, %v", came, err)
				}
				<-c.closed
				want := 3
				if ended {
					want = 4 // the first one came to a subscription that ends
				}
				for range want {
					if d := <-c.returned; d != handOver {
						t.Errorf("a message went back for %s", d)
					}
				}
				select {
				case m := <-s.out:
					m.Ack()
				default:
					if !ended {
						t.Error("no message was handed out")
					}
				}
				s.settling.Wait()
				s.stopConfirm()
				s.stopWorking()
			})
		})
	}
}
