package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime/jetsub"
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
	Name   string
	Slots  int // inputs in work at once, per consumer
	Handle Handler
	// Routes lists the routes that this process serves in a run, for services of routed types. It is asked again
	// and again.
	Routes func(ctx context.Context, run string) []string
	// Opened and Closed are told of runs, when set.
	Opened, Closed func(ctx context.Context, run string)
}

// graceTime is what handlers in work get to finish when the service stops.
const graceTime = 20 * time.Second

// handOver is how long inputs rest that a stopping service gives back.
const handOver = time.Second

// routesEvery is how often a service asks which routes it serves.
const routesEvery = 5 * time.Second

// RunEffect runs an effect service over its consumers of the topology table, in all open runs, until the
// context ends; then it stops pulling and lets the handlers in work finish.
func RunEffect(ctx context.Context, env Env, e Effect) error {
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: graceTime}, watermill.NewSlogLogger(slog.New(onlyErrors{env.Logger.Handler()})))
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	s := &effectService{env: env, effect: e, router: router, metrics: metrics, handlers: map[string]*message.Handler{}, runs: map[string]bool{}}
	router.AddMiddleware(metrics.measure(e.Name), s.settle, traced, middleware.Recoverer)
	// Handlers outlive the context for their grace time, so the router does not run under it.
	routerCtx, stopRouter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRouter()
	done := make(chan error, 1)
	go func() { done <- router.Run(routerCtx) }()
	<-router.Running()
	s.ctx = routerCtx
	for _, c := range events.ConsumersOf(e.Name) {
		if !c.PerRun() {
			s.add(c.For("", ""), "")
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.refreshRoutes(ctx) })
	err = watchRuns(ctx, env, func(r run) { s.tell(ctx, r) })
	wg.Wait()
	return errors.Join(err, router.Close(), <-done)
}

// effectService is a running effect service.
type effectService struct {
	env     Env
	effect  Effect
	router  *message.Router
	metrics *metrics
	ctx     context.Context

	mu       sync.Mutex
	handlers map[string]*message.Handler
	runs     map[string]bool // open ones
}

// tell takes up a run that was opened, and leaves one that was closed.
func (s *effectService) tell(ctx context.Context, r run) {
	s.mu.Lock()
	s.runs[r.name] = !r.closed
	s.mu.Unlock()
	hook := s.effect.Opened
	if r.closed {
		s.leave(r.name)
		hook = s.effect.Closed
	} else {
		s.consume(ctx, r.name)
	}
	if hook != nil {
		hook(ctx, r.name)
	}
}

// consume adds the handlers of a run's consumers that are not there yet.
func (s *effectService) consume(ctx context.Context, runName string) {
	for _, c := range events.ConsumersOf(s.effect.Name) {
		if !c.PerRun() {
			continue
		}
		routes := []string{""}
		if c.Type.Routed() {
			routes = s.effect.Routes(ctx, runName)
		}
		for _, route := range routes {
			s.add(c.For(runName, route), route)
		}
	}
}

func (s *effectService) refreshRoutes(ctx context.Context) {
	if s.effect.Routes == nil {
		return
	}
	for sleep(ctx, routesEvery) {
		s.mu.Lock()
		var open []string
		for name, isOpen := range s.runs {
			if isOpen {
				open = append(open, name)
			}
		}
		s.mu.Unlock()
		for _, name := range open {
			s.consume(ctx, name)
		}
	}
}

// add begins to work on a consumer.
func (s *effectService) add(spec events.ConsumerSpec, route string) {
	name := spec.Stream + "/" + spec.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers[name] != nil {
		return
	}
	sub := jetsub.New(jetsub.Config{Slots: s.effect.Slots, AckWait: spec.AckWait, HandOver: handOver},
		func(ctx context.Context, _ string) (jetstream.Consumer, error) {
			return s.env.Log.EnsureConsumer(ctx, spec, route)
		})
	s.handlers[name] = s.router.AddConsumerHandler(name, name, sub, s.handle)
	if err := s.router.RunHandlers(s.ctx); err != nil {
		s.env.Logger.Error("a consumer cannot be served", "service", s.effect.Name, "consumer", name, "error", err)
		delete(s.handlers, name)
	}
}

// leave stops working on a run's consumers.
func (s *effectService) leave(runName string) {
	prefix := events.RunStream(runName) + "/"
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, h := range s.handlers {
		if strings.HasPrefix(name, prefix) {
			h.Stop()
			delete(s.handlers, name)
		}
	}
}

// handle is the Watermill handler: from a message to events on the log.
func (s *effectService) handle(m *message.Message) error {
	in, err := s.input(m)
	if err != nil {
		return err
	}
	return publishAll(m.Context(), s.env.Log, s.effect.Name, in, s.effect.Handle)
}

// input reads a delivery. What is on a run's stream and cannot be read is given up: it will not get better.
func (s *effectService) input(m *message.Message) (Message, error) {
	d := jetsub.DeliveryOf(m)
	in := Message{
		Subject: d.Msg.Subject(), Header: d.Msg.Headers(), Data: d.Msg.Data(),
		Seq: d.Meta.Sequence.Stream, Time: d.Meta.Timestamp, Delivered: d.Meta.NumDelivered,
	}
	if _, facts := events.RunOfStream(d.Meta.Stream); !facts {
		return in, nil
	}
	e, err := s.env.Log.Decode(m.Context(), in.Subject, in.Header, in.Data, in.Seq)
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) {
		return in, Permanent(err)
	}
	in.Event = e
	return in, err
}

// onlyErrors keeps Watermill's running commentary out of the log: a service that is well is quiet.
type onlyErrors struct{ slog.Handler }

func (h onlyErrors) Enabled(_ context.Context, l slog.Level) bool { return l > slog.LevelError }
