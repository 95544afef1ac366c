package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime/jetpubsub"
)

// Message is one input of an effect service.
type Message struct {
	Subject   string
	Header    nats.Header
	Data      []byte
	Seq       uint64    // of the stream
	Time      time.Time // when the server stored it
	Delivered uint64
	// Event is the parsed fact; zero for consumers of streams that hold no facts.
	Event events.Event
}

// Handler is a function from an input to events.
//
// The events are appended in order before the input is acknowledged. The first event of a chain carries Prev as
// the handler saw it; later ones of the same chain are linked by the runtime. nil, nil means that there is
// nothing to do. When somebody else was faster, the handler is called again and reads the log anew, so it must
// look at the log, not at the input, to see what is still to do. Events beside an error are appended too.
//
// An error wrapped by RetryAfter or Permanent says what happens to the input; any other lets it come again,
// later each time.
type Handler func(ctx context.Context, m Message) ([]events.Event, error)

// Effect is an effect service.
type Effect struct {
	Name string
	// Slots is how many inputs are in work at once, over all runs and consumers.
	Slots  int
	Handle Handler
	// Routes lists the routes that this process serves in a run, for services of routed types. It is asked again
	// and again.
	Routes func(ctx context.Context, run string) []string
}

// Times of a service's life.
const (
	// graceTime is what handlers in work get to finish when the service stops or the run is closed.
	graceTime = 20 * time.Second
	// handOver is how long inputs rest that a stopping service gives back.
	handOver = time.Second
	// routesEvery is how often a service asks which routes it serves.
	routesEvery = 5 * time.Second
	// serveAgainAfter is the rest before a consumer that cannot be served is tried again, doubling.
	serveAgainAfter = time.Second
	serveAgainMost  = 30 * time.Second
)

// RunEffect runs an effect service over its consumers of the topology table, in all open runs, until the
// context ends; then it stops pulling and lets the handlers in work finish.
func RunEffect(ctx context.Context, env Env, e Effect) error {
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	s := &effectService{
		env: env, effect: e, metrics: metrics, slots: jetpubsub.NewSlots(e.Slots), workers: newWorkers(),
		publisher: jetpubsub.Publisher{Log: env.Log}, runs: map[string]*servedRun{},
	}
	defer s.workers.end()
	defer s.serving.Wait()
	for _, c := range events.ConsumersOf(e.Name) {
		if !c.PerRun() {
			s.serve(ctx, c.For("", ""), "")
		}
	}
	if e.Routes != nil {
		s.serving.Go(func() { s.refreshRoutes(ctx) })
	}
	return watchRuns(ctx, env, func(r run) {
		if r.closed {
			s.leave(r.name)
		} else {
			s.takeUp(ctx, r.name)
		}
	})
}

// effectService is a running effect service.
type effectService struct {
	env       Env
	effect    Effect
	metrics   *metrics
	slots     *jetpubsub.Slots
	workers   *workers
	publisher message.Publisher
	serving   sync.WaitGroup

	mu   sync.Mutex
	runs map[string]*servedRun // open ones
}

// servedRun is a run whose consumers are served.
type servedRun struct {
	ctx    context.Context
	stop   context.CancelFunc
	routes map[string]context.CancelFunc
}

// takeUp begins to serve a run's consumers.
func (s *effectService) takeUp(ctx context.Context, runName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[runName] != nil {
		return
	}
	r := &servedRun{routes: map[string]context.CancelFunc{}}
	r.ctx, r.stop = context.WithCancel(ctx)
	s.runs[runName] = r
	s.env.Logger.Info("serving a run", "service", s.effect.Name, "run", runName)
	for _, c := range events.ConsumersOf(s.effect.Name) {
		if c.PerRun() && !c.Type.Routed() {
			s.serve(r.ctx, c.For(runName, ""), "")
		}
	}
	if s.effect.Routes != nil {
		s.setRoutes(r, runName, s.effect.Routes(ctx, runName))
	}
}

// leave stops serving a run that was closed.
func (s *effectService) leave(runName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runName]; r != nil {
		s.env.Logger.Info("leaving a closed run", "service", s.effect.Name, "run", runName)
		r.stop()
		delete(s.runs, runName)
	}
}

// refreshRoutes keeps asking which routes are to be served.
func (s *effectService) refreshRoutes(ctx context.Context) {
	for Sleep(ctx, routesEvery) {
		s.mu.Lock()
		open := map[string]*servedRun{}
		for name, r := range s.runs {
			open[name] = r
		}
		s.mu.Unlock()
		for name, r := range open {
			routes := s.effect.Routes(ctx, name) // may ask the server
			s.mu.Lock()
			s.setRoutes(r, name, routes)
			s.mu.Unlock()
		}
	}
}

// setRoutes serves the routes of the list and no others. The caller holds mu.
func (s *effectService) setRoutes(r *servedRun, runName string, routes []string) {
	listed := map[string]bool{}
	for _, route := range routes {
		listed[route] = true
		if r.routes[route] != nil || r.ctx.Err() != nil {
			continue
		}
		ctx, stop := context.WithCancel(r.ctx)
		r.routes[route] = stop
		for _, c := range events.ConsumersOf(s.effect.Name) {
			if c.PerRun() && c.Type.Routed() {
				s.serve(ctx, c.For(runName, route), route)
			}
		}
	}
	for route, stop := range r.routes {
		if !listed[route] {
			stop()
			delete(r.routes, route)
		}
	}
}

// serve works on one consumer until the context ends.
func (s *effectService) serve(ctx context.Context, spec events.ConsumerSpec, route string) {
	s.serving.Go(func() {
		for again := serveAgainAfter; ctx.Err() == nil; again = min(2*again, serveAgainMost) {
			began := time.Now()
			err := s.route(ctx, spec, route)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > serveAgainMost {
				again = serveAgainAfter
			}
			s.env.Logger.Warn("a consumer is not there and will be tried again", "service", s.effect.Name, "stream", spec.Stream, "consumer", spec.Name, "after", again, "error", err)
			Sleep(ctx, again)
		}
	})
}

// gone reports whether a stream was deleted: there is nothing left to serve.
func gone(err error) bool {
	return errors.Is(err, eventlog.ErrNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// route runs a Watermill router over one consumer. Routers end when they have no handler left, so each
// consumer, which may come and go, has its own.
func (s *effectService) route(ctx context.Context, spec events.ConsumerSpec, route string) error {
	topic := spec.Stream + "/" + spec.Name
	sub := jetpubsub.NewSubscriber(s.env.Log.Conn(), jetpubsub.Config{
		Slots: s.slots, Party: spec.Stream, Room: s.effect.Slots, Gone: gone, Grace: graceTime, HandOver: handOver,
		Ensure: func(ctx context.Context, _ string) (jetpubsub.Consumer, error) {
			_, err := s.env.Log.EnsureConsumer(ctx, spec, route)
			return jetpubsub.Consumer{Stream: spec.Stream, Durable: spec.Name, AckWait: spec.AckWait}, err
		},
	})
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: graceTime}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, sub.Close())
	}
	meter := s.metrics.of(s.effect.Name, spec)
	defer meter.end()
	router.AddMiddleware(s.workers.middleware, meter.middleware, s.settle(meter), traced(s.effect.Name, spec.Type), middleware.Recoverer)
	h := &inputs{effectService: s, spec: spec, meter: meter}
	router.AddConsumerHandler(topic, topic, subscribed{sub, messages}, h.handle)
	return router.Run(ctx)
}

// subscribed is a subscriber whose one subscription is there already: a router whose subscription fails leaves a
// goroutine behind that waits for ever.
type subscribed struct {
	*jetpubsub.Subscriber
	messages <-chan *message.Message
}

// Subscribe gives the subscription.
func (s subscribed) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}

// inputs is the Watermill handler of one consumer.
type inputs struct {
	*effectService
	spec  events.ConsumerSpec
	meter *meter
}

// handle goes from a message to events on the log.
func (h *inputs) handle(m *message.Message) error {
	in, err := h.read(m)
	if err != nil {
		return err
	}
	return h.publishAll(m.Context(), in)
}

// read reads a delivery. What is on a run's stream and cannot be read is given up: it will not get better.
func (h *inputs) read(m *message.Message) (Message, error) {
	d := jetpubsub.DeliveryOf(m)
	in := Message{Subject: d.Subject, Header: d.Header, Data: m.Payload, Seq: d.Seq, Time: d.Time, Delivered: d.Delivered}
	if _, facts := events.RunOfStream(h.spec.Stream); !facts {
		return in, nil
	}
	e, err := h.env.Log.Decode(m.Context(), in.Subject, in.Header, in.Data, in.Seq)
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) {
		return in, Permanent(err)
	}
	in.Event = e
	return in, err
}
