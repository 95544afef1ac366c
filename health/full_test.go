package health_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
)

// limit lets a stream hold so many bytes.
func limit(t *testing.T, js jetstream.JetStream, stream string, bytes int64) {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = bytes
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// TestStreamAtItsLimit: a run's stream that is full is an outage, with the server's reason,
// although the server answers everything. It ends when the stream has room again, though
// nobody writes; and so it does when the stream is deleted. The stream of submissions is
// watched in the same way.
func TestStreamAtItsLimit(t *testing.T) {
	t.Parallel()
	s := natstest.Server(t)
	w := watch(t, health.Options{Server: s}, natstest.Connect(t, s), natstest.Store(t))
	js, stream := w.log.JetStream(), events.RunStream("r")
	number := 0
	fill := func() {
		limit(t, js, stream, 64<<10)
		for ; ; number++ {
			if err := <-w.append(number); err != nil {
				if !errors.Is(err, eventlog.ErrStreamFull) {
					t.Fatal(err)
				}
				return
			}
		}
	}
	fill()
	w.eventually(health.LogRefusesWrites, true)
	if ready := w.ready(); len(ready) != 1 || ready[0].Of != stream || ready[0].Do == "" {
		t.Errorf("ready with %+v", ready)
	}
	limit(t, js, stream, 1<<30)
	w.eventually(health.LogRefusesWrites, false)
	w.once(health.LogRefusesWrites, 1)

	fill()
	w.eventually(health.LogRefusesWrites, true)
	if err := js.DeleteStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	w.eventually(health.LogRefusesWrites, false)

	if err := w.log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit(t, js, events.IntakeStream, 64<<10)
	for full := false; !full; {
		_, err := js.Publish(t.Context(), "rondo.in.somebody", make([]byte, 1000))
		full = err != nil
	}
	_, err := w.log.Submitter.Submit(t.Context(), eventlog.Submission{Run: "r", Type: events.FeedbackRecordedType,
		Entity: "g000001-0", Source: "test", ID: "x", Data: events.FeedbackRecorded{Signal: "accept"}})
	if err == nil {
		t.Fatal("a full stream takes a submission")
	}
	w.eventually(health.LogRefusesWrites, true)
	limit(t, js, events.IntakeStream, 1<<30)
	w.eventually(health.LogRefusesWrites, false)
}
