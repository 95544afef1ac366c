package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// ErrReplaced means that the run's stream was deleted and made again. What was
// read of it before is void.
var ErrReplaced = errors.New("the run's stream was made again")

// errStop ends a read that has reached its end.
var errStop = errors.New("stop")

// All reads a run from sequence from (at least 1) up to the last event there is when it begins:
// what has left its stream, or the whole of a run whose stream was deleted, from the archive.
func (l Reader) All(ctx context.Context, run string, from uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		in, err := l.Incarnation(ctx, run)
		if errors.Is(err, ErrNotFound) {
			l.archived(ctx, run, from, yield)
			return
		}
		if err != nil {
			yield(events.Event{}, err)
			return
		}
		if in.LastSeq < max(from, in.FirstSeq, 1) {
			return
		}
		r := &cursor{log: l, run: run, created: in.Created, next: max(from, 1), until: in.LastSeq,
			patience: endPatience, fn: func(e events.Event) error {
				if !yield(e, nil) {
					return errStop
				}
				return nil
			}}
		if err := r.read(ctx); err != nil && !errors.Is(err, errStop) {
			yield(events.Event{}, err)
		}
	}
}

// Follow hands every event of a run's stream to fn, from sequence from on and as they come, until
// the context ends or fn returns an error, which Follow returns. Events come in order; after a lost
// connection the read goes on behind the last one. With the filter "" they come without gaps: what
// has left the stream is read from the archive. Any other filter gives what the stream has.
func (l Reader) Follow(ctx context.Context, run string, from uint64, filter string, fn func(events.Event) error) error {
	in, err := l.lookUp(ctx, run)
	if err != nil {
		return fmt.Errorf("follow: %w", err)
	}
	return l.FollowStream(ctx, run, in, from, filter, fn)
}

// lookUp is Incarnation for who follows: a server that gives no answer is asked again, for as long
// as a reader has patience.
func (l Reader) lookUp(ctx context.Context, run string) (in Incarnation, err error) {
	for began, try := time.Now(), 1; ; try++ {
		in, err = l.Incarnation(ctx, run)
		if err == nil || !unknownOutcome(err) || time.Since(began) > endPatience || !askAgain.Wait(ctx, try) {
			return in, err
		}
	}
}

// FollowStream is Follow for who has folded a part of the stream already: it returns ErrReplaced
// when the stream is not that incarnation, or is no longer.
func (l Reader) FollowStream(ctx context.Context, run string, in Incarnation, from uint64, filter string,
	fn func(events.Event) error) error {
	r := &cursor{log: l, run: run, created: in.Created, filter: filter, next: max(from, 1), fn: fn}
	return r.read(ctx)
}

// cursor reads one incarnation of a stream through one ephemeral consumer after the other. A
// consumer of the client library that makes itself anew would go on in a stream of the same
// name that is another one.
type cursor struct {
	log     Reader
	run     string
	created time.Time
	filter  string
	fn      func(events.Event) error
	raw     func(jetstream.Msg, *jetstream.MsgMetadata) error // instead of fn
	next    uint64                                            // the sequence to read from
	until   uint64                                            // the last sequence of a read that ends, 0 otherwise

	given    uint64        // the last sequence that the server gave
	last     events.Event  // that was read, without its body
	restores bool          // the stream may be hidden
	patience time.Duration // how long the read goes on without an event; 0 = for ever
}

// final marks an error that reading again does not mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// endPatience is how long All goes on without an event. A reader that follows waits for its server;
// one that only looks is told.
const endPatience = time.Minute

// read reads until the end, a final error or the end of the context, or until its patience is over.
func (r *cursor) read(ctx context.Context) error {
	last := time.Now() // that an event came
	for try := 0; ; try++ {
		before := r.next
		err := r.session(ctx)
		var f final
		switch {
		case err == nil:
			return nil
		case errors.As(err, &f):
			return f.error
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if r.next > before {
			try, last = 0, time.Now()
		}
		if waited := time.Since(last); r.patience > 0 && waited > r.patience {
			return fmt.Errorf("read run %s: the server has given nothing for %s: %w", r.run,
				waited.Round(time.Second), err)
		}
		if !askAgain.Wait(ctx, try+1) {
			return ctx.Err()
		}
	}
}

// The server beats while there is nothing to read; a reader that misses two
// beats makes a new consumer.
const heartbeat = 5 * time.Second

// errReconnected: the server that is connected now may have forgotten the consumer.
var errReconnected = errors.New("reconnected")

// session reads through one consumer until it breaks. The server pushes, under flow control:
// to fetch from a consumer whose name was made up takes the right to fetch from every
// consumer, which no service has.
func (r *cursor) session(ctx context.Context) error {
	ctx, stop := r.untilReconnected(ctx)
	defer stop()
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	if r.until > 0 && consumer.CachedInfo().NumPending == 0 {
		if over, err := r.over(ctx); over || err != nil {
			return err
		}
	}
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	arrived := make(chan jetstream.Msg)
	pushed, err := consumer.Consume(func(m jetstream.Msg) {
		select {
		case arrived <- m:
		case <-ctx.Done():
		}
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { broken(err) }))
	if err != nil {
		return err
	}
	defer pushed.Stop()
	for delivered := uint64(1); ; delivered++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case msg := <-arrived:
			if end, err := r.receive(ctx, msg, delivered); end || err != nil {
				return err
			}
		}
	}
}

// receive takes one delivery, and reports whether it was the last one of a read that ends.
func (r *cursor) receive(ctx context.Context, msg jetstream.Msg, delivered uint64) (end bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, final{fmt.Errorf("follow run %s: %w", r.run, err)}
	}
	if meta.Sequence.Consumer != delivered {
		return false, fmt.Errorf("delivery %d came as number %d", delivered, meta.Sequence.Consumer)
	}
	if r.whole() && meta.Sequence.Stream > r.next {
		if end, err := r.fill(ctx); end || err != nil {
			return end, err
		}
	}
	r.given = meta.Sequence.Stream
	if r.raw != nil {
		if err := r.raw(msg, meta); err != nil {
			return false, final{err}
		}
		r.next = meta.Sequence.Stream + 1
	} else if err := r.take(ctx, msg, meta.Sequence.Stream); err != nil {
		return false, err
	}
	if r.until > 0 && meta.Sequence.Stream >= r.until {
		return true, nil
	}
	if r.until > 0 && meta.NumPending == 0 {
		return r.over(ctx)
	}
	return false, nil
}

// over asks the stream's leader whether a read that ends has come to its end, when the
// consumer says that nothing is pending: a consumer on a replica that is still catching
// up does not know better.
func (r *cursor) over(ctx context.Context) (bool, error) {
	over, err := r.pastEnd(ctx)
	if over && err == nil && r.whole() && r.next <= r.until { // what is between has left the stream
		if end, err := r.fill(ctx); end || err != nil {
			return end, err
		}
	}
	return over, err
}

// pastEnd reports whether the stream holds nothing more up to the end.
func (r *cursor) pastEnd(ctx context.Context) (bool, error) {
	next, err := r.log.leaderGet(ctx, r.run, map[string]any{"seq": r.next, "next_by_subj": everythingOn(r.run)})
	switch {
	case errors.Is(err, errNoRun):
		return false, final{fmt.Errorf("follow run %s: %w", r.run, err)}
	case errors.Is(err, ErrNotFound):
		return true, nil
	case errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject):
		return false, nil // no event, but there
	}
	return err == nil && next.Seq > r.until, err
}

// everythingOn selects everything on a run's stream.
func everythingOn(run string) string { return topology.Stream(events.RunStream(run)).Subjects[0] }

// Unreadable is the type that a reader of a whole stream is given in place of a message that is no
// event. Only a foreign writer can have put it there, and it must not stop those who read on.
const Unreadable events.Type = "_.unreadable"

func (r *cursor) take(ctx context.Context, msg jetstream.Msg, seq uint64) error {
	e, err := Decode(ctx, r.log.store, msg.Subject(), msg.Headers(), msg.Data(), seq)
	if errors.Is(err, events.ErrMalformed) || errors.Is(err, events.ErrSubject) {
		e, err = events.Event{Run: r.run, Type: Unreadable, Seq: seq, Data: msg.Data()}, nil
	}
	if err != nil && ctx.Err() != nil {
		return err // the body was being fetched when the connection came back
	}
	if err != nil {
		return final{fmt.Errorf("follow run %s: %w", r.run, err)}
	}
	if err := r.fn(e); err != nil {
		return final{err}
	}
	e.Data = nil
	r.next, r.last = seq+1, e
	return nil
}

// rewritten reports whether another event stands now where the last one was read: the stream was
// rolled back and has grown again.
func (r *cursor) rewritten(ctx context.Context) bool {
	if r.last.ID == "" {
		return false
	}
	now, err := r.log.leaderGet(ctx, r.run, map[string]any{"seq": r.last.Seq})
	return err == nil && (now.ID != r.last.ID || !now.Time.Equal(r.last.Time))
}

// untilReconnected ends the context when the connection was lost and is there again.
func (r *cursor) untilReconnected(ctx context.Context) (context.Context, func()) {
	connected := r.log.nc.StatusChanged(nats.CONNECTED)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-connected:
			cancel(errReconnected)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		r.log.nc.RemoveStatusListener(connected)
	}
}

// orphanedAfter is when the server removes a consumer that nobody listens to any more.
const orphanedAfter = 5 * time.Second

// consumer makes a consumer, and makes sure that it reads the right incarnation.
func (r *cursor) consumer(ctx context.Context) (jetstream.PushConsumer, error) {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	consumer, err := r.log.js.CreatePushConsumer(asking, events.RunStream(r.run), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next, FilterSubject: r.filter,
		DeliverSubject: r.log.nc.NewInbox(), FlowControl: true, IdleHeartbeat: heartbeat,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: orphanedAfter,
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, final{fmt.Errorf("follow run %s: %w", r.run, errNoRun)}
	}
	if err != nil {
		return nil, lasting(fmt.Errorf("follow run %s: %w", r.run, err))
	}
	in, isHidden, err := r.log.Look(asking, r.run)
	switch {
	case err == nil && isHidden && !r.restores:
		err = final{fmt.Errorf("follow run %s: %w", r.run, ErrRestoring)}
	// it was rolled back: what was read is void, and nobody else is ahead of the leader
	case err == nil && r.given > in.LastSeq && r.log.knownSingle(r.run):
		r.log.forget()
		err = final{fmt.Errorf("follow run %s: %w", r.run, ErrReplaced)}
	case err == nil && (!in.Created.Equal(r.created) || r.rewritten(asking)):
		r.log.forget()
		err = final{fmt.Errorf("follow run %s: %w", r.run, ErrReplaced)}
	}
	return consumer, err
}

// lasting marks what the server refuses for good, such as a filter that is none.
func lasting(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code >= 400 && api.Code < 500 {
		return final{err}
	}
	return err
}
