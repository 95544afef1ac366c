package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

// ErrRefused means that the intake did not accept a fact. Repeating it unchanged is of no use.
var ErrRefused = errors.New("refused by the intake")

// Submission is a fact that an outsider submits to the intake.
type Submission struct {
	Run    string
	Type   events.Type
	Entity string
	Data   any
	// ID makes the submission repeatable: the same ID is one fact. It may be empty
	// for facts that happen once.
	ID string
	// Source says who states the fact.
	Source string
}

// Submit publishes a submission and waits for the intake's answer, and for a quota that is spent
// until it is not, as long as the context lets it. An error that is not ErrRefused leaves the
// outcome open: the intake's stream keeps the submissions that reached it, and Submit may be
// repeated with the same ID.
func (l Submitter) Submit(ctx context.Context, s Submission) (events.IntakeAnswer, error) {
	var answer events.IntakeAnswer
	msg, err := l.submissionMessage(ctx, s)
	if err != nil {
		return answer, err
	}
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return answer, fmt.Errorf("submit %s of %s: %w", s.Type, s.Entity, err)
	}
	defer sub.Unsubscribe()
	msg.Header[events.HeaderReply] = []string{inbox}
	for {
		answer = events.IntakeAnswer{}
		resp, err := l.ask(ctx, msg, sub, s.ID != "")
		if err != nil {
			return answer, fmt.Errorf("submit %s of %s: %w", s.Type, s.Entity, err)
		}
		if err := json.Unmarshal(resp.Data, &answer); err != nil {
			return answer, fmt.Errorf("submit %s of %s: read answer: %w", s.Type, s.Entity, err)
		}
		if answer.Error == "" {
			return answer, nil
		}
		wait := time.Duration(min(answer.RetryAfterMS, time.Minute.Milliseconds())) * time.Millisecond
		if wait <= 0 || !retry.Sleep(ctx, wait) {
			return answer, fmt.Errorf("%w: %s of %s: %s", ErrRefused, s.Type, s.Entity, answer.Error)
		}
	}
}

// answerPatience is how long an answer may take before a repeatable question is asked again:
// answers travel over core NATS, where a connection that breaks loses them.
const answerPatience = 5 * time.Second

// duplicatePatience takes the place of answerPatience where the server drops a submission, as it
// had one of that id a moment ago. Whoever sent that one is answered: another process perhaps, or a
// call before this one that was refused.
const duplicatePatience = 250 * time.Millisecond

// ask publishes a submission until the intake answers. It repeats only where a
// repetition states nothing twice.
func (l Submitter) ask(ctx context.Context, msg *nats.Msg, sub *nats.Subscription, repeatable bool) (*nats.Msg, error) {
	for {
		dropped, err := l.publishSubmission(ctx, msg)
		if err != nil {
			return nil, err
		}
		patience := answerPatience
		if dropped {
			patience = duplicatePatience
		}
		waiting, cancel := ctx, context.CancelFunc(func() {})
		if repeatable {
			waiting, cancel = context.WithTimeout(ctx, patience)
		}
		answer, err := sub.NextMsgWithContext(waiting)
		cancel()
		if err == nil {
			return answer, nil
		}
		if ctx.Err() != nil || !repeatable || !errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("the submission was stored, but the intake did not answer: %w", err)
		}
	}
}

func (l Submitter) submissionMessage(ctx context.Context, s Submission) (*nats.Msg, error) {
	body, err := json.Marshal(s.Data)
	if err != nil {
		return nil, fmt.Errorf("submit %s of %s: %w", s.Type, s.Entity, err)
	}
	msg := nats.NewMsg(events.IntakeSubject(s.Run, s.Type, s.Entity))
	if len(body) > events.MaxPayload {
		ref, err := storage.PutBlob(ctx, l.store, body)
		if err != nil {
			return nil, fmt.Errorf("submit %s of %s: store body: %w", s.Type, s.Entity, err)
		}
		msg.Header[events.HeaderDataRef] = []string{ref.Key}
		if body, err = json.Marshal(ref); err != nil {
			return nil, err
		}
	}
	msg.Data = body
	if s.ID != "" {
		msg.Header[events.HeaderMessageID] = []string{s.ID}
	}
	if s.Source != "" {
		msg.Header[events.HeaderSource] = []string{s.Source}
	}
	return msg, nil
}

// intakeKey is under which name of a run the stream of submissions is noted.
var intakeKey = strings.TrimPrefix(events.IntakeStream, events.RunStream(""))

// publishSubmission repeats until the intake's stream has the message: the stream de-duplicates by
// the message's ID. dropped says that it had one of that ID.
func (l Submitter) publishSubmission(ctx context.Context, msg *nats.Msg) (dropped bool, err error) {
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		sent := time.Now()
		ack, err := l.js.PublishMsg(attempt, msg, jetstream.WithExpectStream(events.IntakeStream))
		cancel()
		if err == nil || streamFull(err) {
			l.appends.answered(intakeKey, sent, err)
		}
		if err == nil {
			return ack.Duplicate, nil
		}
		if !unknownOutcome(err) || ctx.Err() != nil {
			return false, err
		}
		if !askAgain.Wait(ctx, try) {
			return false, ctx.Err()
		}
	}
}

// SubmittedBody reads the body of a submission, and fetches it from the store when the submission
// refers to a blob by its digest. What is wrong with a reference is an events.ErrMalformed, which
// quotes the reference alone, or an error of package storage: ErrNotFound, ErrCorrupt, ErrTooLarge.
func SubmittedBody(ctx context.Context, store storage.Store, h nats.Header, body []byte) ([]byte, error) {
	if len(h[events.HeaderDataRef]) == 0 {
		return body, nil
	}
	var ref storage.Ref
	if err := json.Unmarshal(body, &ref); err != nil {
		return nil, fmt.Errorf("reference: %w: %w", events.ErrMalformed, err)
	}
	if err := topology.CheckBlob(ref); err != nil {
		return nil, fmt.Errorf("reference: %w: %w", events.ErrMalformed, err)
	}
	if ref.Size > maxSubmission {
		return nil, fmt.Errorf("%s: %w: %d bytes (limit %d)", ref.Key, storage.ErrTooLarge, ref.Size, maxSubmission)
	}
	return storage.GetBlob(ctx, store, ref)
}

// maxSubmission bounds what an outsider may hand in as one fact.
const maxSubmission = 64 << 20

// AppendOnce puts the event behind whatever link is the last one, unless a link that was written
// since a moment has its ID: what a repeated delivery states is on the log once. check may refuse
// the last link (nil: none).
func (l Appender) AppendOnce(ctx context.Context, e events.Event, since time.Time,
	check func(last *events.Event) error) (events.Event, error) {
	var earlier *events.Event
	stored, _, err := l.AppendLast(ctx, e, func(last *events.Event) error {
		if last != nil {
			known, found, err := l.linkSince(ctx, *last, since, e.ID)
			if err != nil {
				return err
			}
			if found {
				earlier = &known
				return errStop
			}
		}
		if check == nil {
			return nil
		}
		return check(last)
	})
	if earlier != nil {
		return *earlier, nil
	}
	return stored, err
}

// Behind links an event behind the last link of its chain, unless a link that was written
// since a moment has its ID: then stated is set. It appends nothing: the append fails where
// another writer is faster.
func (l Reader) Behind(ctx context.Context, e events.Event,
	since time.Time) (linked events.Event, stated bool, err error) {
	e, last, err := l.BehindLast(ctx, e)
	if err != nil || last == nil {
		return e, false, err
	}
	_, stated, err = l.linkSince(ctx, *last, since, e.ID)
	return e, stated, err
}

// BehindLast links an event behind the last link of its chain, which it gives too (nil: the event
// is the first). It appends nothing: the append fails where another writer is faster.
func (l Reader) BehindLast(ctx context.Context, e events.Event) (linked events.Event, last *events.Event, err error) {
	link, err := l.Last(ctx, e.Run, e.Type.Kind(), e.Entity)
	if errors.Is(err, ErrNotFound) {
		return e, nil, nil
	}
	if err != nil {
		return e, nil, err
	}
	e.Prev = link.Seq
	return e, &link, nil
}

// linkSince finds the one of the links of a chain, from last back to a moment, that has the ID.
func (l Reader) linkSince(ctx context.Context, last events.Event, since time.Time,
	id string) (events.Event, bool, error) {
	// Clocks of services may differ from the server's by this much.
	const skew = time.Minute
	for link := last; ; {
		if link.ID == id {
			return link, true, nil
		}
		if link.Prev == 0 || link.Time.Before(since.Add(-skew)) {
			return events.Event{}, false, nil
		}
		var err error
		if link, err = l.Event(ctx, link.Run, link.Prev); err != nil {
			return events.Event{}, false, err
		}
	}
}
