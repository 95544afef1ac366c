package inference

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// A piece of an answer is due when it has so many tokens, or when so much time has passed since the last one and there is any.
const (
	pieceTokens = 512
	pieceTime   = 10 * time.Second
	// lastPiece is how long the piece of an answer that broke off may take, also where nobody waits for it any more.
	lastPiece = 5 * time.Second
)

// recorder tells pieces of an answer. A nil one tells none.
type recorder struct {
	tell   func(ctx context.Context, p events.PieceSampled) error
	prompt string

	begin   int // tokens of the answer before the request under way
	told    int // tokens that are recorded
	sent    time.Time
	since   time.Time // when the last piece was told, or the request sent
	stopped bool      // the answer cannot be recorded, or a piece could not
}

// request notes that a request is sent behind so many tokens of the answer.
func (r *recorder) request(begin int, now time.Time) {
	if r != nil {
		r.begin, r.sent, r.since = begin, now, now
	}
}

// follow tells a piece of what a request has sampled so far, if one is due.
func (r *recorder) follow(ctx context.Context, s *soFar) error {
	if n := r.begin + len(s.ids) - r.told; n < pieceTokens && time.Since(r.since) < pieceTime {
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

func (r *recorder) piece(ctx context.Context, s *soFar) error {
	from := r.told - r.begin
	if r.stopped || from < 0 || from >= len(s.ids) {
		return nil
	}
	ids, logprobs := slices.Clone(s.ids[from:]), slices.Clone(s.logprobs[from:])
	if check(nil, ids, logprobs) != nil {
		r.stopped = true // the whole answer will be refused, or is text alone
		return nil
	}
	err := r.tell(ctx, events.PieceSampled{
		Prompt: r.prompt, Offset: r.told, TokenIDs: ids, Logprobs: logprobs, VersionSpans: events.SpansBetween(s.versions, from, len(s.ids)),
		StartedAt: r.sent.UTC(), LatencyMS: float64(time.Since(r.since)) / float64(time.Millisecond),
	})
	r.stopped = err != nil
	r.told, r.since = r.told+len(ids), time.Now()
	return err
}

// begun are the parts of an answer behind a prompt that are recorded, behind which the recorder goes on. The engines that read their own text of an answer cannot go on with another one's.
func (conv Conversation) begun(prompt []int32, r *recorder) (p parts, err error) {
	digest := ""
	if r != nil {
		digest = events.PromptDigest(prompt)
		r.prompt = digest
	}
	u := conv.Begun
	if r == nil || u == nil || u.Prompt != digest {
		return p, nil
	}
	if conv.Engine == EngineSGLang || conv.Engine == EngineLlamaCPP {
		return p, &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("a server of another kind has sampled %d tokens of the answer, and "+
			"%s cannot go on behind them: name servers of one kind in the run file", len(u.TokenIDs), conv.Engine)}
	}
	r.told = len(u.TokenIDs)
	p.ids, p.count, p.sent, p.took = slices.Clone(u.TokenIDs), u.Parts, u.StartedAt, u.Took
	for i := range u.Logprobs {
		p.entries = append(p.entries, sampledEntry{Logprob: (*logprob)(&u.Logprobs[i])})
	}
	for _, s := range u.Versions {
		v := version{s.Version, s.Version != runfile.UnknownVersion}
		p.known = p.known || v.known
		p.versions = append(p.versions, versionSpan{v, s.Start, s.End})
	}
	return p, nil
}
