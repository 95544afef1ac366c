package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
)

// TestRestoreBesideADecider: a decider works while its run's stream is lost and restored. The
// stream is shown when nobody holds the run's lease, and the decider goes on behind what is
// restored, as if it had read nothing else.
func TestRestoreBesideADecider(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		if err := log.Streams.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		openRun(t, log, testRun)
		env := testEnv(t, log, "one")
		env.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
		deciding(t, env, answering(answerer{}))
		openGroup(t, log, 1, "a")
		answer(t, log, 1)
		if _, err := log.Appender.Seal(t.Context(), testRun, true); err != nil {
			t.Fatal(err)
		}
		openGroup(t, log, 2, "a")
		lost := answer(t, log, 2)
		impatient, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := AwaitNoDecider(impatient, log, testRun); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a decider holds its lease: %v", err)
		}
		if err := log.Streams.DeleteRun(t.Context(), testRun); err != nil {
			t.Fatal(err)
		}
		sealed, err := log.Segments(t.Context(), testRun)
		if err != nil {
			t.Fatal(err)
		}
		_, err = recovery.Restore(t.Context(), log, testRun, sealed,
			func(ctx context.Context, run string) error { return AwaitNoDecider(ctx, log, run) })
		if err != nil {
			t.Fatal(err)
		}
		in, err := log.Incarnation(t.Context(), testRun)
		if err != nil || in.LastSeq >= lost.Seq {
			t.Fatalf("%+v, %v", in, err)
		}
		openGroup(t, log, 3, "a")
		if e := answer(t, log, 3); e.AsOf != in.LastSeq+1 {
			t.Errorf("it was decided as of %d, want %d", e.AsOf, in.LastSeq+1)
		}
		if _, err := log.LastOfType(t.Context(), testRun, events.GroupCompletedType,
			events.GroupID(2)); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("an answer of the lost stream: %v", err)
		}
	})
}
