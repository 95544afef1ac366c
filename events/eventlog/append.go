package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/retry"
)

// JetStream error codes of a conditional append.
const (
	codeWrongSequence jetstream.ErrorCode = 10071 // the verdict: another link is there
	codeInFlight      jetstream.ErrorCode = 10164 // another append of this chain is under way: ask again
	codeNotReady      jetstream.ErrorCode = 10163 // a new leader does not know the chain's end yet: ask again
	codeTooManyReqs   jetstream.ErrorCode = 10167 // the stream's inbound queue is full: ask again
	codeStoreFailed   jetstream.ErrorCode = 10077 // of a discard-new stream: its limit is reached
	codeAccountFull   jetstream.ErrorCode = 10002
	codeStorageFull   jetstream.ErrorCode = 10047
	codeInsufficient  jetstream.ErrorCode = 10023
	codeNoPeers       jetstream.ErrorCode = 10005
)

// ErrStreamFull means that the run's stream, or the server's disk, has reached its
// limit. Nothing was written.
var ErrStreamFull = errors.New("stream is full")

// ErrNoLink means that the sequence that an event was to follow is no link of its chain. The log is
// not the one that the writer has read.
var ErrNoLink = errors.New("not a link of this chain")

// settleTime is how long the server's verdict and the chain that is read may contradict each other:
// a leader that was just elected is still catching up.
const settleTime = 5 * time.Second

// Conflict says that another event took the link's place. Winner is the event that stands there.
type Conflict struct {
	Wanted string
	Winner events.Event
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("append %s: %s took its place at sequence %d", c.Wanted, c.Winner.ID, c.Winner.Seq)
}

// Append puts the event behind the link e.Prev of its chain (0: as the first link).
//
// When another writer was faster with the same event (same ID), its event is returned with adopted
// set: the log's content counts, not the caller's. When a different event stands there, the error
// is a *Conflict. An append whose outcome is unknown is resolved by reading the chain, so Append
// may be repeated at will.
func (l Appender) Append(ctx context.Context, e events.Event) (stored events.Event, adopted bool, err error) {
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	msg, err := l.encode(ctx, e)
	if err != nil {
		return e, false, err
	}
	// No message id: the answer to a duplicate would hide that another content is on the log.
	setHeader := func(name, value string) { msg.Header[name] = []string{value} }
	setHeader(jetstream.ExpectedStreamHeader, events.RunStream(e.Run))
	setHeader(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(e.Prev, 10))
	setHeader(jetstream.ExpectedLastSubjSeqSubjHeader, e.Chain())
	if e.Expires > 0 {
		setHeader(jetstream.MsgTTLHeader, e.Expires.Truncate(time.Second).String())
	}
	if err := l.checkEnd(ctx, e.Run); err != nil {
		return e, false, fmt.Errorf("append %s: %w", e.ID, err)
	}
	stream, _ := l.created.Load(e.Run)
	began := time.Now()
	for try := 1; ; try++ {
		seq, err := l.publish(ctx, e.Run, msg)
		if err == nil {
			e.Seq = seq
			l.seen.note(e.Run, seq)
			return e, false, nil
		}
		switch code := apiCode(err); {
		case code == codeWrongSequence || unknownOutcome(err):
			winner, found, readErr := l.after(ctx, e, stream)
			switch {
			case readErr != nil && ctx.Err() == nil && unknownOutcome(readErr): // the server is still away: ask again
			case readErr != nil:
				return e, false, fmt.Errorf("append %s: %w", e.ID, readErr)
			case found && winner.ID == e.ID:
				return winner, true, nil
			case found:
				return e, false, &Conflict{Wanted: e.ID, Winner: winner}
			case code == codeWrongSequence && time.Since(began) > settleTime:
				return e, false, fmt.Errorf("append %s: sequence %d: %w, which ends before it", e.ID, e.Prev, ErrNoLink)
			}
			// Nothing stands there yet: the append never arrived, or is still on its way. The
			// expected sequence makes a repetition safe in both cases.
		case code == codeInFlight || code == codeTooManyReqs || code == codeNotReady:
		case streamFull(err):
			return e, false, fmt.Errorf("append %s: %w: %w", e.ID, ErrStreamFull, err)
		default:
			return e, false, fmt.Errorf("append %s: %w", e.ID, err)
		}
		if !appendAgain.Wait(ctx, try) {
			return e, false, fmt.Errorf("append %s: %w", e.ID, ctx.Err())
		}
	}
}

// AppendLast puts the event behind whatever link is the last one. check may refuse that last link
// (nil: there is none yet); it is asked again each time another writer was faster.
func (l Appender) AppendLast(ctx context.Context, e events.Event,
	check func(last *events.Event) error) (events.Event, bool, error) {
	for {
		last, err := l.Last(ctx, e.Run, e.Type.Kind(), e.Entity)
		switch {
		case errors.Is(err, ErrNotFound):
			e.Prev, err = 0, check(nil)
		case err != nil:
			return e, false, err
		case last.ID == e.ID:
			return last, true, nil
		default:
			e.Prev, err = last.Seq, check(&last)
		}
		if err != nil {
			return e, false, err
		}
		stored, adopted, err := l.Append(ctx, e)
		var conflict *Conflict
		if !errors.As(err, &conflict) {
			return stored, adopted, err
		}
	}
}

func (l *core) publish(ctx context.Context, run string, msg *nats.Msg) (seq uint64, err error) {
	var refused error
	_, err = l.request(ctx, run, kindAppend, func() (*nats.Msg, error) {
		sent := time.Now()
		answer, err := l.answers.request(ctx, msg)
		if err == nil {
			seq, refused = appended(answer)
		}
		l.appends.answered(run, sent, errors.Join(err, refused))
		return answer, err
	})
	return seq, errors.Join(err, refused)
}

// after finds the link that stands directly behind e.Prev; found is false when the chain ends
// there, or before. An event is void if its stream was hidden or made again meanwhile: it follows
// from the events of another stream.
func (l Appender) after(ctx context.Context, e events.Event, stream any) (link events.Event, found bool, err error) {
	if e.Run != events.Catalogue {
		in, err := l.Incarnation(ctx, e.Run)
		if created, ok := stream.(time.Time); err == nil && ok && !created.Equal(in.Created) {
			err = fmt.Errorf("run %s: %w", e.Run, ErrReplaced)
		}
		if err != nil {
			return link, false, err
		}
	}
	link, err = l.Last(ctx, e.Run, e.Type.Kind(), e.Entity)
	if errors.Is(err, ErrNotFound) && !errors.Is(err, errNoRun) {
		return link, false, nil
	}
	if err != nil || link.Seq <= e.Prev {
		return link, false, err
	}
	for link.Prev != e.Prev {
		if link.Prev < e.Prev {
			return link, false, fmt.Errorf("sequence %d: %w", e.Prev, ErrNoLink)
		}
		if link, err = l.Event(ctx, e.Run, link.Prev); err != nil {
			return link, false, err
		}
	}
	return link, true, nil
}

func apiCode(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// Away reports whether an error says that the server is away, or does not answer: the same
// question may be answered later.
func Away(err error) bool { return unknownOutcome(err) }

// unknownOutcome reports whether the request may or may not have been carried out,
// and may be answered later.
func unknownOutcome(err error) bool {
	switch apiCode(err) {
	// the server is starting
	case jetstream.JSErrCodeJetStreamNotEnabledForAccount, jetstream.JSErrCodeJetStreamNotEnabled,
		codeClusterNotAvailable, codeClusterNotLeader, codeStreamOffline:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrReconnectBufExceeded)
}

// JetStream error codes of a cluster in transition.
const (
	codeClusterNotAvailable jetstream.ErrorCode = 10008
	codeClusterNotLeader    jetstream.ErrorCode = 10009
	codeStreamOffline       jetstream.ErrorCode = 10118
)

func streamFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	// The code of a failed store is shared by messages that are too large, which say
	// "message size exceeds maximum".
	return api.ErrorCode == codeAccountFull || api.ErrorCode == codeStorageFull ||
		api.ErrorCode == codeStoreFailed && strings.HasPrefix(api.Description, "maximum ")
}

// Waits before a request to the server is made again. A writer that lost a race, or whose chain has
// an append under way, comes back at once; where the server is away, it has to come back first.
var (
	appendAgain = retry.Policy{First: 100 * time.Microsecond, Most: 250 * time.Millisecond}
	askAgain    = retry.Policy{First: 6 * time.Millisecond, Most: 250 * time.Millisecond}
)
