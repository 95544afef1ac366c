package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// Agent is the way of one rollout's agent to its model: an http.Handler for that rollout alone,
// without a key. Whoever can reach it is inside of the rollout's sandbox. It must be the only one
// that records the rollout's turns.
type Agent struct {
	gateway *Gateway
	run, id string
	mux     *http.ServeMux
	end     chan struct{} // closed when the agent must end

	mu       sync.Mutex
	ended    events.AgentEnded // why it must end
	failed   error             // what the machine failed last, nil where a turn came since
	miscount error             // what it failed at a count, nil where a turn or a good count came since
	turns    int               // that were recorded
	sampled  time.Duration     // while they were
	waiting  int               // requests that are under way
	since    time.Time         // from when on
	waited   time.Duration     // before that
	counted  time.Duration     // of which counts may have taken so much
	overflow int               // requests in a row for which there is no context

	digests   digests
	policy    string    // as which the model is known; of recorded turns
	restarts  int       // of the agent, with this one
	recording recording // of the agents before this one
}

// mostOverflows is how often an agent may ask with a conversation for which the rollout has no
// tokens left: those that know how to make it shorter do so at once.
const mostOverflows = 10

// Agent makes the way of a rollout's agent.
func (g *Gateway) Agent(run, id string) *Agent {
	a := &Agent{gateway: g, run: run, id: id, mux: http.NewServeMux(), end: make(chan struct{}), digests: newDigests()}
	t := newTenant(Tenant{Name: "agent"})
	t.agent = a
	enter := func(r *http.Request) (*tenant, error) { //nolint:unparam // as tenants enter, of whom some are refused
		r.SetPathValue("id", name(run, id))
		return t, nil
	}
	talk := func(path string, d dialects.Dialect, call func(w *stream, r *http.Request, t *tenant) error) {
		a.mux.HandleFunc("POST "+path, g.handler("agent POST "+path, d, enter, call))
	}
	for path, d := range map[string]dialects.Dialect{
		"/v1/chat/completions": dialects.Chat{}, "/v1/responses": dialects.Responses{},
		"/v1/messages": dialects.Messages{},
	} {
		talk(path, d, func(w *stream, r *http.Request, t *tenant) error { return g.call(w, r, t, d) })
	}
	talk("/v1/messages/count_tokens", dialects.MessagesCount{}, g.countMessages)
	talk("/v1beta/models/{method...}", dialects.Gemini{}, g.gemini)
	talk("/v1/models/{method...}", dialects.Gemini{}, g.gemini)
	a.mux.HandleFunc("GET /v1/models", g.handler("agent GET /v1/models", dialects.Chat{}, enter, g.models))
	a.mux.HandleFunc("/", g.handler("agent /", dialects.Chat{}, enter,
		func(_ *stream, r *http.Request, _ *tenant) error {
			err := problem(http.StatusNotFound, "not_found",
				"no %s %.200s here: an agent has its model, at /v1/chat/completions, /v1/responses, /v1/messages, /v1beta/models and /v1/models",
				r.Method, r.URL.Path)
			a.heard(r.Context(), err)
			return err
		}))
	return a
}

// ServeHTTP implements http.Handler.
func (a *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// End is closed when the agent must end: it has used up what the run allows, or somebody else has
// its rollout.
func (a *Agent) End() <-chan struct{} { return a.end }

// Ended is what is known of the end of an agent that ended with a code: how often it has asked,
// why it must end, and what the machine failed behind the last turn. A count that failed, or
// another model than the policy, says something of the end only where that is a bad one of the
// agent's own, or there is no turn.
func (a *Agent) Ended(code int) (events.AgentEnded, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := a.ended
	ended.Recalled, ended.Left = a.recording.recalled, a.recording.left()
	ended.WaitedMS = float64(a.waitedUntil(time.Now())) / float64(time.Millisecond)
	if a.failed == nil && (code != 0 && ended.StopReason == "" || a.turns == len(ended.Left)) {
		return ended, a.miscount
	}
	return ended, a.failed
}

// Used is how much of its time the agent has used that began at a moment: all but what it has
// waited for its model, and of that what the model sampled. Answers that it waited for beside each
// other cost it no more than the wait. Where it was started anew, turns that it had from the
// recording cost it what they cost when they were sampled, and what the agent before it did
// costs it nothing.
func (a *Agent) Used(began time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	waited := a.waitedUntil(now)
	return now.Sub(began) - waited + min(a.sampled, waited) + a.recording.sampled
}

// waitedUntil is how long the agent has waited; the caller holds mu.
func (a *Agent) waitedUntil(now time.Time) time.Duration {
	if a.waiting > 0 {
		return a.waited + now.Sub(a.since)
	}
	return a.waited
}

// waits notes that a request waits, until done is called. Of no agent nothing is noted.
func (a *Agent) waits() (done func()) {
	if a == nil {
		return func() {}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == 0 {
		a.since = time.Now()
	}
	a.waiting++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.waiting--; a.waiting == 0 {
			a.waited += time.Since(a.since)
		}
	})
}

// counts notes that a request to count waits, until done is called. All of them
// together stop the agent's clock for countTime at most for each recorded turn, and
// once more: it could stop it for ever.
func (a *Agent) counts() (done func()) {
	if a == nil {
		return func() {}
	}
	a.mu.Lock()
	most := max(0, min(countTime, countTime*time.Duration(a.turns+1)-a.counted))
	a.counted += most
	a.mu.Unlock()
	began, waited := time.Now(), a.waits()
	timer := time.AfterFunc(most, waited)
	return func() {
		timer.Stop()
		waited()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.counted -= most - min(most, time.Since(began))
	}
}

// Knows reports whether a rollout has no turn and no start but those that the agent knows: its own,
// and those of the agents before it.
func (a *Agent) Knows(r *events.Rollout) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.knows(r)
}

// knows is Knows; the caller holds mu.
func (a *Agent) knows(r *events.Rollout) bool {
	return len(r.Turns) == a.turns && r.Restarts == a.restarts
}

// mayRecord refuses a turn where another agent has made some, or was started: the runner of this
// one was taken for dead. Of no agent anything goes.
func (a *Agent) mayRecord(ro *rollout) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.knows(&ro.Rollout) {
		a.fail(events.ErrElsewhere)
		a.stop("")
		return problem(http.StatusConflict, "rollout_over", "rollout %s goes on elsewhere", ro.ID)
	}
	if taken := len(ro.Turns) - len(a.recording.turns) + a.recording.recalled; taken >= ro.cfg.Limits.Turns {
		return problem(http.StatusBadRequest, events.StopMaxTurns,
			"rollout %s has had %d turns, as many as run %s allows", ro.ID, taken, ro.Run)
	}
	return nil
}

// recorded notes a turn that is on the log.
func (a *Agent) recorded(turn events.TurnSampled) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turns++
	a.sampled += turn.SamplingTime()
	a.overflow = 0
	a.fail(nil)
}

// fail notes what the machine failed last, nil where it answers. Who has lost the rollout to
// another agent does not get it back. The caller holds mu.
func (a *Agent) fail(err error) {
	a.miscount = nil
	if !errors.Is(a.failed, events.ErrElsewhere) {
		a.failed = err
	}
}

// heard notes what became of a request of the model, of no agent nothing. One whose client left
// before the answer became nothing.
func (a *Agent) heard(ctx context.Context, err error) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended.Requests++
	var other otherFailed
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case errors.As(err, &other): // of the rollout's own model it says nothing
		a.miscount = err
		return
	case ofMachine(err):
		a.fail(err)
		return
	}
	var p *refusal
	errors.As(err, &p)
	a.fail(nil) // the machine answers
	a.ended.Refused++
	a.ended.LastRefusal = clipped(p.message)
	switch p.code {
	case events.StopMaxTurns:
		a.stop(events.StopMaxTurns)
	case "rollout_over":
		a.stop("")
	case "context_length_exceeded":
		if a.overflow++; a.overflow >= mostOverflows {
			a.stop(events.StopMaxTokens)
		}
	}
}

// otherFailed is what another model than the policy failed, or refused: whatever it is, an agent
// that ends badly for it has not done so by the policy's doing.
type otherFailed struct{ error }

func (e otherFailed) Unwrap() error { return e.error }

// heardCount notes what became of a request to count, which is none of the model.
func (a *Agent) heardCount(ctx context.Context, err error) {
	if a == nil || ctx.Err() != nil || err != nil && !ofMachine(err) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.miscount = err
}

// ofMachine reports whether an error is a failure of the machine, and not of who asked.
func ofMachine(err error) bool {
	var p *refusal
	return !errors.As(err, &p) || p.status >= http.StatusInternalServerError ||
		p.status == http.StatusTooManyRequests && p.code != ownCounts
}

// clipped keeps a refusal that quotes a server at a bounded size.
func clipped(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return readable([]byte(text[:most])) + "…"
}

// stop lets the agent end; the caller holds mu.
func (a *Agent) stop(reason string) {
	select {
	case <-a.end:
	default:
		a.ended.StopReason = reason
		close(a.end)
	}
}

// Finished is the end of the rollout's episode, whose trajectory it stores. Its turns are in r.
func (a *Agent) Finished(ctx context.Context, r *events.Rollout, stopReason string) (events.RolloutFinished, error) {
	cfg, err := a.gateway.log.Config(ctx, r.Run)
	if err != nil {
		return events.RolloutFinished{}, err
	}
	ro := &rollout{Rollout: *r, cfg: cfg}
	if stopReason == "" {
		stopReason = ro.stopped()
	}
	finished, err := a.gateway.episode(ctx, ro, stopReason)
	finished.Turns, finished.Workspace = len(r.Taken()), r.Workspace()
	return finished, err
}
