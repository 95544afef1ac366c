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
	"github.com/rondo-rl/rondo/retry"
)

const (
	// findEvery is how often a shared stream is searched for queues of which the server's word was lost, and strangersEvery how often while
	// strangers wait.
	findEvery      = 5 * time.Second
	strangersEvery = 20 * time.Millisecond
	// queueRests is how long an empty queue is served. That of a stranger is left at once.
	queueRests = time.Minute
	// mostStrangers bounds the queues of strangers that are served at once: who may name any run could have as many as messages.
	mostStrangers = 128
)

// queues serves the queues of a stream that is shared by senders: each has a consumer while something waits in it, or did a moment ago. The stream keeps
// each message until its queue's consumer has dealt with it, so a queue may be left at any moment.
type queues struct {
	*effectService
	spec   topology.ConsumerSpec
	stream topology.StreamSpec

	mu        sync.Mutex
	served    map[string]*servedQueue
	strangers int // of them

	lost int // messages in no queue, at the last search
}

type servedQueue struct {
	stop     func()
	spec     topology.ConsumerSpec
	stranger bool
	used     time.Time
}

// Arrival is a message that the server has stored, without its body.
type Arrival struct {
	Message
	Queue topology.Queue // empty where the subject is in none
	Size  int64          // of the body
}

// Found is what waits in a shared stream.
type Found struct {
	// First and Last are the sequences of its first and last message.
	First, Last, Messages, Bytes uint64
	// MaxBytes is the limit of the stream.
	MaxBytes int64
	// Full has the names of the queues with messages. A message behind Last may be in another one.
	Full map[string]bool
}

// Arrivals hears what arrives in the queues of a shared stream.
type Arrivals interface {
	// Arrived is told of a message when the server has stored it, mostly before the handler gets it. It must not wait. Words may be lost.
	Arrived(Arrival)
	// Found is told from time to time what waits.
	Found(Found)
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
	for _, name := range []string{jetstream.StreamHeader, jetstream.SubjectHeader, jetstream.TimeStampHeaer, jetstream.LastSequenceHeader} {
		added(name)
	}
	q.effect.Arrivals.Arrived(Arrival{Message{Subject: subject, Header: told.Header, Seq: seq}, queue, size})
}

// messageSizeHeader is where the server tells the size of a body.
const messageSizeHeader = "Nats-Msg-Size"

// serveQueues works on all queues of a shared stream until the context ends.
func (s *effectService) serveQueues(ctx context.Context, spec topology.ConsumerSpec) {
	q := &queues{effectService: s, spec: spec, stream: topology.Stream(spec.Stream), served: map[string]*servedQueue{}}
	_ = beginAgain.Keep(ctx, func() (bool, error) {
		err := q.hear(ctx)
		return ctx.Err() != nil, err
	}, func(err error, wait time.Duration) {
		s.env.Logger.Warn("queues unavailable", "service", s.effect.Name, "stream", spec.Stream, "retry_in", wait, "error", err)
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
	for wait := time.Duration(0); retry.Sleep(ctx, wait); {
		if err := q.find(ctx); err != nil {
			return err
		}
		wait = findEvery
		if q.servesStrangers() {
			wait = strangersEvery
		}
	}
	return nil
}

// serve serves a queue, where it is served or there is room for another stranger: a later search finds the others.
func (q *queues) serve(ctx context.Context, queue topology.Queue) {
	stranger := !q.knows(queue)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.served[queue.Name]; s != nil {
		s.used = time.Now()
		return
	}
	if stranger && q.strangers >= mostStrangers || ctx.Err() != nil {
		return
	}
	if stranger {
		q.strangers++
	}
	serving, stop := context.WithCancel(ctx)
	s := &servedQueue{stop: stop, spec: q.spec.ForQueue(queue), stranger: stranger, used: time.Now()}
	q.served[queue.Name] = s
	q.effectService.serve(serving, &q.serving, s.spec, "")
}

// knows reports whether a queue is one of those of open runs and their policies, of which there is a bounded number.
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

func (q *queues) servesStrangers() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.strangers > 0
}

// find serves the queues of all messages on the stream, and leaves empty ones.
func (q *queues) find(ctx context.Context) error {
	began, full, lost, found := time.Now(), map[string]bool{}, 0, Found{}
	for offset := 0; ; {
		page, err := q.subjects(ctx, offset)
		if err != nil {
			return err
		}
		if s := page.State; offset == 0 {
			found = Found{s.First, s.Last, s.Messages, s.Bytes, page.Config.MaxBytes, full}
		}
		for subject, n := range page.State.Subjects {
			queue, ok := topology.QueueOf(subject)
			if !ok {
				lost += int(n)
				continue
			}
			if !full[queue.Name] {
				full[queue.Name] = true
				q.serve(ctx, queue)
			}
		}
		if offset += len(page.State.Subjects); offset >= page.Total || len(page.State.Subjects) == 0 {
			break
		}
	}
	if lost > q.lost {
		q.env.Logger.Error("submissions on subjects with wildcards: remove them from the stream", "stream", q.spec.Stream, "messages", lost)
	}
	q.lost = lost
	if q.effect.Arrivals != nil {
		q.effect.Arrivals.Found(found)
	}
	return q.leave(ctx, began, full)
}

// leave ends the service of queues that were empty, and were not heard of since the search began. The server removes their consumers after a while, and
// those of strangers are removed here: there could be one for each message.
func (q *queues) leave(ctx context.Context, began time.Time, full map[string]bool) error {
	var strangers []topology.ConsumerSpec
	q.mu.Lock()
	for name, s := range q.served {
		if full[name] || s.used.After(began) || !s.stranger && began.Sub(s.used) < queueRests {
			continue
		}
		s.stop()
		delete(q.served, name)
		if s.stranger {
			q.strangers--
			strangers = append(strangers, s.spec)
		}
	}
	q.mu.Unlock()
	for _, spec := range strangers {
		err := q.env.Log.JetStream().DeleteConsumer(ctx, spec.Stream, spec.Name)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) && !gone(err) {
			return fmt.Errorf("remove consumer %s of %s: %w", spec.Name, spec.Stream, err)
		}
	}
	return nil
}

// subjectPage is a part of the subjects of a stream with the number of messages on each, and the stream's state.
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

// subjects asks the server for the subjects of the stream from one on. There are too many to hold them all.
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
