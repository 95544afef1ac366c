package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
)

// A piece of an answer is due when it has so many tokens, or when so much time has passed since the
// last one and there is any.
const (
	pieceTokens = 512
	pieceTime   = 10 * time.Second
	// lastPiece is how long the piece of an answer that broke off may take, also where
	// nobody waits for it any more.
	lastPiece = 5 * time.Second
)

// recorder tells pieces of an answer. A nil one tells none.
type recorder struct {
	tell   func(ctx context.Context, p events.PieceSampled) error
	share  *memory.Share
	engine string // its kind
	prompt string

	begin   int           // tokens of the answer before the request under way
	told    int           // tokens that are recorded
	sent    time.Time     // when the request was sent
	since   time.Time     // when the last piece was told, or the request sent
	waited  time.Duration // how long the share had waited then
	stopped bool          // the answer cannot be recorded, or a piece could not
}

// begins notes that the next request is behind so many tokens of the answer.
func (r *recorder) begins(begin int) {
	if r != nil {
		r.begin = begin
	}
}

// request notes that a request is sent.
func (r *recorder) request(now time.Time) {
	if r != nil {
		r.sent, r.since, r.waited = now, now, r.share.Waited()
	}
}

// goesOn reports whether tokens of the request under way are recorded.
func (r *recorder) goesOn() bool { return r != nil && r.told > r.begin }

// follow tells a piece of what a request has sampled so far, if one is due.
func (r *recorder) follow(ctx context.Context, s *soFar) error {
	if n := r.begin + len(s.ids) - s.held - r.told; n < pieceTokens && time.Since(r.since) < pieceTime {
		return nil
	}
	return r.piece(ctx, s)
}

// rest tells what is not told of a request that broke off.
func (r *recorder) rest(ctx context.Context, s *soFar) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPiece)
	defer cancel()
	_ = r.piece(ctx, s) // what is not told is sampled again
}

// piece tells what is not told. A server that has not named its prompt may have
// sampled behind another one.
func (r *recorder) piece(ctx context.Context, s *soFar) error {
	from, end := r.told-r.begin, len(s.ids)-s.held
	if r.stopped || !s.named || from < 0 || from >= end {
		return nil
	}
	ids, logprobs := slices.Clone(s.ids[from:end]), slices.Clone(s.logprobs[from:end])
	if check(nil, ids, logprobs) != nil {
		r.stopped = true // the whole answer will be refused, or is text alone
		return nil
	}
	waited := r.share.Waited()
	took := time.Since(r.since) - (waited - r.waited) // the wait for memory is Rondo's own
	err := r.tell(ctx, events.PieceSampled{
		Prompt: r.prompt, Engine: r.engine, Offset: r.told, TokenIDs: ids, Logprobs: logprobs,
		VersionSpans: events.SpansBetween(s.versions, from, end),
		StartedAt:    r.sent.UTC(), LatencyMS: float64(took) / float64(time.Millisecond),
	})
	r.stopped = err != nil
	r.told, r.since, r.waited = r.told+len(ids), time.Now(), waited
	return err
}

// ErrBegun is that of an answer that cannot be gone on with behind the tokens that are recorded of
// it. It says nothing of the server.
var ErrBegun = errors.New("the answer cannot be gone on with behind its recorded tokens")

// begun are the parts of an answer behind a prompt that are recorded, behind which the recorder
// goes on. A server of another kind cannot go on with them.
func (conv Conversation) begun(prompt []int32, r *recorder) (p parts, err error) {
	u := conv.Begun
	if r == nil && u == nil {
		return p, nil
	}
	digest := events.PromptDigest(prompt)
	if r != nil {
		r.prompt = digest
	}
	if u == nil || u.Prompt != digest {
		return p, nil
	}
	if asked := kind(conv.Engine); r == nil || u.Engine != asked {
		why := fmt.Sprintf("a server of another kind (%s) has sampled them, and this one is %s: "+
			"name servers of one kind in the run file", u.Engine, asked)
		if u.Engine == asked {
			why = fmt.Sprintf("with the settings of this request %s would not sample the rest as it sampled them",
				asked)
		}
		return p, &Failure{Class: events.ClassEndpoint,
			Err: fmt.Errorf("%w, of which there are %d: %s", ErrBegun, len(u.TokenIDs), why)}
	}
	r.told = len(u.TokenIDs)
	p.ids, p.logprobs, p.count, p.sent, p.took = slices.Clone(u.TokenIDs), slices.Clone(u.Logprobs),
		u.Parts, u.StartedAt, u.Took
	for _, s := range u.Versions {
		v := version{s.Version, s.Version != runfile.UnknownVersion}
		p.known = p.known || v.known
		p.versions = append(p.versions, versionSpan{v, s.Start, s.End})
	}
	return p, nil
}
