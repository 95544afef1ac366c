package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/inference/memory"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// ask is what a client asks for, and how it is sampled.
type ask struct {
	*dialects.Request
	// body is the request as it came, or as chat completions spell it. settings are its fields
	// about sampling, and requested is what these say, with the tools that were withheld.
	body      []byte
	settings  map[string]json.RawMessage
	requested map[string]any
	// sampling is how the call samples, and fields what its request says of that.
	sampling runfile.Sampling
	fields   map[string]json.RawMessage
	// base is the root of its prompt. after is the turn that it goes on with, -1 for none, whose
	// conversation is the first held messages of its own; ends are those of all turns, -1 for none.
	base        string
	after, held int
	ends        []int
	// cfg is by which configuration it is asked for: the run's, or that of the server which the
	// rule of its conversation names.
	cfg    *runfile.RunConfig
	server *runfile.Endpoint // that one, nil for the run's own
	// stops are the texts that end its answer, where the run does not say.
	stops []string
	// defaults are those of its tools.
	defaults defaults
	// routed is of how many tokens the server was not asked the experts, as that
	// turn's segment has them.
	routed int
	// digest is that of an agent's request.
	digest string
}

// answer is a turn that is on the log.
type answer struct {
	*dialects.Answer
	// sampled is whose memory it is.
	sampled *fleet.Answer
}

// withheldHeader names the types of the tools that the model was not offered.
const withheldHeader = "Rondo-Withheld-Tools"

// call answers one call of a harness. A client that wants a stream reads what the model says while
// the server sends it, where that streams, too. No answer is complete before its turn is on the
// log, and so is each call of a tool before a client sees it: nobody acts on what is not recorded.
// It has a slot, and the rollout's turns in memory, only when its request is there as a whole: a
// client that takes its time holds neither.
func (g *Gateway) call(w *stream, r *http.Request, t *tenant, d dialects.Dialect) (err error) {
	defer func() { t.agent.heard(r.Context(), err) }()
	share, body, end, err := g.receive(w, r, t, false)
	if err != nil {
		return err
	}
	defer end()
	var a *ask
	if t.agent.recalls() { // what is recorded is there at once, and takes no slot
		if a, err = decode(r.Context(), share, d, body); err != nil {
			return err
		}
		if n := t.agent.recall(a); n != nil {
			a.tellWithheld(w)
			return give(w, d, a, n)
		}
	}
	err = g.turn(w, r, t, d, share, body, a)
	if errors.Is(err, errMoved) && w.answer == nil { // at most once: the main one stays that
		err = g.turn(w, r, t, d, share, body, nil)
	}
	return err
}

// turn answers a request with a turn, which is read unless it was already.
func (g *Gateway) turn(w *stream, r *http.Request, t *tenant, d dialects.Dialect, share *memory.Share,
	body []byte, a *ask) error {
	waited := t.agent.waits()
	defer waited()
	if err := g.gate.enter(r.Context(), t.Priority); err != nil {
		return err
	}
	leave := sync.OnceFunc(g.gate.leave)
	defer func() { leave() }()
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	if err := ro.open(); err != nil {
		return err
	}
	if a == nil {
		if a, err = decode(r.Context(), share, d, body); err != nil {
			return err
		}
	}
	t.agent.note(ro, a) // as it came
	if err := ro.maySee(a); err != nil {
		return err
	}
	if err := a.chooseSampling(ro.cfg.Sampling); err != nil {
		return err
	}
	if err := a.bind(ro.Turns); err != nil {
		return err
	}
	if err := a.choose(ro, t.agent.behind()); err != nil {
		return err
	}
	if err := ro.within(a); err != nil {
		return err
	}
	if err := g.keep(r.Context(), a); err != nil {
		return err
	}
	if a.server != nil { // who waits for another model keeps nobody from the policy
		leave()
		if err := g.others.enter(r.Context(), t.Priority); err != nil {
			return otherFailed{err}
		}
		leave = sync.OnceFunc(g.others.leave)
	}
	a.tellWithheld(w)
	n, err := g.sample(w, r, t, ro, a, d, func() {
		leave() // others need no client that reads
		waited()
	})
	if err != nil {
		return err
	}
	defer n.sampled.Done()
	return give(w, d, a, n.Answer)
}

// receive reads the request of a call that a tenant may make, or of one that only
// counts, until end is called.
func (g *Gateway) receive(w *stream, r *http.Request, t *tenant,
	counts bool) (share *memory.Share, text []byte, end func(), err error) {
	if t.agent == nil { // an agent's own rollout is there
		if err := g.exists(r, t); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := t.may(time.Now(), counts); err != nil {
		return nil, nil, nil, err
	}
	share = g.memory.Share(t.Name)
	if text, err = body(w, r, share, maxBody); err == nil {
		err = t.begin(time.Now(), counts)
	}
	if err != nil {
		share.End()
		return nil, nil, nil, err
	}
	return share, text, func() {
		if !counts {
			t.end()
		}
		share.End()
	}, nil
}

func (a *ask) tellWithheld(w *stream) {
	if len(a.Withheld) > 0 {
		w.Header().Set(withheldHeader, strings.Join(a.Withheld, ", "))
	}
}

// give answers a call with a turn that is on the log.
func give(w *stream, d dialects.Dialect, a *ask, n *dialects.Answer) error {
	if w.until.IsZero() {
		w.until = time.Now().Add(takeTime)
	}
	if !a.Stream {
		return reply(w, http.StatusOK, d.Whole(a.Request, n))
	}
	if err := w.tells(d, a, n).End(n); err != nil { // to who is gone or does not read, in vain; the turn is on the log
		return problem(http.StatusBadGateway, events.ClassBadResponse, "turn %s: %v", n.ID, err)
	}
	return nil
}

// within refuses a call when the rollout has used up what the run allows.
func (r *rollout) within(a *ask) error {
	if taken := len(r.Turns) - r.left; taken >= r.cfg.Limits.Turns {
		return problem(http.StatusBadRequest, events.StopMaxTurns,
			"rollout %s has had %d turns, as many as run %s allows: finish it", r.ID, taken, r.Run)
	}
	if a.after < 0 {
		return nil
	}
	if used := r.Turns[a.after].Used(); used >= r.cfg.Limits.Tokens {
		return problem(http.StatusBadRequest, "context_length_exceeded",
			"the conversation has %d tokens; the maximum context length of run %s is %d", used,
			r.Run, r.cfg.Limits.Tokens)
	}
	return nil
}

// turnTime bounds a call: each of the run's servers may take as long as the run allows a turn.
func (r *rollout) turnTime(t *tenant) time.Duration {
	return r.entrance(t) + time.Duration(max(1, len(r.cfg.Servers())))*time.Duration(r.cfg.Limits.TurnTimeouts().Whole)
}

// patience is how long a client that wants a stream waits for the first sign: until then a failure
// is still an error of HTTP.
const patience = 10 * time.Second

// sample asks the inference server and puts the turn on the log, whether or not the client reads
// meanwhile what is told of it. Then it calls sampled.
func (g *Gateway) sample(w *stream, r *http.Request, t *tenant, ro *rollout, a *ask, d dialects.Dialect,
	sampled func()) (*answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), ro.turnTime(t))
	defer cancel()
	type outcome struct {
		n   *answer
		err error
	}
	done := make(chan outcome, 1)
	live := newLive(t, a)
	go func() {
		n, err := g.ask(ctx, t, ro, a, live)
		live.end()
		sampled()
		done <- outcome{n, err}
	}()
	signs := time.NewTicker(patience)
	defer signs.Stop()
	var over error
	for {
		select {
		case o := <-done:
			if o.err != nil && over != nil {
				return nil, over
			}
			if o.err == nil {
				w.tell(d, a, live)
			}
			return o.n, o.err
		case <-live.came:
			if w.tell(d, a, live) != nil {
				cancel() // the client is gone
			}
		case <-signs.C:
			over = g.over(ctx, ro)
			if over != nil || a.Stream && w.wait() != nil {
				cancel() // the rollout has ended, or the client is gone
			}
		}
	}
}

// over is the refusal of a rollout that has ended meanwhile. The query sampler ends it behind its
// deadline, which outages move.
func (g *Gateway) over(ctx context.Context, ro *rollout) error {
	if time.Now().Before(ro.Started.Deadline) {
		return nil
	}
	now, err := g.newest(ctx, ro)
	if err != nil {
		return nil // the log may be away
	}
	return now.open()
}

// entrance is how long a call waits for servers that want to be left alone; what a server itself
// has refused is told at once.
const entrance = 10 * time.Second

// entrance is how long a call of a tenant waits for servers. An agent cannot be told to come again
// by who would know when: to wait costs it none of its time.
func (r *rollout) entrance(t *tenant) time.Duration {
	if t.agent != nil {
		return time.Duration(r.cfg.Limits.Timeout)
	}
	return entrance
}

func (g *Gateway) ask(ctx context.Context, t *tenant, ro *rollout, a *ask, live *live) (*answer, error) {
	if len(a.cfg.Servers()) == 0 {
		return nil, problem(http.StatusConflict, "no_endpoint",
			"run %s has no endpoint: open one whose run file names the inference server", ro.Run)
	}
	seed, done, err := g.seed(ro, a)
	if err != nil {
		return nil, err
	}
	defer done()
	call := fleet.Call{
		Run: ro.Run, Config: a.cfg, Affinity: ro.ID, Priority: t.Priority, Turn: len(ro.Turns),
		Version:  a.cfg.AssumedVersion(),
		Sampling: a.sampling, Fit: true, Words: a.server != nil,
		Request:  func(model string, most int) any { return withColumns(request(a, model, seed, most), ro, a) },
		TextOnly: true, Until: time.Now().Add(ro.entrance(t)), Patient: t.agent != nil,
	}
	// no engine takes images beside tokens that it gave itself
	if a.cfg.EndpointAPI == runfile.APITokens && !a.shows() {
		if call.Tokens, err = a.byTokens(ro, seed); err != nil {
			return nil, problem(http.StatusBadRequest, "invalid_request_error",
				"endpoint_api of run %s is tokens: %v", ro.Run, err)
		}
	}
	if live.follows {
		live.begin(ro, a, seed)
		call.Follow = live.follow
	}
	sampled, err := g.servers.Complete(ctx, call)
	if err != nil {
		if err = failed(ctx, err); a.server != nil {
			err = otherFailed{err}
		}
		return nil, err
	}
	n, err := g.record(ctx, t, ro, a, sampled)
	if err != nil {
		sampled.Done()
		return nil, err
	}
	n.sampled = sampled
	t.used(n.Turn.Used(), time.Now())
	g.metrics.tokens.WithLabelValues("prompt").Add(float64(n.Turn.PromptTokens))
	g.metrics.tokens.WithLabelValues("sampled").Add(float64(n.Turn.CompletionTokens))
	return n, nil
}

// request is what the inference server is asked. What the run sets is the run's to say, whatever
// the client wishes: the model, the seed, and how tokens are sampled. What the run leaves out is as
// the client wishes. most is how many tokens the answer may have, 0 as many as the server gives.
func request(a *ask, model string, seed int64, most int) map[string]any {
	body := map[string]any{}
	for _, fields := range []map[string]json.RawMessage{a.Forward, a.fields} {
		for field, value := range fields {
			body[field] = value
		}
	}
	for field, value := range a.sampling.ExtraBody {
		body[field] = value
	}
	body["model"] = model
	if body["max_tokens"] = most; most == 0 {
		delete(body, "max_tokens")
	}
	body["seed"] = seed
	if a.sampling.Seed == runfile.SeedNone {
		delete(body, "seed")
	}
	if a.server != nil { // nobody trains on what it says
		return body
	}
	body["top_logprobs"] = 0 // newer vLLM gives no log-probabilities without it
	for _, field := range []string{"logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info",
		"return_weight_versions"} {
		body[field] = true
	}
	return body
}

// failed turns a failure of the inference server into an answer: OpenAI's clients come again by
// themselves after 429 and 5xx.
func failed(ctx context.Context, err error) error {
	var f *inference.Failure
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem(http.StatusGatewayTimeout, "timeout",
			"no inference server answered within limits.turn_timeout.whole of the run")
	case !errors.As(err, &f):
		return err
	case f.Timeout():
		return problem(http.StatusGatewayTimeout, "timeout", "%v", f)
	case f.Overflow != nil:
		return problem(http.StatusBadRequest, "context_length_exceeded", "%v", f)
	case f.Refusal == inference.RefusalFiltered:
		return problem(http.StatusBadRequest, dialects.ContentFilter, "%v", f)
	case f.Permanent:
		return problem(http.StatusBadRequest, "invalid_request_error", "%v", f)
	case f.Status == http.StatusTooManyRequests:
		return later(max(f.After, time.Second), "rate_limit_exceeded", "%v", f)
	}
	return &refusal{status: http.StatusBadGateway, code: f.Class, message: f.Error(), after: f.After}
}

// models lists the one model that a rollout has.
func (g *Gateway) models(w *stream, r *http.Request, t *tenant) error {
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	return reply(w, http.StatusOK, map[string]any{"object": "list",
		"data": []model{{ro.cfg.Policy, "model", 0, "rondo"}}})
}
