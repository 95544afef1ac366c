package intake

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// arrival is a message that the server has stored, as the runtime tells of it.
func arrival(t *testing.T, seq uint64, subject string, size int64) pipeline.Arrival {
	t.Helper()
	queue, ok := topology.QueueOf(subject)
	if !ok {
		t.Fatalf("%s is in no queue", subject)
	}
	return pipeline.Arrival{Message: pipeline.Message{Subject: subject, Seq: seq}, Queue: queue, Size: size}
}

// TestShareOfTheStream: who sends without end keeps at most as much of the stream as is free beside
// it, and so does each of many. Who sends little keeps all.
func TestShareOfTheStream(t *testing.T) {
	const product, trainer, other = "rondo.in.r.query.q%d.submitted", "rondo.in.s.query.q%d.submitted",
		"rondo.in.r.rollout.x%d-0.scored"
	log := house(t)
	for name, c := range map[string]struct {
		subjects []string
		free     int64
	}{"one": {[]string{product}, 59}, "two": {[]string{product, trainer}, 39},
		"three": {[]string{product, trainer, other}, 29}} {
		t.Run(name, func(t *testing.T) {
			s, err := newService(servicetest.Env(t, log), Quotas{})
			if err != nil {
				t.Fatal(err)
			}
			a := s.queued
			a.most = load{120, 1 << 30}
			a.Arrived(arrival(t, 1, "rondo.in.quiet.batch.trainer.consumed", 10))
			for seq := uint64(2); seq < 2000; {
				for _, subject := range c.subjects {
					a.Arrived(arrival(t, seq, fmt.Sprintf(subject, seq), 10))
					seq++
				}
				for range len(a.purges) {
					q := a.queues[(<-a.purges).Name]
					n := len(q.olderHalf())
					if n == 0 || n == len(q.waiting) {
						t.Fatalf("%d of %d messages are to be purged", n, len(q.waiting))
					}
					a.drop(q, n)
					q.purging = false
				}
				if free := a.most.messages - a.all.messages; free < c.free-int64(len(c.subjects)) {
					t.Fatalf("%d messages of 120 are free beside %d floods, want %d", free, len(c.subjects), c.free)
				}
			}
			if a.queues["quiet+batch"].share.messages != 1 {
				t.Error("who sent one message loses it")
			}
			a.NoteQueued(pipeline.Queued{First: 1, Last: 2100, Messages: 1,
				Bytes: uint64(a.queues["quiet+batch"].share.bytes), Full: map[string]bool{"quiet+batch": true}})
			if a.all.messages != 1 || a.unseen != (load{}) || len(a.queues) != 1 {
				t.Errorf("when all but one are dealt with %+v and %+v wait, in %d queues", a.all,
					a.unseen, len(a.queues))
			}
		})
	}
}

// TestLargeMessagesFillTheirShare: shares are of bytes, too, and what was in the stream before the
// intake counts as taken.
func TestLargeMessagesFillTheirShare(t *testing.T) {
	s, err := newService(servicetest.Env(t, house(t)), Quotas{})
	if err != nil {
		t.Fatal(err)
	}
	a := s.queued
	a.NoteQueued(pipeline.Queued{First: 1, Last: 500, Messages: 500, Bytes: 600 << 10, MaxBytes: 1 << 20,
		Full: map[string]bool{"r+query": true}})
	for i := range uint64(3) { // two have 200 KiB and leave 224, three have more than they leave
		if len(a.purges) > 0 {
			t.Fatalf("%d messages are too many", i)
		}
		a.Arrived(arrival(t, 501+i, fmt.Sprintf("rondo.in.r.query.q%d.submitted", i), 100<<10))
	}
	if len(a.purges) != 1 || len(a.queues["r+query"].olderHalf()) != 2 {
		t.Errorf("%d queues are to be shortened, this one by %d of 3", len(a.purges),
			len(a.queues["r+query"].olderHalf()))
	}
	for _, seq := range []uint64{502, 501, 503, 400} { // in whatever order they are reached
		a.reach(pipeline.Message{Subject: "rondo.in.r.query.q.submitted", Seq: seq})
	}
	if a.all != (load{}) {
		t.Errorf("%+v wait when all are reached", a.all)
	}
	a.Arrived(arrival(t, 502, "rondo.in.r.query.q.submitted", 10))
	if a.all != (load{}) {
		t.Error("a word that comes late counts")
	}
}

// TestQuotasAreChargedOnArrival: what exceeds its sender's quota when it arrives is refused,
// however late it is reached. What has paid does not pay again, and what nobody told of pays when
// it is reached.
func TestQuotasAreChargedOnArrival(t *testing.T) {
	env := servicetest.Env(t, house(t))
	s, err := newService(env, Quotas{MessagesPerMinute: 3})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	s.meter.now = func() time.Time { return now }
	const subject = "rondo.in.r.batch.trainer.consumed"
	if _, err := s.from.find(t.Context(), subject); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= 4; seq++ {
		s.queued.Arrived(arrival(t, seq, subject, 10))
	}
	now = now.Add(20 * time.Second) // enough for one more
	over := func() float64 { return submissions(t, env.Metrics.(*prometheus.Registry))["trainer over_quota"] }
	for _, c := range []struct {
		seq  uint64
		want float64
	}{{1, 0}, {3, 0}, {2, 0}, {4, 1}, {20, 1}, {21, 2}} {
		if _, err := s.Handle(t.Context(), message(c.seq,
			submission{subject: subject, body: `{"step":1}`})); err != nil {
			t.Fatal(err)
		}
		if got := over(); got != c.want {
			t.Errorf("when message %d is reached, %g have been over the quota, want %g", c.seq, got, c.want)
		}
	}
}

// flooded is a queue in which more waits than may.
type flooded struct {
	*arrivals
	queue    topology.Queue
	answered []string // replies of those that were purged
}

// overfill sends 11 submissions of a run, one more than may wait, and tells of
// them from a certain one on.
func overfill(t *testing.T, log *eventlog.Log, run string, told uint64, strangers bool) *flooded {
	t.Helper()
	s, err := newService(servicetest.Env(t, log), Quotas{})
	if err != nil {
		t.Fatal(err)
	}
	f := &flooded{arrivals: s.queued}
	f.answer = func(reply string, _ events.IntakeAnswer) { f.answered = append(f.answered, reply) }
	f.most = load{10, 1 << 30}
	for seq := uint64(1); seq <= 11; seq++ {
		subject := fmt.Sprintf("rondo.in.%s.query.q%02d.submitted", run, seq)
		if err := log.Conn().Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if seq >= told {
			m := arrival(t, seq, subject, 1)
			m.Stranger, m.Header = strangers, nats.Header{events.HeaderReply: {fmt.Sprintf("_INBOX.%02d", seq)}}
			f.queue = m.Queue
			f.Arrived(m)
		}
	}
	natstest.Eventually(t, "all are stored", func() bool { return waiting(t, log) == 11 })
	return f
}

// TestPurgeLeavesUntold: a queue loses nothing while a message waits in it that this process was
// not told of and that no handler has had. Then all that no handler has are answered.
func TestPurgeLeavesUntold(t *testing.T) {
	log := house(t)
	f := overfill(t, log, "r", 4, false)
	shorten := func(want uint64, replies ...string) {
		t.Helper()
		if err := f.purgeHalf(t.Context(), f.queue); err != nil {
			t.Fatal(err)
		}
		if left := waiting(t, log); left != want || !slices.Equal(f.answered, replies) {
			t.Errorf("%d messages are left, want %d; %v are answered, want %v", left, want, f.answered, replies)
		}
	}
	shorten(11)
	c, err := log.JetStream().CreateConsumer(t.Context(), events.IntakeStream, jetstream.ConsumerConfig{
		Durable: topology.ConsumersOf(topology.Intake)[0].ForQueue(f.queue).Name, FilterSubject: f.queue.Filter,
		AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	had := func(n int) {
		t.Helper()
		batch, err := c.Fetch(n)
		if err != nil {
			t.Fatal(err)
		}
		for range batch.Messages() {
			n--
		}
		if n != 0 || batch.Error() != nil {
			t.Fatalf("%d messages are missing: %v", n, batch.Error())
		}
	}
	had(2)
	shorten(11)
	had(3)
	shorten(4, "_INBOX.06", "_INBOX.07")
	// The queue has become small before its turn.
	shorten(4, "_INBOX.06", "_INBOX.07")
}

// TestPurgeOfStrangers: the consumer of strangers says nothing of a queue that is not in its round.
// So such a queue loses nothing while a message of it is untold, and all are answered when it does.
func TestPurgeOfStrangers(t *testing.T) {
	spec := topology.ConsumersOf(topology.Intake)[0]
	for name, c := range map[string]struct {
		told   uint64 // the first of 11
		others bool   // the round is of others
		left   uint64
		from   int // the first that is answered of the older half, 0 for none
	}{
		"an untold one waits":    {4, true, 12, 0},
		"all are told":           {1, true, 6, 1},
		"all are told, in round": {1, false, 6, 4}, // three are delivered, the other queue's behind them
	} {
		t.Run(name, func(t *testing.T) {
			log := house(t)
			f := overfill(t, log, "x", c.told, true)
			if _, err := log.JetStream().Publish(t.Context(), "rondo.in.y.query.q.submitted", []byte("x")); err != nil {
				t.Fatal(err)
			}
			other, _ := topology.QueueOf("rondo.in.y.query.q.submitted")
			round := []topology.Queue{f.queue, other}
			if c.others {
				round = round[1:]
			}
			consumer, err := log.Streams.EnsureConsumer(t.Context(), spec.ForStrangers(round), "")
			if err != nil {
				t.Fatal(err)
			}
			batch, err := consumer.Fetch(map[bool]int{true: 1, false: 3}[c.others])
			if err != nil {
				t.Fatal(err)
			}
			for range batch.Messages() { // they are in work
			}
			if err := f.purgeHalf(t.Context(), f.queue); err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := c.from; i > 0 && i <= 6; i++ {
				want = append(want, fmt.Sprintf("_INBOX.%02d", i))
			}
			if left := waiting(t, log); left != c.left || !slices.Equal(f.answered, want) {
				t.Errorf("%d messages are left, want %d; %v are answered, want %v", left, c.left, f.answered, want)
			}
		})
	}
}

// TestStrangersBecomeKnown: a queue is a stranger's as long as what arrives in it is one's. What is
// remembered of others leaves room, and what of strangers is in no queue leaves when it is handled.
func TestStrangersBecomeKnown(t *testing.T) {
	s, err := newService(servicetest.Env(t, house(t)), Quotas{})
	if err != nil {
		t.Fatal(err)
	}
	a, seq := s.queued, uint64(0)
	arrive := func(i int, stranger bool) pipeline.Message {
		seq++
		m := arrival(t, seq, fmt.Sprintf("rondo.in.x%d.query.q.submitted", i), 10)
		m.Stranger, m.Header = stranger, nats.Header{events.HeaderReply: {"_INBOX.a"}}
		a.Arrived(m)
		m.Data = make([]byte, 10)
		return m.Message
	}
	for i := range mostStrangers {
		arrive(i, true)
	}
	var untold []pipeline.Message
	for range 3 {
		untold = append(untold, arrive(mostStrangers, true))
	}
	if a.strangers != mostStrangers || a.unseen.messages != 3 {
		t.Fatalf("%d queues are of strangers, and %+v is of others", a.strangers, a.unseen)
	}
	again := untold[0]
	again.Delivered = 2
	for _, m := range append(untold[:2:2], again) {
		a.reach(m)
	}
	if one := a.unseen; one.messages != 1 || one.bytes != a.queues["x10+query"].share.bytes+1 { // its name is longer
		t.Errorf("%+v waits when two of three are handled", one)
	}
	for range 2 {
		a.reach(untold[2])
	}
	if a.unseen != (load{}) {
		t.Errorf("%+v waits when all are handled", a.unseen)
	}
	arrive(0, false)
	if q := a.queues["x0+query"]; q.stranger || a.strangers != mostStrangers-1 || q.share.messages != 2 {
		t.Errorf("%+v is the queue of a run that was opened, and %d are of strangers", q, a.strangers)
	}
	arrive(mostStrangers, true)
	arrive(1, false)
	arrive(1, true) // it was closed
	if a.strangers != mostStrangers || a.unseen != (load{}) || !a.queues["x1+query"].stranger {
		t.Errorf("%d queues are of strangers, and %+v is of others", a.strangers, a.unseen)
	}
}

// TestNewestStays: a queue never loses its newest message, however large that is.
func TestNewestStays(t *testing.T) {
	for name, c := range map[string]struct {
		waiting []arrived
		want    int
	}{
		"one":         {[]arrived{{seq: 1, bytes: 10}}, 0},
		"a large one": {[]arrived{{seq: 1, bytes: 10}, {seq: 2, bytes: 10}, {seq: 3, bytes: 1000}}, 2},
		"one is done": {[]arrived{{seq: 1, bytes: 10}, {seq: 2, bytes: 1000}, {seq: 3, done: true}}, 1},
	} {
		q := &arrivedQueue{waiting: c.waiting}
		for _, m := range c.waiting {
			if !m.done {
				q.share = q.share.plus(m.load())
			}
		}
		if n := len(q.olderHalf()); n != c.want {
			t.Errorf("%s: %d messages go, want %d", name, n, c.want)
		}
	}
}

// TestRepliesAreInboxes: nothing is kept of a reply that is no inbox.
func TestRepliesAreInboxes(t *testing.T) {
	s, err := newService(servicetest.Env(t, house(t)), Quotas{})
	if err != nil {
		t.Fatal(err)
	}
	for i, replies := range [][]string{{strings.Repeat("x", 1<<20)}, {"_INBOX.a", "_INBOX.b"}, {"_INBOX.a"}} {
		m := arrival(t, uint64(i+1), "rondo.in.r.query.q.submitted", 1)
		m.Header = nats.Header{events.HeaderReply: replies}
		s.queued.Arrived(m)
	}
	kept := s.queued.queues["r+query"].waiting
	if len(kept) != 3 || kept[0].reply != "" || kept[1].reply != "" || kept[2].reply != "_INBOX.a" {
		t.Errorf("kept: %.100v", kept)
	}
}
