package inference

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// An answer that the server aborts half way, as servers do that take up new weights, is gone on
// with from the tokens that there are. So is one of which the log has pieces.
const (
	// maxParts bounds how often.
	maxParts = 16
	// partRest is how long the server is left alone before the first time, each time twice as long
	// up to mostPartRest, and partWait how long one is waited for that takes no requests.
	partRest     = 100 * time.Millisecond
	mostPartRest = 2 * time.Second
	partWait     = 30 * time.Second
)

// parts are what was sampled of one answer.
type parts struct {
	ids      []int32
	logprobs []float32
	versions []versionSpan
	known    bool // the version of some token
	// unmeasured: some have no log-probability, so that the answer is text alone.
	unmeasured bool
	broken     bool // spans of a part do not fit it
	beside     tokenColumns
	count      int
	sent       time.Time     // the first one's
	took       time.Duration // all of them, without the rests between
}

// add takes a part, which is the answer to a prompt that ends with those before.
func (p *parts) add(r *Response) error {
	ids, logprobs, err := sampled(r.Choices[0])
	if err != nil {
		return err
	}
	if p.unmeasured = p.unmeasured || r.unmeasured; len(ids) != len(logprobs) && !p.unmeasured {
		return ErrTokens
	}
	if p.count == 0 {
		p.sent = r.sent
	}
	p.took += r.took
	p.count++
	p.beside.follow(r.beside)
	begin := len(p.ids)
	p.ids, p.logprobs = append(p.ids, ids...), append(p.logprobs, logprobs...)
	if len(ids) == 0 {
		return nil
	}
	var t events.TurnSampled
	r.readVersions(&t, len(ids), runfile.UnknownVersion)
	p.broken = p.broken || slices.Contains(t.Lacks, events.LackVersions)
	spans := t.VersionSpans
	if spans == nil {
		spans = []events.VersionSpan{{Version: t.PolicyVersion, End: len(ids)}}
	}
	for _, s := range spans {
		v := version{s.Version, s.Version != runfile.UnknownVersion}
		p.known = p.known || v.known
		p.versions = append(p.versions, versionSpan{v, begin + s.Start, begin + s.End})
	}
	return nil
}

// response is the answer of all parts, which ends as the last one does. Its
// message is still to be read.
func (p *parts) response(prompt []int32, last *Response) *Response {
	end := &last.Choices[0]
	r := &Response{sent: p.sent, took: p.took, parts: p.count, PromptTokenIDs: prompt,
		Choices: choices{{FinishReason: end.FinishReason, StopReason: end.StopReason, TokenIDs: p.ids}}}
	r.Choices[0].logprobs = p.logprobs
	r.beside = &p.beside
	if p.unmeasured {
		r.Choices[0].logprobs = nil
	}
	r.Usage.PromptTokens, r.Usage.CompletionTokens = tokenCount(len(prompt)), tokenCount(len(p.ids))
	if p.known || p.broken {
		r.Choices[0].WeightVersions = versionSpans{list: p.versions, broken: p.broken}
	}
	return r
}

// whole is an answer to its end: p is what there is of it. Where the server aborts it, a prompt
// that ends with what was sampled so far asks for the rest. Each part has the versions that sampled
// it. An answer that stays aborted is returned so, as are one of which there is nothing yet and one
// whose tokens cannot be used.
func (s sampler) whole(ctx context.Context, prompt []int32, most, routed int, p parts) (*Response, error) {
	asked := 0
	for rest := partRest; ; rest = min(2*rest, mostPartRest) {
		left := most - len(p.ids)
		if left < 1 && len(p.ids) > 0 {
			return p.response(prompt, &Response{Choices: choices{{FinishReason: "length"}}}), nil
		}
		s.recorder.begins(len(p.ids))
		s.reseed(len(p.ids))
		var answer *Response
		var err error
		behind := slices.Concat(prompt, p.ids)
		if asked == 0 {
			answer, err = s.sample(ctx, behind, left, p.beside.covered(routed))
		} else {
			answer, err = s.again(ctx, behind, left, p.beside.covered(routed), rest)
		}
		if err != nil {
			return nil, err
		}
		if asked++; p.count == 0 && !answer.Aborted() {
			answer.PromptTokenIDs = prompt
			return answer, nil
		}
		if err := p.add(answer); err != nil {
			return nil, malformed(s.base, err)
		}
		switch {
		case !answer.Aborted():
			return p.response(prompt, answer), nil
		case len(p.ids) == 0 || asked > maxParts:
			return answer, nil
		}
	}
}

// again asks for the rest of an answer, and waits for a server that takes no requests for a while.
// Where more of the answer is recorded, the next request is behind that.
func (s sampler) again(ctx context.Context, prompt []int32, most, routed int,
	rest time.Duration) (answer *Response, err error) {
	if err := leave(ctx, rest); err != nil {
		return nil, err
	}
	away := func(f *Failure) bool { return (f.Away || f.Throttled) && !s.recorder.goesOn() }
	err = patiently(ctx, rest, away, func() (err error) {
		answer, err = s.sample(ctx, prompt, most, routed)
		return err
	})
	return answer, err
}

// patiently asks, and asks again while a server is away, partWait long.
func patiently(ctx context.Context, rest time.Duration, away func(*Failure) bool, ask func() error) error {
	for until := time.Now().Add(partWait); ; {
		err := ask()
		var f *Failure
		if !errors.As(err, &f) || !away(f) || time.Now().After(until) {
			return err
		}
		rest = min(max(2*rest, f.After), mostPartRest)
		if err := leave(ctx, rest); err != nil {
			return err
		}
	}
}

// unreached reports whether a request that may be made twice can be made again: the server is away,
// or its connection broke.
func unreached(f *Failure) bool {
	broke := f.Class == events.ClassEndpoint && f.Status == 0 && !f.Permanent && !f.Timeout() && !f.Exhausted()
	return broke || f.Away || f.Throttled
}

// leave leaves a server alone for a while.
func leave(ctx context.Context, rest time.Duration) error {
	select {
	case <-ctx.Done():
		return &Failure{Class: events.ClassEndpoint, Err: struck(ctx, ctx.Err())}
	case <-time.After(rest):
		return nil
	}
}
