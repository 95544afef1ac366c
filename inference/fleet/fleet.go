// Package fleet asks the inference servers of runs for turns: it chooses among them, spares
// those that are in trouble or have had trouble, waits where they ask for it, and lets another
// one answer where one fails.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
)

// Options of a fleet.
type Options struct {
	// Slots bounds the requests that are under way at a server of which its run says nothing.
	Slots int
	// Waiting bounds the calls that wait for a server; what is beyond is told to come again,
	// the lowest priority first.
	Waiting int
	// Loading is how long a server that refuses connections, and never answered, may take to start:
	// until then it costs no tries.
	Loading time.Duration
	// Builtin is the base URL that a run's endpoint "builtin" stands for.
	Builtin string
	// Keys are sent to the servers as bearer tokens.
	Keys   Keys
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// DefaultOptions suit local inference servers.
func DefaultOptions() Options {
	return Options{Slots: 64, Waiting: 1024, Loading: 5 * time.Minute, Logger: slog.New(slog.DiscardHandler)}
}

// Fleet is what one process knows of inference servers. All its services and runs share it, so that
// a server's limits hold over all of them.
type Fleet struct {
	opts    Options
	http    *http.Client
	metrics *metrics
	rates   *rates

	activations   *activations
	distributions distributions
	contexts      contexts

	mu       sync.Mutex
	replicas map[string]*replica // by base URL
	waiting  []*waiter           // in the order in which they come in
	order    uint64
	timer    *time.Timer // of the next moment at which one of them may come in though no request ends

	peers int  // processes that ask the same servers, with this one
	first bool // this one is the first of them, which looks at the servers' loads for all

	loads map[string]loaded // by base URL
}

// maxHeader bounds the header of an answer, in bytes.
const maxHeader = 64 << 10

// New makes a fleet.
func New(opts Options) (*Fleet, error) {
	if opts.Slots < 1 || opts.Waiting < 1 {
		return nil, fmt.Errorf("inference servers: %d slots, %d waiting: both must be positive", opts.Slots,
			opts.Waiting)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, opts.Slots
	transport.MaxResponseHeaderBytes = maxHeader
	f := &Fleet{opts: opts, peers: 1, first: true, replicas: map[string]*replica{},
		loads: map[string]loaded{}, rates: newRates()}
	f.activations, f.contexts, f.http = newActivations(), newContexts(), &http.Client{
		Transport: transport,
		// A server that sends its clients elsewhere would get them to show the key there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var err error
	f.metrics, err = newMetrics(opts.Metrics, f)
	return f, err
}

// SetPeers tells how many processes ask the same servers, with this one, and whether it is the
// first of them: that one looks at the servers' loads, and counts the slots of all.
func (f *Fleet) SetPeers(n int, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers, f.first = max(1, n), first
}

// Peers gives what SetPeers was told last.
func (f *Fleet) Peers() (n int, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers, f.first
}

// Call is what is to be asked.
type Call struct {
	Run    string
	Config *runfile.RunConfig
	// Affinity names what belongs together, a rollout: it stays with one server, whose cache holds
	// its prompt, as long as that can take it.
	Affinity string
	// Priority of those who wait: the higher one comes first.
	Priority int
	// Request makes the request for a server that knows the policy as model, for an answer of most
	// tokens; 0 leaves them to the server.
	Request func(model string, most int) any
	// Tokens makes the conversation of a turn that is asked for as tokens, in place of Request. The
	// prompt's length is known then, so that Prompt is not needed.
	Tokens func(model string) inference.Conversation
	// Follow is told what the answer says while it comes, from a server that streams; nil asks for
	// the whole answer. When it was told something, no other server is asked.
	Follow func(inference.Delta)
	// Fit asks for no more tokens than the server's context has room for, behind a prompt that has
	// at least Prompt tokens. One that has no room for any is refused with an inference.Overflow.
	Fit    bool
	Prompt int
	// TellContext has the answer say how many tokens the server's context has, for which a server
	// is asked at the first turn already.
	TellContext bool
	// Spare is the room that must be left behind the prompt in a context of so many tokens: less is
	// refused with an inference.Overflow, too. nil takes any.
	Spare func(limit int) int
	// Sampling is how the request samples.
	Sampling runfile.Sampling
	// Words: the request wants no tokens, so that their lack says nothing of the server.
	Words bool
	// Turn is the number of the turn, and Version the policy's where a
	// server does not tell its own.
	Turn    int
	Version int64
	// TextOnly takes a turn whose tokens contradict each other, without them.
	TextOnly bool
	// Until bounds the wait for servers that ask to be left alone, or are away.
	Until time.Time
	// Patient calls ask a server that has just refused them again, until Until.
	Patient bool
	// Answered reports whether the run's servers have answered before this process began. A server
	// that never answered is not waited for, so that a wrong address is told at once.
	Answered func(ctx context.Context) bool
}

// Answer is a turn that was sampled.
type Answer struct {
	Turn events.TurnSampled
	// Prompt has the tokens of the turn's prompt, nil for a turn that is text only.
	Prompt   []int32
	Response *inference.Response
	Started  time.Time
	// Endpoint is the base URL of the server.
	Endpoint string
	// Wrong names the settings for which the log-probabilities are wrong.
	Wrong []string
	// ContextLimit is how many tokens the server's context has, where that left the turn fewer than
	// the run allows: MaxTokens.
	ContextLimit, MaxTokens int
	// Context is how many tokens the server's context has, as far as that is known.
	Context int
	// Plain: the server takes OpenAI's own fields alone, so inference.WithoutExtras was asked.
	Plain bool
}

// Done says that the answer is of no more use, so that its memory is given to others. It may be
// called twice, and for no answer.
func (a *Answer) Done() {
	if a != nil {
		a.Response.Done()
	}
}

// Complete samples one turn at one of the run's servers. The caller calls the answer's Done when it
// is of no more use. Where it fails its error is the context's, or an *inference.Failure: the last
// server's, or one that says when to come again. Away is set of servers only that will come back.
func (f *Fleet) Complete(ctx context.Context, c Call) (*Answer, error) {
	if full := fits(c); full != nil {
		return nil, full
	}
	targets, err := f.targets(c)
	if err != nil {
		return nil, err
	}
	told := false
	if follow := c.Follow; follow != nil {
		c.Follow = func(d inference.Delta) {
			told = true
			follow(d)
		}
	}
	var failed *inference.Failure
	var back []target // servers that will be there again
	for pauses := 1; ; {
		if len(targets) == 0 {
			if len(back) == 0 {
				return nil, failed
			}
			again := askAgain.Delay(pauses)
			if failed.After = max(failed.After, again); time.Now().Add(again).After(c.Until) {
				return nil, failed
			}
			if !retry.Sleep(ctx, again) {
				return nil, ctx.Err()
			}
			targets, back = back, nil
			pauses++
		}
		if err := f.withinRate(ctx, c); err != nil {
			return nil, earlier(failed, err)
		}
		at, err := f.enter(ctx, c, targets)
		if err != nil {
			return nil, earlier(failed, err)
		}
		answer, failure := f.ask(ctx, c, at)
		if failure == nil {
			return answer, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, earlier(failed, err)
		}
		if told || failure.Exhausted() {
			return nil, failure // no other server can be asked either
		}
		failure.Away = failure.Away && (f.loading(failure, at) || f.comesBack(ctx, c, at))
		if failed = worthier(failed, failure); failure.Permanent {
			return nil, failure // it is the request that is wrong, everywhere
		}
		if c.Patient && failure.Throttled {
			continue // it rests
		}
		if c.Patient && failure.Away {
			at.named = nil
			back = append(back, at)
		}
		targets = dropReplica(targets, at.replica)
	}
}

// askAgain is how long a call waits until it asks servers again that were away: one call that fails
// must not be taken for many.
var askAgain = retry.Policy{First: 500 * time.Millisecond, Most: 2 * time.Second}

// worthier is the failure that says more about what to do: one that will pass by itself.
func worthier(before, now *inference.Failure) *inference.Failure {
	if before != nil && (before.Throttled || before.Away) && !now.Throttled && !now.Away {
		return before
	}
	return now
}

// earlier is what a server has answered, rather than that no other could be asked behind
// it; when, the latter knows.
func earlier(failed *inference.Failure, err error) error {
	var resting *inference.Failure
	if failed == nil || !errors.As(err, &resting) {
		return err
	}
	if failed.Throttled || failed.Away {
		failed.After = max(failed.After, resting.After)
	}
	return failed
}

// comesBack tells a server that will come back from an address that was never right.
func (f *Fleet) comesBack(ctx context.Context, c Call, at target) bool {
	f.mu.Lock()
	known := at.answered
	f.mu.Unlock()
	return known || c.Answered != nil && c.Answered(ctx)
}

// target is a server as a run uses it.
type target struct {
	*replica
	model string
	slots int
	key   string
	since int        // what enter gave
	named *activated // the version that the turn asks for by its name; nil where the policy has one name
}

// targets are the servers of a call in the order in which it wants them.
func (f *Fleet) targets(c Call) ([]target, error) {
	var targets []target
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range c.Config.Servers() {
		base := e.URL
		if base == runfile.BuiltinEndpoint {
			base = f.opts.Builtin
		}
		base = strings.TrimRight(base, "/")
		apart := ""
		if c.Words { // another model may share the address with the policy, and says nothing of it
			apart = " " + e.Model
		}
		t := target{replica: f.replica(base, apart), model: e.Model, slots: e.Slots, key: f.opts.Keys.Key(c.Run, base)}
		if t.slots == 0 {
			t.slots = f.opts.Slots
		}
		t.replica.slots = max(t.replica.slots, t.slots)
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, &inference.Failure{Class: events.ClassEndpoint, Permanent: true,
			Err: fmt.Errorf("run %s has no endpoint", c.Run)}
	}
	byAffinity(targets, c.Run+"/"+c.Affinity)
	if c.Config.PolicyVersion != nil {
		servingLast(targets, c.Config.Policy, *c.Config.PolicyVersion)
	}
	return targets, nil
}

// ask sends the request to one server, and gives its place back.
func (f *Fleet) ask(ctx context.Context, c Call, at target) (answer *Answer, failure *inference.Failure) {
	limits := c.Config.Limits.TurnTimeouts()
	asking, cancel := context.WithTimeoutCause(ctx, time.Duration(limits.Whole),
		inference.TimeLimit("whole", time.Duration(limits.Whole)))
	defer cancel()
	asking = httptrace.WithClientTrace(asking, &httptrace.ClientTrace{WroteRequest: func(
		sent httptrace.WroteRequestInfo) {
		f.noteTaken(at, sent.Err)
	}})
	started := time.Now()
	client := inference.Client{HTTP: f.http, APIKey: at.key, MaxTokens: c.Sampling.MaxTokens,
		Beside:    c.Config.TokenColumns.AnswerBytes(c.Config.Sampling),
		FirstByte: time.Duration(limits.FirstByte), BetweenBytes: time.Duration(limits.BetweenBytes)}
	if f.streams(at) {
		client.Follow = c.Follow
	}
	fit := f.fit
	if c.Tokens != nil {
		fit = f.fitTokens
	}
	cut, failure := fit(asking, &client, c, at)
	client.Follow = nil // what the server is asked behind the answer is not its words
	defer func() {
		if answer == nil {
			cut.response.Done()
		}
	}()
	if failure == nil {
		failure = cut.response.GaveUp(at.url)
	}
	if failure != nil && failure.Aborted {
		failure.After = abortRest
	}
	if failure != nil && at.lacksVersion(failure) {
		failure.Throttled, failure.Permanent, failure.After = true, false, lagging
	}
	f.settle(ctx, c, at, started, failure)
	if client.Unstreamed {
		f.noStreams(at)
	}
	if failure != nil {
		return nil, failure
	}
	a := &Answer{Response: cut.response, Started: cut.response.SentAt(), Endpoint: at.url,
		Plain: cut.plain, Context: cut.context}
	var err error
	if !cut.processed {
		a.Wrong = f.wrongFor(asking, &client, c, at)
	}
	a.Turn, a.Prompt, err = a.TurnAs(c.Turn, c.Version)
	contradicts := errors.Is(err, inference.ErrTokens)
	if contradicts && c.TextOnly {
		f.opts.Logger.WarnContext(asking, "turn tokens missing", "run", c.Run, "rollout", c.Affinity, "turn", c.Turn,
			"endpoint", at.url, "error", err)
		err = nil
	}
	if err != nil {
		return nil, &inference.Failure{Class: events.ClassBadResponse, Err: fmt.Errorf("answer of %s: %w", at.url, err)}
	}
	// what is wrong for one run says nothing of the server
	if streamed := a.Response.Streamed(); len(a.Wrong) == 0 && c.Tokens == nil && !c.Words &&
		(streamed || !contradicts) {
		f.learnTokens(at, streamed, !a.Turn.TextOnly, c.Follow != nil)
	}
	f.metrics.sampled(at.url, &a.Turn)
	if a.Turn.FinishReason == events.FinishUnknown {
		f.opts.Logger.WarnContext(asking, "finish reason unknown", "run", c.Run, "rollout", c.Affinity, "turn", c.Turn,
			"endpoint", at.url, "word", a.Turn.FinishWord)
	}
	if at.named != nil {
		a.setNamed(at.named.version)
	}
	a.cutTo(cut)
	f.rates.take(c, a.Turn.Used())
	f.mu.Lock()
	at.serves(c.Config.Policy, a.Turn.LatestVersion())
	f.mu.Unlock()
	if pinned := c.Config.PolicyVersion; pinned != nil &&
		(a.Turn.PolicyVersion != *pinned || a.Turn.VersionSpans != nil) {
		served := fmt.Sprintf("version %d", a.Turn.PolicyVersion)
		if n := len(a.Turn.VersionSpans); n > 0 {
			served = fmt.Sprintf("version %d and then version %d", a.Turn.VersionSpans[0].Version,
				a.Turn.VersionSpans[n-1].Version)
		}
		return nil, &inference.Failure{Class: events.ClassEndpoint,
			Err: fmt.Errorf("%s serves %s of %s; the run pins version %d", at.url, served, c.Config.Policy, *pinned)}
	}
	return a, nil
}

// setNamed gives a turn the version that its server was asked for by name: the server's own label
// is that of its base. Recorded pieces of it keep their versions.
func (a *Answer) setNamed(version int64) {
	spans, n := a.Turn.VersionSpans, len(a.Turn.TokenIDs)
	if spans == nil {
		spans = []events.VersionSpan{{Version: a.Turn.PolicyVersion, End: n}}
	}
	recorded := min(a.Response.Recorded(), n)
	spans = events.SpansBetween(spans, 0, recorded)
	if recorded < n || n == 0 {
		spans = append(spans, events.VersionSpan{Version: version, Start: recorded, End: n})
	}
	a.Turn.SetVersions(spans)
}

// request sends a request, to a server that takes OpenAI's own fields alone without the others.
// What a server takes, it remembers.
func (f *Fleet) request(ctx context.Context, client *inference.Client, at target,
	request any) (response *inference.Response, plain bool, failure *inference.Failure) {
	f.mu.Lock()
	before := at.plain
	f.mu.Unlock()
	response, plain, err := client.CompleteAs(ctx, at.url, before, request)
	if plain && !before {
		f.mu.Lock()
		at.plain = true
		f.mu.Unlock()
		f.opts.Logger.Info("sampling extensions unsupported", "endpoint", at.url)
	}
	if err != nil && !errors.As(err, &failure) {
		failure = &inference.Failure{Class: events.ClassInternal, Permanent: true, Err: err} // the request is no JSON
	}
	return response, plain, failure
}

// noteTaken notes that a server has taken a request, or one beside it.
func (f *Fleet) noteTaken(at target, err error) {
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); !at.taken {
		at.take(now, at.since)
		f.serve(now)
	}
}

// settle notes what came of a request.
func (f *Fleet) settle(ctx context.Context, c Call, at target, started time.Time, failure *inference.Failure) {
	now := time.Now()
	what := outcomeOf(failure)
	if failure != nil && ctx.Err() != nil {
		what = callerGone // the caller's time was up, or he has gone: that says nothing of the server
	}
	f.mu.Lock()
	wasOpened, wasSetbacks, wasAnswered := at.opened, at.setbacks, at.answered
	at.replica.settle(now, at.since, at.slots, c.Run+"/"+c.Affinity, what, failure)
	is, again := *at.replica, at.until.Sub(now).Round(time.Millisecond)
	at.restored = false
	f.serve(now)
	if what != answered {
		f.look()
	}
	f.mu.Unlock()
	f.metrics.observe(at.url, what, now.Sub(started), failure)
	log := f.opts.Logger.With("endpoint", withoutPassword(at.url))
	switch {
	case is.opened > wasOpened:
		f.metrics.ramp(at.url, "opened")
		if is.opened == 1 {
			log.Warn("inference server unavailable", "failures", is.failures, "in_flight", is.inFlight,
				"retry_in", again, "error", failure)
		} else if is.opened&(is.opened-1) == 0 { // the 2nd, 4th, 8th … time
			log.Warn("inference server still unavailable", "in_flight", is.inFlight,
				"retry_in", again, "error", failure)
		}
	case is.setbacks > wasSetbacks:
		f.metrics.ramp(at.url, "reduced")
		if is.reductions&(is.reductions-1) == 0 {
			log.Info("inference server load reduced", "allowed", int(is.allowed), "before", int(is.reduced),
				"in_flight", is.inFlight, "cause", is.reducedBy, "error", failure)
		}
	case is.restored:
		f.metrics.ramp(at.url, "restored")
		log.Info("inference server load restored", "allowed", int(is.allowed), "in_flight", is.inFlight)
	}
	if is.opened == 0 && wasOpened > 0 || what == answered && !wasAnswered {
		f.metrics.ramp(at.url, "closed")
		log.Info("inference server recovered")
	}
}
