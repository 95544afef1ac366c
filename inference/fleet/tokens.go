package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference"
)

// fitTokens asks for one turn as tokens, for no more of them than the context has room for. The
// prompt's length is known here before the server is asked to sample, so that a prompt that
// does not fit is no guess.
func (f *Fleet) fitTokens(ctx context.Context, client *inference.Client, c Call,
	at target) (answer fitted, failure *inference.Failure) {
	fit := func(prompt int) (most int, full *inference.Failure) {
		c.Prompt, most = prompt, c.Sampling.MaxTokens
		limit := f.contextOf(ctx, client, c, at)
		answer.context = limit
		if limit == 0 {
			return most, nil
		}
		if c.scarce(limit, prompt) {
			return 0, scarceRoom(limit, prompt)
		}
		room := inference.Room(limit, prompt)
		if room < 1 {
			return 0, &inference.Failure{Class: events.ClassEndpoint, Permanent: true,
				Overflow: &inference.Overflow{Prompt: prompt, Limit: limit},
				Err:      fmt.Errorf("the prompt has %d tokens, and the context %d", prompt, limit)}
		}
		if room < most {
			most, answer.limit, answer.most = room, limit, room
		}
		return most, nil
	}
	conv := c.Tokens(at.modelName())
	conv.Engine, _ = f.engineOf(ctx, client, at) // one that is away tells what is wrong when it is asked for the turn
	if piece := conv.Piece; piece != nil && at.named != nil {
		conv.Piece = func(ctx context.Context, p events.PieceSampled) error {
			p.VersionSpans = []events.VersionSpan{{Version: at.named.version, End: len(p.TokenIDs)}}
			return piece(ctx, p)
		}
	}
	response, err := client.CompleteTokens(ctx, at.url, conv, fit)
	if err != nil && !errors.As(err, &failure) {
		failure = &inference.Failure{Class: events.ClassInternal, Permanent: true, Err: err} // the request is no JSON
	}
	if failure != nil && failure.Status == http.StatusNotFound { // another server may have come to this address
		f.setEngine(at, "")
	}
	answer.response, answer.processed = response, conv.Engine == inference.EngineLlamaCPP
	return answer, failure
}

// engineOf is the kind of a server, which it is asked for once. One that does not
// say is asked as vLLM is.
func (f *Fleet) engineOf(ctx context.Context, client *inference.Client, at target) (string, error) {
	f.mu.Lock()
	known := at.engine
	f.mu.Unlock()
	if known != "" {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, contextTime)
	defer cancel()
	engine, err := client.Engine(ctx, at.url)
	if err != nil {
		return "", err
	}
	f.setEngine(at, engine)
	return engine, nil
}

func (f *Fleet) setEngine(at target, engine string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.engine = engine
}
