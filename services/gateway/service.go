// Package gateway lets a harness that knows nothing of Rondo make rollouts: it is an endpoint
// for each rollout, as OpenAI's and Anthropic's clients know it, which asks the run's
// inference server and submits every answer to the intake as a turn of that rollout, before
// the harness sees its end.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// Options of the gateway.
type Options struct {
	// Slots is how many calls are at the inference servers at once, or wait for theirs.
	Slots int
	// Waiting is how many more may wait for a slot; what is beyond is told to come again,
	// the lowest priority first.
	Waiting int
	// Tenants may use the gateway, each with a key. Without any, everybody may.
	Tenants []Tenant
}

// DefaultOptions suit a local inference server.
func DefaultOptions() Options {
	return Options{Slots: 64, Waiting: 1024}
}

// Gateway is an http.Handler. It keeps nothing of a rollout: the turns are on the log, so any
// number of gateways may serve one rollout, and one that died is missed by nobody.
type Gateway struct {
	log     eventlog.Reader
	intake  eventlog.Submitter
	nc      *nats.Conn
	publish func(context.Context, []events.Event) (stored []events.Event, adopted bool, err error)
	logger  *slog.Logger
	servers *fleet.Fleet
	twins   twins
	tenants []*tenant
	gate    *gate
	others  *gate // for models that are not the policy of their run
	memory  *memory.Budget
	locks   locks
	// counts has a place for each prompt whose tokens are counted.
	counts  chan struct{}
	metrics *metrics
	mux     *http.ServeMux
}

// New makes a gateway to the servers of a fleet.
func New(env pipeline.Env, servers *fleet.Fleet, opts Options) (*Gateway, error) {
	tenants, err := newTenants(opts.Tenants)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	if opts.Slots < 1 || opts.Waiting < 0 {
		return nil, fmt.Errorf("gateway: %d slots, %d waiting: slots must be positive", opts.Slots, opts.Waiting)
	}
	g := &Gateway{
		log: env.Log.Reader, intake: env.Log.Submitter, nc: env.Log.Conn(), publish: env.Publish, logger: env.Logger,
		tenants: tenants, metrics: m,
		gate: newGate(opts.Slots, opts.Waiting, m), others: newGate(opts.Slots, opts.Waiting, m),
		servers: servers, memory: newMemory(), mux: http.NewServeMux(), counts: make(chan struct{}, mostCounts),
	}
	g.mux.HandleFunc("GET /healthz", g.health)
	g.mux.HandleFunc("GET /openapi.json", describe)
	for _, e := range g.endpoints() {
		g.handle(e.pattern, e.dialect, e.serve)
	}
	g.handle("/", dialects.Chat{}, func(_ *stream, r *http.Request, _ *tenant) error {
		return problem(http.StatusNotFound, "not_found",
			"no %s %.200s here: GET /openapi.json lists what there is: POST /rollouts, GET /rollouts/ID and turns, "+
				"POST /rollouts/ID/finish, exec, read and write, and below /rollouts/ID/v1 chat/completions, messages, messages/count_tokens, responses, models and models/NAME:generateContent",
			r.Method, r.URL.Path)
	})
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// Bounds of what clients and their connections may take.
const (
	maxBody     = 32 << 20 // a conversation of a million tokens fits
	bodyTime    = time.Minute
	idleTime    = 15 * time.Second // between two pieces of a body
	writeTime   = 30 * time.Second // for one piece of an answer
	takeTime    = 2 * time.Minute  // for all of them
	maxSettings = 64 << 10         // of a request that is no conversation
)

// handle serves a pattern for those who may use the gateway; what goes wrong is told in
// the dialect of the caller.
func (g *Gateway) handle(pattern string, d dialects.Dialect, serve func(w *stream, r *http.Request, t *tenant) error) {
	g.mux.HandleFunc(pattern, g.handler(pattern, d, func(r *http.Request) (*tenant, error) {
		t, err := g.authenticate(r)
		if err == nil {
			err = g.trusts(r)
		}
		return t, err
	}, serve))
}

// handler serves a pattern for whom enter lets in.
func (g *Gateway) handler(pattern string, d dialects.Dialect, enter func(*http.Request) (*tenant, error),
	serve func(w *stream, r *http.Request, t *tenant) error) http.HandlerFunc {
	return func(plain http.ResponseWriter, r *http.Request) {
		began, w := time.Now(), newStream(plain)
		if r.ContentLength != 0 {
			w.control.SetReadDeadline(began.Add(bodyTime)) // also where nobody reads it: the server reads what is left
		}
		t, err := enter(r)
		if err == nil {
			err = serve(w, r, t)
		}
		g.metrics.observe(pattern, err, time.Since(began))
		var p *refusal
		switch {
		case err == nil:
			return
		case errors.As(err, &p): // also who sent too slowly, whose context is over
		case r.Context().Err() != nil:
			return // nobody listens any more
		default:
			g.logger.Error("request failed", "request", pattern, "rollout", r.PathValue("id"), "error", err)
			p = &refusal{status: http.StatusServiceUnavailable, code: "unavailable",
				message: "the gateway cannot reach the log or the store: try again", after: time.Second}
		}
		tell(w, d, p)
	}
}

// health says whether the connection to the log stands.
func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	if !g.nc.IsConnected() {
		http.Error(w, "not connected to NATS", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
