package intake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

const (
	// mostWaiting is how many submissions may wait in the stream.
	mostWaiting = 1 << 17
	// fullAgain is when a sender may submit again whose queue had more than its share.
	fullAgain = time.Second
	// outOfOrder is how far behind the last message of a queue another one is at most that this
	// process still reaches: other processes have dealt with what is farther behind.
	outOfOrder = 4 * slots
	// mostStrangers bounds the queues of strangers that are remembered.
	mostStrangers = 128
	// purgeTime is how long the server may take to purge a part of a queue.
	purgeTime = 10 * time.Second
	// recordBytes is what the server writes beside the subject, the header and the body of a
	// message.
	recordBytes = 34
)

// arrivals counts submissions when the server has stored them, however many wait before them.
// Senders pay their quotas here. A queue may hold as much of the stream as is free beside it, and
// loses the older half where it has more: so one flood gets half of the stream, two get a third
// each, and room is left for everybody else. A queue loses nothing while a message waits in it that
// this process was not told of: nobody would answer that one. Of strangers, who may invent names,
// mostStrangers have a queue here, and the others count as what nobody told of.
type arrivals struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	from   *senders
	meter  *meter
	answer func(reply string, a events.IntakeAnswer)
	purges chan topology.Queue

	mu     sync.Mutex
	queues map[string]*arrivedQueue
	// strangers are how many of the queues are of strangers.
	strangers int
	all       load
	// unseen is what waits in the stream and did not arrive here: it was there before this process,
	// or the server's word of it was lost.
	unseen load
	most   load
	found  pipeline.Queued // at the last search
	// last is the last message that this process was told of, and whole the one from
	// which on it was told of all.
	last, whole uint64
}

// load is a number of messages and their bytes in the stream.
type load struct{ messages, bytes int64 }

func (l load) plus(o load) load  { return load{l.messages + o.messages, l.bytes + o.bytes} }
func (l load) minus(o load) load { return load{l.messages - o.messages, l.bytes - o.bytes} }
func (l load) half() load        { return load{l.messages / 2, l.bytes / 2} }
func (l load) atLeastNone() load { return load{max(0, l.messages), max(0, l.bytes)} }

// exceeds reports whether there are more messages or bytes than so many.
func (l load) exceeds(most load) bool { return l.messages > most.messages || l.bytes > most.bytes }

// arrivedQueue has the messages of a queue that have arrived, in the order of the stream.
type arrivedQueue struct {
	waiting []arrived
	share   load   // those that are not done
	reached uint64 // the last one that was handled
	purging bool
	// stranger: it has no consumer of its own, see pipeline.Arrival.
	stranger bool
	// postponed: not all that waits is known, until a handler has had what is not, or a search.
	postponed bool
}

type arrived struct {
	seq     uint64
	bytes   int64
	reply   string
	charged bool
	over    *refusal // its sender has spent the quota
	done    bool
}

func (m arrived) load() load { return load{1, m.bytes} }

func newArrivals(nc *nats.Conn, js jetstream.JetStream, from *senders, meter *meter,
	answer func(string, events.IntakeAnswer)) *arrivals {
	return &arrivals{
		nc: nc, js: js, from: from, meter: meter, answer: answer, purges: make(chan topology.Queue, rememberedRuns),
		queues: map[string]*arrivedQueue{},
		most:   load{mostWaiting, topology.Stream(events.IntakeStream).MaxBytes},
	}
}

// Arrived implements pipeline.Arrivals.
func (a *arrivals) Arrived(m pipeline.Arrival) {
	one := arrived{seq: m.Seq, bytes: storedBytes(m), reply: replyTo(m.Message)}
	from, remembered := a.from.remembered(m.Subject)
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Seq != a.last+1 {
		a.whole = m.Seq
	}
	a.last = m.Seq
	if m.Queue.Name == "" {
		return // a subject with wildcards, in no queue
	}
	q := a.queues[m.Queue.Name]
	if q == nil && m.Stranger && a.strangers >= mostStrangers {
		a.unseen = a.unseen.plus(one.load())
		return
	}
	if q == nil {
		q = &arrivedQueue{}
		a.queues[m.Queue.Name] = q
	}
	if q.stranger != m.Stranger { // its run was opened, or closed
		q.stranger = m.Stranger
		if m.Stranger {
			a.strangers++
		} else {
			a.strangers--
		}
	}
	if m.Seq <= q.reached {
		return // the word of it comes behind the message, which was charged when it was reached
	}
	if remembered {
		one.charged = !errors.As(a.meter.charge(from, 1, float64(m.Size)), &one.over)
	}
	q.waiting = append(q.waiting, one)
	q.share, a.all = q.share.plus(one.load()), a.all.plus(one.load())
	if a.exceeds(q) && !q.purging && !q.postponed {
		select {
		case a.purges <- m.Queue:
			q.purging = true
		default: // the next message asks again
		}
	}
}

// exceeds reports whether a queue has more of the stream than is free.
func (a *arrivals) exceeds(q *arrivedQueue) bool {
	return q.share.messages > 1 && q.share.exceeds(a.most.minus(a.all).minus(a.unseen))
}

// storedBytes is what the stream's limit counts of a message.
func storedBytes(m pipeline.Arrival) int64 {
	bytes := int64(recordBytes+len(m.Subject)) + m.Size
	for name, values := range m.Header {
		for _, value := range values {
			bytes += int64(len(name) + len(value) + len(": \r\n"))
		}
	}
	return bytes
}

// reach notes that a message is handled now, and gives what it was when it arrived. That is empty
// where nobody told of it.
func (a *arrivals) reach(m pipeline.Message) (one arrived) {
	queue, _ := topology.QueueOf(m.Subject)
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.queues[queue.Name]
	if q == nil {
		if m.Delivered <= 1 && !m.Again {
			was := load{1, storedBytes(pipeline.Arrival{Message: m, Size: int64(len(m.Data))})}
			a.unseen = a.unseen.minus(was).atLeastNone()
		}
		return one
	}
	q.reached = max(q.reached, m.Seq)
	q.postponed = q.postponed && m.Seq+1 < a.whole
	i, found := q.find(m.Seq)
	if found {
		one = q.waiting[i]
		a.finish(q, i)
	}
	a.drop(q, max(0, i-outOfOrder))
	for len(q.waiting) > 0 && q.waiting[0].done {
		q.waiting = q.waiting[1:]
	}
	return one
}

// finish takes a message from what waits.
func (a *arrivals) finish(q *arrivedQueue, i int) {
	if m := &q.waiting[i]; !m.done {
		m.done = true
		q.share, a.all = q.share.minus(m.load()), a.all.minus(m.load())
	}
}

// drop forgets the first messages of a queue.
func (a *arrivals) drop(q *arrivedQueue, n int) {
	for i := range n {
		a.finish(q, i)
	}
	q.waiting = q.waiting[n:]
}

func (q *arrivedQueue) find(seq uint64) (i int, found bool) {
	return slices.BinarySearchFunc(q.waiting, seq, bySequence)
}

func bySequence(m arrived, seq uint64) int { return cmp.Compare(m.seq, seq) }

// NoteQueued implements pipeline.Arrivals: other processes deal with messages
// too, and words are lost.
func (a *arrivals) NoteQueued(f pipeline.Queued) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = f
	later := load{} // what has arrived since
	for name, q := range a.queues {
		q.postponed = false
		gone, _ := q.find(f.First)
		if !f.Full[name] {
			gone, _ = q.find(f.Last + 1)
		}
		a.drop(q, gone)
		if len(q.waiting) == 0 && !f.Full[name] && q.reached <= f.Last && !q.purging {
			delete(a.queues, name)
			if q.stranger {
				a.strangers--
			}
		}
		for i := len(q.waiting) - 1; i >= 0 && q.waiting[i].seq > f.Last; i-- {
			if !q.waiting[i].done {
				later = later.plus(q.waiting[i].load())
			}
		}
	}
	a.unseen = load{int64(f.Messages), int64(f.Bytes)}.plus(later).minus(a.all).atLeastNone()
	if f.MaxBytes > 0 {
		a.most.bytes = f.MaxBytes
	}
}

// purge takes the older half of the queues that have more than their share from the stream, until
// the context ends.
func (a *arrivals) purge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case queue := <-a.purges:
			if err := a.purgeHalf(ctx, queue); err != nil && ctx.Err() == nil {
				a.meter.logger.Error("queue of submissions not shortened", "queue", queue.Filter, "error", err)
			}
		}
	}
}

// purgeHalf takes the older half of a queue from the stream if the queue still has more than its
// share.
func (a *arrivals) purgeHalf(ctx context.Context, queue topology.Queue) error {
	a.mu.Lock()
	q := a.queues[queue.Name]
	spec := topology.ConsumersOf(topology.Intake)[0]
	consumer := spec.ForQueue(queue).Name
	if q.stranger {
		consumer = spec.ForStrangers(nil).Name
	}
	a.mu.Unlock()
	before, err := a.delivered(ctx, consumer, queue)
	a.mu.Lock()
	var older []arrived
	switch {
	case err != nil || !a.exceeds(q):
	case a.complete(queue.Name, before.Stream):
		older = slices.Clone(q.olderHalf())
	default:
		q.postponed = true
	}
	if len(older) == 0 {
		q.purging = false
		a.mu.Unlock()
		return err
	}
	a.mu.Unlock()
	purged, err := a.purgeBefore(ctx, queue, older[len(older)-1].seq+1)
	a.mu.Lock()
	q.purging = false
	if err == nil {
		n, _ := q.find(older[len(older)-1].seq + 1)
		a.drop(q, n)
	}
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.meter.logger.Warn("submissions refused: their queue has more of the stream than is free",
		"queue", queue.Filter, "refused", purged)
	after, err := a.delivered(ctx, consumer, queue)
	if err != nil {
		return err
	}
	// What a handler has is not answered here: what was delivered before, and what may have been
	// delivered since.
	delivered, _ := slices.BinarySearchFunc(older, before.Stream+1, bySequence)
	delivered += int(max(after.Consumer, before.Consumer) - before.Consumer)
	for _, m := range older[min(delivered, len(older)):] {
		a.answer(m.reply, events.IntakeAnswer{RetryAfterMS: fullAgain.Milliseconds(),
			Error: fmt.Sprintf("%s: %d submissions of this queue wait, which is more than there is room for beside others: submit it again in %s",
				queue.Filter, len(older), fullAgain)})
	}
	return nil
}

// complete reports whether this process was told of all messages of a queue that no handler has
// had, when a message was the last that one has had.
func (a *arrivals) complete(name string, delivered uint64) bool {
	return a.whole <= max(delivered+1, a.found.First) || !a.found.Full[name] && a.whole <= a.found.Last+1
}

// delivered is the last message of a consumer that a handler has had, of whatever process, and how
// many deliveries there were. It is empty where the consumer does not have the queue: the
// strangers' one has those of its round.
func (a *arrivals) delivered(
	ctx context.Context, name string, queue topology.Queue,
) (last jetstream.SequenceInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	c, err := a.js.Consumer(ctx, events.IntakeStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return last, nil
	}
	if err != nil {
		return last, fmt.Errorf("look at consumer %s of %s: %w", name, events.IntakeStream, err)
	}
	info := c.CachedInfo()
	if !slices.Contains(append(info.Config.FilterSubjects, info.Config.FilterSubject), queue.Filter) {
		return last, nil
	}
	return info.Delivered, nil
}

// olderHalf are the messages of a queue but for the newest, which are half of it, at least one.
func (q *arrivedQueue) olderHalf() []arrived {
	newer := load{}
	for i, m := range slices.Backward(q.waiting) {
		if m.done {
			continue
		}
		if newer = newer.plus(m.load()); newer.messages > 1 && newer.exceeds(q.share.half()) {
			return q.waiting[:i+1]
		}
	}
	return nil
}

// purgeBefore purges the messages of a queue before a sequence.
func (a *arrivals) purgeBefore(ctx context.Context, queue topology.Queue, seq uint64) (purged int, err error) {
	ctx, cancel := context.WithTimeout(ctx, purgeTime)
	defer cancel()
	told, err := a.nc.RequestWithContext(ctx, topology.PurgeSubject+events.IntakeStream,
		fmt.Appendf(nil, `{"filter":%q,"seq":%d}`, queue.Filter, seq))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Purged int `json:"purged"`
		Error  *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(told.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		return 0, errors.New(answer.Error.Description)
	}
	return answer.Purged, nil
}

// remembered is who sent a message to a subject, where no look at the log is needed to tell.
func (s *senders) remembered(subject string) (from sender, ok bool) {
	run, rest, _ := strings.Cut(strings.TrimPrefix(subject, events.IntakePrefix), ".")
	if run == events.Catalogue {
		tokens := strings.Split(rest, ".")
		run = strings.Join(tokens[:min(2, len(tokens))], ".")
	}
	if !s.feeds.Contains(run) {
		return from, false
	}
	from, err := s.find(context.Background(), subject)
	return from, err == nil
}
