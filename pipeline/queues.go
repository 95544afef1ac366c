package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

const (
	// findEvery is how often a shared stream is searched for queues of which
	// the server's word was lost.
	findEvery = 5 * time.Second
	// queueRests is how long an empty queue is served.
	queueRests = time.Minute
	// giveWayAfter is how long the strangers' consumer may have the messages of a queue that is
	// known: a round that goes on for no stranger ends sooner.
	giveWayAfter = 300 * time.Millisecond
)

// queues serves the queues of a stream that is shared by senders: each has a consumer while
// something waits in it, or did a moment ago. Those of strangers share one. The stream keeps each
// message until its queue's consumer has dealt with it, so a queue may be left at any moment.
type queues struct {
	*effectService
	spec      topology.ConsumerSpec
	stream    topology.StreamSpec
	strangers *strangers

	mu     sync.Mutex
	served map[string]*servedQueue

	lost int // messages in no queue, at the last search
}

type servedQueue struct {
	stop  func()
	queue topology.Queue
	used  time.Time
}

// Arrival is a message that the server has stored, without its body.
type Arrival struct {
	Message
	Queue topology.Queue // empty where the subject is in none
	// Stranger: the queue is of no open run and no policy of one, so it has no consumer of its own.
	Stranger bool
	Size     int64 // of the body
}

// Queued is what waits in a shared stream.
type Queued struct {
	// First and Last are the sequences of its first and last message.
	First, Last, Messages, Bytes uint64
	// MaxBytes is the limit of the stream.
	MaxBytes int64
	// Full has the names of the queues with messages, of strangers some thousand. A message behind
	// Last may be in another one.
	Full map[string]bool
}

// Arrivals hears what arrives in the queues of a shared stream.
type Arrivals interface {
	// Arrived is told of a message when the server has stored it, mostly before the handler gets
	// it. It must not wait. Words may be lost.
	Arrived(Arrival)
	// NoteQueued is told from time to time what waits.
	NoteQueued(Queued)
}

// arrived tells of a message that the server has told of.
func (q *queues) arrived(queue topology.Queue, subject string, told *nats.Msg) {
	if q.effect.Arrivals == nil {
		return
	}
	added := func(name string) (value string) { // the server adds its headers behind the sender's
		if values := told.Header[name]; len(values) > 0 {
			value, told.Header[name] = values[len(values)-1], values[:len(values)-1]
		}
		return value
	}
	seq, err := strconv.ParseUint(added(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return
	}
	size, err := strconv.ParseInt(added(messageSizeHeader), 10, 64)
	if err != nil {
		return
	}
	for _, name := range []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.TimeStampHeaer,
		jetstream.LastSequenceHeader} {
		added(name)
	}
	q.effect.Arrivals.Arrived(Arrival{Message{Subject: subject, Header: told.Header, Seq: seq},
		queue, !q.knows(queue), size})
}

// messageSizeHeader is where the server tells the size of a body.
const messageSizeHeader = "Nats-Msg-Size"

// serveQueues works on all queues of a shared stream until the context ends.
func (s *effectService) serveQueues(ctx context.Context, spec topology.ConsumerSpec) {
	q := &queues{effectService: s, spec: spec, stream: topology.Stream(spec.Stream), strangers: newStrangers(),
		served: map[string]*servedQueue{}}
	q.serving.Go(func() { q.serveStrangers(ctx) })
	_ = serveAgain.Keep(ctx, func() (bool, error) {
		err := q.hear(ctx)
		return ctx.Err() != nil, err
	}, func(err error, wait time.Duration) {
		s.env.Logger.Warn("queues unavailable", "service", s.effect.Name, "stream", spec.Stream,
			"retry_in", wait, "error", err)
	})
}

// hear serves the queues that the server tells of, and searches for others from time to time.
func (q *queues) hear(ctx context.Context) error {
	told, err := q.env.Log.Conn().Subscribe(q.stream.Tells+">", func(m *nats.Msg) {
		subject := events.IntakePrefix + strings.TrimPrefix(m.Subject, q.stream.Tells)
		queue, ok := topology.QueueOf(subject)
		q.arrived(queue, subject, m)
		if ok {
			q.serve(ctx, queue)
		}
	})
	if err != nil {
		return fmt.Errorf("hear of submissions: %w", err)
	}
	defer func() { _ = told.Unsubscribe() }()
	for {
		if err := q.find(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(findEvery):
		case <-q.strangers.search:
		}
	}
}

// serve serves a queue, alone or among strangers.
func (q *queues) serve(ctx context.Context, queue topology.Queue) (known bool) {
	known = q.knows(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.served[queue.Name]; s != nil {
		s.used = time.Now()
		return true
	}
	if !known {
		q.strangers.add(queue)
		return false
	}
	if ctx.Err() == nil {
		serving, stop := context.WithCancel(ctx)
		q.served[queue.Name] = &servedQueue{stop: stop, queue: queue, used: time.Now()}
		var refused time.Time
		q.serveWith(serving, &q.serving, q.spec.ForQueue(queue),
			func(ctx context.Context) (jetstream.Consumer, error) { return q.ensure(ctx, queue, &refused) })
	}
	return true
}

// ensure makes the consumer that a queue has alone. That of strangers gives way where it goes on
// selecting the queue's messages: another process serves it that knows less, or was killed. Where
// it is this process that knows the queue no more, the queue becomes a stranger's. refused is when
// the server last refused the consumer for that.
func (q *queues) ensure(ctx context.Context, queue topology.Queue, refused *time.Time) (jetstream.Consumer, error) {
	spec := q.spec.ForQueue(queue)
	consumer, err := q.env.Log.Streams.EnsureConsumer(ctx, spec, "")
	switch {
	case !notUnique(err):
		*refused = time.Time{}
	case !q.knows(queue):
		q.leaveToStrangers(queue)
	case refused.IsZero(): // a round that ends by itself
		*refused = time.Now()
	case time.Since(*refused) >= giveWayAfter:
		*refused = time.Now()
		if err := q.removeConsumer(ctx, q.spec.ForStrangers(nil)); err != nil {
			return nil, err
		}
		return q.env.Log.Streams.EnsureConsumer(ctx, spec, "")
	}
	return consumer, err
}

// leaveToStrangers ends the service of a queue that was known, and lets it
// be served as a stranger's.
func (q *queues) leaveToStrangers(queue topology.Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.served[queue.Name]; s != nil {
		s.stop()
		delete(q.served, queue.Name)
	}
	q.strangers.add(queue)
}

// knows reports whether a queue is one of those of open runs and their policies, of which
// there is a bounded number.
func (q *queues) knows(queue topology.Queue) bool {
	q.effectService.mu.Lock()
	defer q.effectService.mu.Unlock()
	switch {
	case queue.Kind == "":
		return false
	case queue.Run == events.Catalogue:
		return q.policies[queue.Entity] > 0
	}
	return q.runs[queue.Run] != nil
}

// find serves the queues of all messages on the stream, and leaves empty ones.
func (q *queues) find(ctx context.Context) error {
	began, full, strangers, lost, found := time.Now(), map[string]bool{}, 0, 0, Queued{}
	for offset := 0; ; {
		page, err := q.subjects(ctx, offset)
		if err != nil {
			return err
		}
		if s := page.State; offset == 0 {
			found = Queued{s.First, s.Last, s.Messages, s.Bytes, page.Config.MaxBytes, full}
		}
		for subject, n := range page.State.Subjects {
			queue, ok := topology.QueueOf(subject)
			if !ok {
				lost += int(n)
				continue
			}
			if full[queue.Name] {
				continue
			}
			if !q.serve(ctx, queue) {
				if strangers++; strangers > rememberedStrangers {
					continue
				}
			}
			full[queue.Name] = true
		}
		if offset += len(page.State.Subjects); offset >= page.Total || len(page.State.Subjects) == 0 {
			break
		}
	}
	if lost > q.lost {
		q.env.Logger.Error("submissions on subjects with wildcards: remove them from the stream",
			"stream", q.spec.Stream, "messages", lost)
	}
	q.lost = lost
	if q.effect.Arrivals != nil {
		q.effect.Arrivals.NoteQueued(found)
	}
	return q.leave(ctx, began, full)
}

// leave ends the service of queues that were empty, and were not heard of since the search began.
// The server removes their consumers after a while. One that has become a stranger's is removed
// here, as the strangers' consumer must be the only one that selects its messages.
func (q *queues) leave(ctx context.Context, began time.Time, full map[string]bool) error {
	var strangers []topology.Queue
	q.mu.Lock()
	for name, s := range q.served {
		if full[name] || s.used.After(began) || began.Sub(s.used) < queueRests {
			continue
		}
		s.stop()
		delete(q.served, name)
		if !q.knows(s.queue) {
			strangers = append(strangers, s.queue)
		}
	}
	q.mu.Unlock()
	return q.removeConsumers(ctx, strangers)
}

// removeConsumers removes the consumers that queues have alone.
func (q *queues) removeConsumers(ctx context.Context, queues []topology.Queue) error {
	for _, queue := range queues {
		if err := q.removeConsumer(ctx, q.spec.ForQueue(queue)); err != nil {
			return err
		}
	}
	return nil
}

func (q *queues) removeConsumer(ctx context.Context, spec topology.ConsumerSpec) error {
	err := q.env.Log.JetStream().DeleteConsumer(ctx, spec.Stream, spec.Name)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !streamDeleted(err) {
		return fmt.Errorf("remove consumer %s of %s: %w", spec.Name, spec.Stream, err)
	}
	return nil
}

// subjectPage is a part of the subjects of a stream with the number of messages on
// each, and the stream's state.
type subjectPage struct {
	Total  int `json:"total"`
	Config struct {
		MaxBytes int64 `json:"max_bytes"`
	} `json:"config"`
	State struct {
		Messages uint64            `json:"messages"`
		Bytes    uint64            `json:"bytes"`
		First    uint64            `json:"first_seq"`
		Last     uint64            `json:"last_seq"`
		Subjects map[string]uint64 `json:"subjects"`
	} `json:"state"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// subjects asks the server for the subjects of the stream from one on. There are
// too many to hold them all.
func (q *queues) subjects(ctx context.Context, offset int) (page subjectPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, askConsumerFor)
	defer cancel()
	asked := fmt.Appendf(nil, `{"subjects_filter":%q,"offset":%d}`, ">", offset)
	answer, err := q.env.Log.Conn().RequestWithContext(ctx, "$JS.API.STREAM.INFO."+q.spec.Stream, asked)
	if err == nil {
		err = json.Unmarshal(answer.Data, &page)
	}
	if err == nil && page.Error != nil {
		err = errors.New(page.Error.Description)
	}
	if err != nil {
		return page, fmt.Errorf("find the queues of %s: %w", q.spec.Stream, err)
	}
	return page, nil
}
