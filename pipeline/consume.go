package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/jetpubsub"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/retry"
)

var (
	// beginAgain is how long a decider or a round that failed rests: it reads a run's log again.
	beginAgain = retry.Policy{First: time.Second, Most: 30 * time.Second}
	// serveAgain is how long a consumer that cannot be served rests. Senders may wait for an
	// answer to the messages there.
	serveAgain = retry.Policy{First: time.Second, Most: 10 * time.Second}
)

// ensure finds or makes a durable consumer.
type ensure func(ctx context.Context) (jetstream.Consumer, error)

// serve works on one consumer of the topology table until the context ends,
// among others of a group.
func (s *effectService) serve(ctx context.Context, group *sync.WaitGroup, spec topology.ConsumerSpec, route string) {
	s.serveWith(ctx, group, spec, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.env.Log.Streams.EnsureConsumer(ctx, spec, route)
	})
}

// serveWith is serve for a consumer that is made in another way.
func (s *effectService) serveWith(ctx context.Context, group *sync.WaitGroup,
	spec topology.ConsumerSpec, ensure ensure) {
	group.Go(func() {
		_ = serveAgain.Keep(ctx, func() (bool, error) {
			err := s.consume(ctx, spec, ensure)
			return ctx.Err() != nil, err
		}, func(err error, wait time.Duration) {
			s.env.Logger.Warn("consumer unavailable", "service", s.effect.Name, "stream", spec.Stream,
				"consumer", spec.Name, "retry_in", wait, "error", err)
		})
	})
}

// streamDeleted reports whether a stream was deleted.
func streamDeleted(err error) bool {
	return errors.Is(err, eventlog.ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// unserved reports whether there is nothing left to serve.
func unserved(err error) bool { return streamDeleted(err) || errors.Is(err, eventlog.ErrClosed) }

// consume hands the messages of one consumer to the handler until the context ends, the stream is
// deleted or the run is closed.
func (s *effectService) consume(ctx context.Context, spec topology.ConsumerSpec, ensure ensure) error {
	topic := spec.Stream + "/" + spec.Name
	var current atomic.Value
	subscriber := jetpubsub.NewSubscriber(jetpubsub.Config{
		Conn: s.env.Log.JetStream().Conn(), Slots: s.slots.Tenant(tenantOf(spec)), Gone: unserved,
		Grace: graceTime, HandOver: handOver,
		Requests: s.env.Log.Streams.Requests(requesterOf(spec)),
		Ensure: func(ctx context.Context, _ string) (jetstream.Consumer, error) {
			c, err := ensure(ctx)
			if err == nil {
				current.Store(&c)
			}
			return c, err
		},
		Stalled: func(err error) { s.env.Health.Stalled(topic, err) },
	})
	defer s.env.Health.Stalled(topic, nil)
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	meter := s.metrics.newMeter(s.effect.Name, spec)
	defer meter.end()
	asking, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		s.metrics.acknowledged(asking, s.effect.Name, consumedBy(spec), spec.Stream, func() jetstream.Consumer {
			if c, ok := current.Load().(*jetstream.Consumer); ok {
				return *c
			}
			return nil
		})
	}()
	defer func() { stop(); <-asked }()
	h := &inputs{effectService: s, spec: spec, meter: meter}
	return s.router.run(topic, messages, h.handle,
		meter.middleware, s.traced, s.settle(meter), middleware.Recoverer)
}

// tenantOf is who shares the slots: runs, and the senders of a shared stream.
func tenantOf(spec topology.ConsumerSpec) string {
	if spec.Queue.Name != "" {
		return spec.Name
	}
	return spec.Stream
}

// requesterOf is who shares the requests to the server: as tenantOf, and by the names
// that a Log gives to runs.
func requesterOf(spec topology.ConsumerSpec) string {
	if run, facts := events.RunOfStream(spec.Stream); facts {
		return run
	}
	return tenantOf(spec)
}

// inputs is the Watermill handler of one consumer.
type inputs struct {
	*effectService
	spec  topology.ConsumerSpec
	meter *meter
}

// handle goes from a message to events on the log.
func (h *inputs) handle(m *message.Message) ([]*message.Message, error) {
	p := &parking{inputs: h, message: m}
	defer p.end()
	if run, facts := events.RunOfStream(h.spec.Stream); facts {
		p.waiting = h.inWork.begin(run)
		defer h.inWork.end(p.waiting)
	}
	in, err := h.read(m)
	for err != nil && p.park(err) {
		in, err = h.read(m)
	}
	if err != nil {
		return nil, err
	}
	ctx := m.Context()
	err = h.effect.record(ctx, h.env, in, h.meter.published, p.park)
	if err == nil || h.effect.GiveUp == nil || ctx.Err() != nil || !h.meter.exhausted(jetpubsub.DeliveryOf(m)) {
		return nil, err
	}
	last := h.effect
	last.Handle = func(ctx context.Context, in Message) ([]events.Event, error) { return h.effect.GiveUp(ctx, in, err) }
	return nil, last.record(ctx, h.env, in, h.meter.published, p.park)
}

// read reads a delivery. What is on a run's stream and cannot be read is given
// up: it will not get better.
func (h *inputs) read(m *message.Message) (Message, error) {
	d := jetpubsub.DeliveryOf(m)
	in := Message{
		Subject: d.Msg.Subject(), Header: d.Msg.Headers(), Data: d.Msg.Data(),
		Seq: d.Sequence.Stream, Time: d.Timestamp, Delivered: d.NumDelivered,
	}
	if _, facts := events.RunOfStream(h.spec.Stream); !facts {
		return in, nil
	}
	e, err := eventlog.Decode(m.Context(), h.env.Log.Store(), in.Subject, in.Header, in.Data, in.Seq)
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) {
		return in, Permanent(err)
	}
	in.Event = e
	return in, err
}

// parking is the time that one delivery waits for the ends of outages. Its deliveries are not used
// up by that, and its slot is free for others.
type parking struct {
	*inputs
	message *message.Message
	waits   int
	unpark  func()
	waiting *waiting // nil: not of a run
}

// park waits, where an error comes of an outage, and reports whether there is to be another try.
func (p *parking) park(err error) bool {
	kind := outage.KindOf(err)
	if _, wished := wishOf(err); wished || kind == "" || p.message.Context().Err() != nil {
		return false
	}
	d := jetpubsub.DeliveryOf(p.message)
	if p.unpark == nil {
		p.unpark = p.env.Health.Parked(p.effect.Name, err)
		p.meter.parked.Inc()
		p.env.Logger.Debug("input parked", "service", p.effect.Name, "subject", d.Msg.Subject(),
			"sequence", d.Sequence.Stream, "outage", kind, "error", err)
	}
	p.waits++
	p.inWork.park(p.waiting, kind)
	defer p.inWork.park(p.waiting, "")
	return d.Park(p.message.Context(), outage.Again.Delay(p.waits))
}

// end says that the input waits no more.
func (p *parking) end() {
	if p.unpark != nil {
		p.meter.parked.Dec()
		p.unpark()
	}
}
