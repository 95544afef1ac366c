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
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// ask is what a client asks for, and how it is sampled.
type ask struct {
	*dialects.Request
	// body is the request as it came, and requested what it says about sampling, with the tools that were withheld.
	body      []byte
	requested map[string]any
	// sampling is how the call samples.
	sampling runfile.Sampling
}

// answer is a turn that is on the log.
type answer struct {
	*dialects.Answer
	// sampled is whose memory it is.
	sampled *fleet.Answer
}

// withheldHeader names the types of the tools that the model was not offered.
const withheldHeader = "Rondo-Withheld-Tools"

// call answers one call of a harness. The inference server is never asked for a stream, as servers do not give exact tokens in one;
// a client that wants a stream gets the whole answer in pieces, when the turn is on the log: nobody has seen what is not recorded.
// It has a slot, and the rollout's turns in memory, only when its request is there as a whole: a client that takes its time holds neither.
func (g *Gateway) call(w *stream, r *http.Request, t *tenant, d dialects.Dialect) error {
	if err := g.exists(r, t); err != nil {
		return err
	}
	if err := t.may(time.Now()); err != nil {
		return err
	}
	share := g.memory.Share(t.Name)
	defer share.End()
	body, err := body(w, r, share, maxBody)
	if err != nil {
		return err
	}
	if err := t.begin(time.Now()); err != nil {
		return err
	}
	defer t.end()
	if err := g.gate.enter(r.Context(), t.Priority); err != nil {
		return err
	}
	leave := sync.OnceFunc(g.gate.leave)
	defer leave()
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	if err := ro.open(); err != nil {
		return err
	}
	a, err := decode(r.Context(), share, d, body)
	if err != nil {
		return err
	}
	if err := a.restore(ro.Turns); err != nil {
		return err
	}
	if err := ro.within(a); err != nil {
		return err
	}
	if len(a.Withheld) > 0 {
		w.Header().Set(withheldHeader, strings.Join(a.Withheld, ", "))
	}
	n, err := g.sample(w, r, t, ro, a)
	if err != nil {
		return err
	}
	defer n.sampled.Done()
	leave() // others need no client that reads
	w.until = time.Now().Add(takeTime)
	if !a.Stream {
		return reply(w, http.StatusOK, d.Whole(a.Request, n.Answer))
	}
	for p := range d.Pieces(a.Request, n.Answer) {
		if err := w.event(p); err != nil {
			return nil // it is gone or does not read; the turn is on the log
		}
	}
	return nil
}

// within refuses a call when the rollout has used up what the run allows.
func (r *rollout) within(a *ask) error {
	if len(r.Turns) >= r.cfg.Limits.Turns {
		return problem(http.StatusBadRequest, events.StopMaxTurns, "rollout %s has had %d turns, as many as run %s allows: finish it", r.ID, len(r.Turns), r.Run)
	}
	if !r.Started.Deadline.IsZero() && !time.Now().Before(r.Started.Deadline) {
		return problem(http.StatusConflict, "rollout_over", "the time of rollout %s was up at %s", r.ID, r.Started.Deadline.Format(time.RFC3339))
	}
	after := continued(newTree(r.Turns).ends(a.Conversation))
	if after < 0 {
		return nil
	}
	if used := r.Turns[after].Used(); used >= r.cfg.Limits.Tokens {
		return problem(http.StatusBadRequest, "context_length_exceeded", "the conversation has %d tokens; the maximum context length of run %s is %d", used, r.Run, r.cfg.Limits.Tokens)
	}
	return nil
}

// turnTime bounds a call: each of the run's servers may take as long as the run allows a turn.
func (r *rollout) turnTime() time.Duration {
	return entrance + time.Duration(max(1, len(r.cfg.Servers())))*time.Duration(r.cfg.Limits.TurnTimeouts().Whole)
}

// patience is how long a client that wants a stream waits for the first sign: until then a failure is still an error of HTTP.
const patience = 10 * time.Second

// sample asks the inference server and puts the turn on the log.
func (g *Gateway) sample(w *stream, r *http.Request, t *tenant, ro *rollout, a *ask) (*answer, error) {
	ctx, cancel := context.WithTimeout(r.Context(), ro.turnTime())
	defer cancel()
	if !ro.Started.Deadline.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, ro.Started.Deadline)
		defer stop()
	}
	type outcome struct {
		n   *answer
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := g.ask(ctx, t, ro, a)
		done <- outcome{n, err}
	}()
	signs := time.NewTicker(patience)
	defer signs.Stop()
	for {
		select {
		case o := <-done:
			return o.n, o.err
		case <-signs.C:
			if a.Stream && w.wait() != nil {
				cancel() // the client is gone
			}
		}
	}
}

// entrance is how long a call waits for servers that want to be left alone; what a server itself has refused is told at once.
const entrance = 10 * time.Second

func (g *Gateway) ask(ctx context.Context, t *tenant, ro *rollout, a *ask) (*answer, error) {
	if len(ro.cfg.Servers()) == 0 {
		return nil, problem(http.StatusConflict, "no_endpoint", "run %s has no endpoint: open one whose run file names the inference server", ro.Run)
	}
	sampling, err := a.chooseSampling(ro.cfg.Sampling)
	if err != nil {
		return nil, err
	}
	seed, done, err := g.seed(ro, a)
	if err != nil {
		return nil, err
	}
	defer done()
	sampled, err := g.servers.Complete(ctx, fleet.Call{
		Run: ro.Run, Config: &ro.cfg, Affinity: ro.ID, Priority: t.Priority, Turn: len(ro.Turns), Version: ro.cfg.AssumedVersion(),
		Sampling: a.sampling,
		Request:  func(model string, _ int) any { return withColumns(request(a, sampling, model, seed), ro, a) },
		TextOnly: true, Until: time.Now().Add(entrance),
	})
	if err != nil {
		return nil, failed(ctx, err)
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

// request is what the inference server is asked. What the run sets is the run's to say, whatever the client wishes: the model, the seed, and how
// tokens are sampled. What the run leaves out is as the client wishes.
func request(a *ask, sampling map[string]json.RawMessage, model string, seed int64) map[string]any {
	body := map[string]any{}
	for _, fields := range []map[string]json.RawMessage{a.Forward, sampling} {
		for field, value := range fields {
			body[field] = value
		}
	}
	for field, value := range a.sampling.ExtraBody {
		body[field] = value
	}
	body["model"] = model
	body["seed"] = seed
	if a.sampling.Seed == runfile.SeedNone {
		delete(body, "seed")
	}
	body["top_logprobs"] = 0 // newer vLLM gives no log-probabilities without it
	for _, field := range []string{"logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info", "return_weight_versions"} {
		body[field] = true
	}
	return body
}

// failed turns a failure of the inference server into an answer: OpenAI's clients come again by themselves after 429 and 5xx.
func failed(ctx context.Context, err error) error {
	var f *inference.Failure
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem(http.StatusGatewayTimeout, "timeout", "no inference server answered in the time that the rollout, and limits.turn_timeout.whole of the run, left it")
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
	return reply(w, http.StatusOK, map[string]any{"object": "list", "data": []model{{ro.cfg.Policy, "model", 0, "rondo"}}})
}
