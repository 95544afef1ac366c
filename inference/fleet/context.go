package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// How long the length of a server's context is taken as known, or as not to be learnt, and how long
// the server may take to tell it.
const (
	contextKnownFor   = 10 * time.Minute
	contextUnknownFor = time.Minute
	contextTime       = 5 * time.Second
)

// contexts are how many tokens the contexts of servers have, by base URL and model.
type contexts struct {
	known *lru.Cache[string, *contextLimit]
}

type contextLimit struct {
	mu     sync.Mutex
	at     time.Time // zero: not asked
	tokens int       // 0: the server does not say
}

func newContexts() contexts {
	known, err := lru.New[string, *contextLimit](maxReplicas)
	if err != nil {
		panic(err) // the size is a constant
	}
	return contexts{known}
}

func (c contexts) limit(at target) *contextLimit {
	key, fresh := at.url+" "+at.model, &contextLimit{}
	if before, there, _ := c.known.PeekOrAdd(key, fresh); there {
		return before
	}
	return fresh
}

// contextOf is how many tokens the context of a server has, as the run or the server says; 0
// is unknown. A server is asked behind the first turn of a rollout: before that no prompt is
// known that could be too long.
func (f *Fleet) contextOf(ctx context.Context, client *inference.Client, c Call, at target) int {
	switch {
	case !c.Fit:
		return 0
	case c.Config.Limits.Context > 0:
		return c.Config.Limits.Context
	}
	l := f.contexts.limit(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	age := time.Since(l.at)
	if c.Prompt == 0 && !c.TellContext ||
		!l.at.IsZero() && (age < contextUnknownFor || l.tokens > 0 && age < contextKnownFor) {
		return l.tokens
	}
	ctx, cancel := context.WithTimeout(ctx, contextTime)
	defer cancel()
	tokens, err := client.ContextLimit(ctx, at.url, at.modelName())
	if err != nil {
		f.opts.Logger.Debug("context length unknown", "endpoint", at.url, "error", err)
	}
	l.at, l.tokens = time.Now(), tokens
	return tokens
}

// learn keeps the length that a server's refusal told.
func (c contexts) learn(at target, tokens int) {
	l := c.limit(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.tokens = time.Now(), tokens
}

// fits says that a prompt is known to be as long as the context that the run names.
func fits(c Call) *inference.Failure {
	limit := c.Config.Limits.Context
	if !c.Fit || limit == 0 || inference.Room(limit, c.Prompt) > 0 {
		return nil
	}
	return &inference.Failure{Class: events.ClassEndpoint, Permanent: true,
		Overflow: &inference.Overflow{Prompt: c.Prompt, Limit: limit},
		Err:      fmt.Errorf("the conversation has %d tokens, and limits.context of the run is %d", c.Prompt, limit)}
}

// scarce reports whether less room is left behind a prompt than the caller wants.
func (c *Call) scarce(limit, prompt int) bool {
	return c.Fit && c.Spare != nil && inference.Room(limit, prompt) < c.Spare(limit)
}

// errScarce tells a refusal of ours from a server's.
var errScarce = errors.New("too little of the context is left")

func scarceRoom(limit, prompt int) *inference.Failure {
	return &inference.Failure{Class: events.ClassEndpoint, Permanent: true,
		Overflow: &inference.Overflow{Prompt: prompt, Limit: limit},
		Err:      fmt.Errorf("%w: the conversation has %d tokens or more of %d", errScarce, prompt, limit)}
}

// fitted is a request's answer, with what was cut so that it fits: Most tokens of an answer
// in a context of so many.
type fitted struct {
	response    *inference.Response
	plain       bool
	processed   bool // its log-probabilities are those of the distribution that was sampled, whatever it says in chats
	limit, most int
	context     int // the server's, 0 where it is not known
}

// fit asks for no more tokens than the server's context has room for, behind the prompt that is
// known. A server that counts more in the prompt says so, and is asked once more for what fits;
// where it does not say how much that is, for what it would give itself.
func (f *Fleet) fit(ctx context.Context, client *inference.Client, c Call,
	at target) (answer fitted, failure *inference.Failure) {
	most := c.Sampling.MaxTokens
	limit := f.contextOf(ctx, client, c, at)
	if limit > 0 && c.scarce(limit, c.Prompt) {
		return answer, scarceRoom(limit, c.Prompt)
	}
	// with none, the prompt may still be shorter than the last one was
	if room := inference.Room(limit, c.Prompt); limit > 0 && room > 0 {
		most = min(most, room)
	}
	for try := 0; ; try++ {
		answer.response, answer.plain, failure = f.request(ctx, client, at, c.Request(at.modelName(), most))
		if failure == nil {
			break
		}
		o := failure.Overflow
		if o == nil || !c.Fit {
			return answer, failure
		}
		if o.Limit > 0 {
			limit = o.Limit
			f.contexts.learn(at, limit)
		}
		room, atMost := inference.Room(o.Limit, o.Prompt), o.Limit-most
		switch counted := o.Limit > 0 && o.Prompt > 0; {
		// that much was refused
		case most == 0 || try == 2 || counted && room < 1 || o.Limit > 0 && c.scarce(o.Limit, max(o.Prompt, atMost)):
			return answer, failure
		case counted && room < most:
			most = room
		default:
			most = 0
		}
	}
	answer.context = limit
	if most < c.Sampling.MaxTokens {
		answer.limit, answer.most = limit, most
	}
	return answer, nil
}

// cutTo is the most tokens that the turn could have where that was cut.
func (a *Answer) cutTo(cut fitted) {
	a.ContextLimit, a.MaxTokens = cut.limit, cut.most
	if cut.most == 0 && cut.limit > 0 { // the server filled it in
		a.MaxTokens = max(a.Turn.CompletionTokens, cut.limit-a.Turn.PromptTokens)
	}
}
