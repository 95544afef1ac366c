package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/slots"
)

// Message is one input of an effect service.
type Message struct {
	Subject   string
	Header    nats.Header
	Data      []byte
	Seq       uint64    // of the stream
	Time      time.Time // when the server stored it
	Delivered uint64
	// Again is set when the handler was called with this delivery before.
	Again bool
	// Event is the parsed fact; zero for consumers of streams that hold no facts.
	Event events.Event
	// Log reads the input's run at the input: also in a cluster it shows that run at least up to
	// the input's sequence, and up to what the handler has read since, or stated by State. Other
	// runs, and all runs for an input of no run, it shows as they are.
	Log eventlog.Reader
	// State appends an event while the handler is at work, for what must not be lost with it. Its
	// error is ErrOvertaken where the log holds something else, also of the same identity: the
	// handler then returns it.
	State func(ctx context.Context, e events.Event) (events.Event, error)
}

// Handler is a function from an input to events. It appends nothing itself.
//
// The events are appended in order before the input is acknowledged. The first event of a chain
// carries Prev as the handler saw it; later ones of the same chain are linked by the runtime. nil,
// nil means that there is nothing to do. When somebody else was faster, the handler is called again
// and reads the log anew, so it must look at the log, by the input's Log, not at the input, to see
// what is still to do. Events beside an error are appended too; beside ErrCallAgain the handler is
// called again when they are on the log.
//
// An error wrapped by RetryAfter or Permanent says what happens to the input; any other lets it
// come again, later each time.
type Handler func(ctx context.Context, m Message) ([]events.Event, error)

// Effect is an effect service.
type Effect struct {
	Name string
	// Slots is how many inputs are in work at once, over all runs and consumers.
	Slots  int
	Handle Handler
	// Recorded, if set, is told of the handler's events when this process has appended them, as
	// they are on the log, before the input is acknowledged. Where one of them was there already
	// the handler is called again instead. An error lets the input come again.
	Recorded func(ctx context.Context, m Message, facts []events.Event) error
	// GiveUp, if set, is called in place of the dead letter when the last delivery of an input has
	// failed, and states what becomes of it.
	GiveUp func(ctx context.Context, m Message, cause error) ([]events.Event, error)
	// Routes lists the routes that this process serves in a run, for services of routed types. It
	// is asked again and again.
	Routes func(ctx context.Context, run string) []string
	// Serves, if set, says whether a run has work for the service: it has no consumers
	// there where it has none.
	Serves func(cfg runfile.RunConfig) bool
	// Arrivals, if set, hears what arrives in the queues of a shared stream.
	Arrivals Arrivals
	// Round, if set, is asked in each open run, again and again.
	Round Round
	// Stage, if set, is where rollouts wait for the service: the log is told when it waits
	// for the end of an outage.
	Stage string
}

// Times of a service's life.
const (
	// graceTime is what handlers in work get to finish when the service stops or the run is closed.
	graceTime = 20 * time.Second
	// handOver is how long inputs rest that a stopping service gives back.
	handOver = time.Second
	// routesEvery is how often a service asks which routes it serves.
	routesEvery = 5 * time.Second
)

// RunEffect runs an effect service over its consumers of the topology table, in all open runs,
// until the context ends; then it stops pulling and lets the handlers in work finish.
func RunEffect(ctx context.Context, env Env, e Effect) error {
	if e.Slots < 1 { // it would do nothing, and say nothing of it
		return fmt.Errorf("%s: %d slots: at least 1 is needed", e.Name, e.Slots)
	}
	metrics, err := newMetrics(env.Metrics)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	router, err := newRouter(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	defer router.close()
	s := &effectService{
		env: env, effect: e, metrics: metrics, slots: slots.New(e.Slots), router: router, runs: map[string]*servedRun{},
		policies: map[string]int{}, turn: make(chan struct{}, 1),
	}
	defer s.serving.Wait()
	if e.Stage != "" {
		s.serving.Go(func() { s.stateWaits(ctx) })
	}
	for _, c := range topology.ConsumersOf(e.Name) {
		if !c.PerRun() && !c.Shared() {
			s.serve(ctx, &s.serving, c.For("", ""), "")
		}
	}
	if e.Routes != nil {
		s.serving.Go(func() { s.refreshRoutes(ctx) })
	}
	return watchRuns(ctx, env, func(r run) {
		if r.closed {
			s.leave(r.name)
		} else {
			s.takeUp(ctx, r.name, r.cfg)
		}
	}, func() {
		for _, c := range topology.ConsumersOf(e.Name) {
			if c.Shared() {
				s.serving.Go(func() { s.serveQueues(ctx, c) })
			}
		}
	})
}

// effectService is a running effect service.
type effectService struct {
	env     Env
	effect  Effect
	metrics *metrics
	slots   *slots.Slots
	router  *router
	serving sync.WaitGroup
	turn    chan struct{} // of the one round that is made at a time
	inWork  inWork

	mu       sync.Mutex
	runs     map[string]*servedRun // open ones
	policies map[string]int        // how many of them have a policy
}

// servedRun is a run whose consumers are served.
type servedRun struct {
	ctx    context.Context
	stop   context.CancelFunc
	policy string
	routes map[string]context.CancelFunc

	serving sync.WaitGroup
}

// takeUp begins to serve a run's consumers.
func (s *effectService) takeUp(ctx context.Context, runName string, cfg runfile.RunConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[runName] != nil || s.effect.Serves != nil && !s.effect.Serves(cfg) {
		return
	}
	r := &servedRun{policy: cfg.Policy, routes: map[string]context.CancelFunc{}}
	r.ctx, r.stop = context.WithCancel(ctx)
	s.runs[runName] = r
	s.policies[cfg.Policy]++
	s.env.Logger.Info("run serving started", "service", s.effect.Name, "run", runName)
	for _, c := range topology.ConsumersOf(s.effect.Name) {
		if c.PerRun() && !c.Type.Routed() {
			s.serve(r.ctx, &r.serving, c.For(runName, ""), "")
		}
	}
	if s.effect.Routes != nil {
		s.setRoutes(r, runName, s.effect.Routes(ctx, runName))
	}
	if s.effect.Round != nil {
		r.serving.Go(func() { s.rounds(r.ctx, runName, cfg) })
	}
	s.serving.Go(func() { s.end(r, runName) })
}

// end waits until nothing of a run is in work any more, and lets go of what is remembered of it.
func (s *effectService) end(r *servedRun, runName string) {
	<-r.ctx.Done()
	s.mu.Lock() // behind it no route is added
	if s.runs[runName] == r {
		delete(s.runs, runName)
	}
	s.mu.Unlock()
	r.serving.Wait()
	s.env.Log.Streams.Release(runName)
}

// leave stops serving a run that was closed.
func (s *effectService) leave(runName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runName]; r != nil {
		s.env.Logger.Info("run serving ended", "service", s.effect.Name, "run", runName)
		r.stop()
		delete(s.runs, runName)
		if s.policies[r.policy]--; s.policies[r.policy] == 0 {
			delete(s.policies, r.policy)
		}
	}
}

// refreshRoutes keeps asking which routes are to be served.
func (s *effectService) refreshRoutes(ctx context.Context) {
	for retry.Sleep(ctx, routesEvery) {
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
		for _, c := range topology.ConsumersOf(s.effect.Name) {
			if c.PerRun() && c.Type.Routed() {
				s.serve(ctx, &r.serving, c.For(runName, route), route)
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
