package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	const product, trainer, other = "rondo.in.r.query.q%d.submitted", "rondo.in.s.query.q%d.submitted", "rondo.in.r.rollout.x%d-0.scored"
	log := house(t)
	for name, c := range map[string]struct {
		subjects []string
		free     int64
	}{"one": {[]string{product}, 59}, "two": {[]string{product, trainer}, 39}, "three": {[]string{product, trainer, other}, 29}} {
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
			a.Found(pipeline.Found{First: 1, Last: 2100, Messages: 1, Bytes: uint64(a.queues["quiet+batch"].share.bytes), Full: map[string]bool{"quiet+batch": true}})
			if a.all.messages != 1 || a.unseen != (load{}) || len(a.queues) != 1 {
				t.Errorf("when all but one are dealt with %+v and %+v wait, in %d queues", a.all, a.unseen, len(a.queues))
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
	a.Found(pipeline.Found{First: 1, Last: 500, Messages: 500, Bytes: 600 << 10, MaxBytes: 1 << 20, Full: map[string]bool{"r+query": true}})
	for i := range uint64(3) { // two have 200 KiB and leave 224, three have more than they leave
		if len(a.purges) > 0 {
			t.Fatalf("%d messages are too many", i)
		}
		a.Arrived(arrival(t, 501+i, fmt.Sprintf("rondo.in.r.query.q%d.submitted", i), 100<<10))
	}
	if len(a.purges) != 1 || len(a.queues["r+query"].olderHalf()) != 2 {
		t.Errorf("%d queues are to be shortened, this one by %d of 3", len(a.purges), len(a.queues["r+query"].olderHalf()))
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
	if _, err := s.from.of(t.Context(), subject); err != nil {
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
		if _, err := s.Handle(t.Context(), message(c.seq, submission{subject: subject, body: `{"step":1}`})); err != nil {
			t.Fatal(err)
		}
		if got := over(); got != c.want {
			t.Errorf("when message %d is reached, %g have been over the quota, want %g", c.seq, got, c.want)
		}
	}
}
