package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// TestReadsShowWhatWasSeen: in a cluster, whoever was given a sequence that the leader does not
// have yet waits for it, and reads what stands there.
func TestReadsShowWhatWasSeen(t *testing.T) {
	t.Parallel()
	log := natstest.Cluster(t, 3).Log(t)
	natstest.Eventually(t, "the cluster has the streams", func() bool {
		return errors.Join(log.Streams.Ensure(t.Context()), log.Streams.EnsureRun(t.Context(), run)) == nil
	})
	first := chain(t, log, "a", "0")[0]
	last := func(rollout string) func(context.Context, eventlog.Reader) (events.Event, error) {
		return func(ctx context.Context, at eventlog.Reader) (events.Event, error) {
			return at.Last(ctx, run, first.Type.Kind(), rollout)
		}
	}

	if e, err := last("a")(t.Context(), log.At("other", first.Seq+1)); e.Seq != first.Seq || err != nil {
		t.Errorf("who was given something of another run read sequence %d, %v", e.Seq, err)
	}
	hurried, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if e, err := last("a")(hurried, log.At(run, first.Seq+1)); !eventlog.Away(err) {
		t.Errorf("who had no time to wait read sequence %d, %v", e.Seq, err)
	}

	read := map[string]chan error{}
	for what, want := range map[string]struct {
		read func(context.Context, eventlog.Reader) (events.Event, error)
		seq  uint64
	}{
		"the last link of a chain":      {last("a"), first.Seq + 1},
		"the first link of a new chain": {last("b"), first.Seq + 2},
		"an event": {func(ctx context.Context, at eventlog.Reader) (events.Event, error) {
			return at.Event(ctx, run, first.Seq+1)
		}, first.Seq + 1},
	} {
		done := make(chan error, 1)
		read[what] = done
		go func() {
			e, err := want.read(t.Context(), log.At(run, first.Seq+2))
			if err == nil && e.Seq != want.seq {
				err = errors.New("it is an older one: " + e.ID)
			}
			done <- err
		}()
	}
	time.Sleep(300 * time.Millisecond) // they know by now what the leader has
	link := note(t, "a", "1", "")
	link.Prev = first.Seq
	mustAppend(t, log, link)
	end := chain(t, log, "b", "0")[0]
	for what, done := range read {
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := last("c")(t.Context(), log.At(run, end.Seq)); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("what is not there: %v", err)
	}

	has, to := log.At(run, 1), log.Appender.At(run, 1)
	if e, err := last("b")(t.Context(), has); e.Seq != end.Seq || err != nil {
		t.Errorf("who was given the first event read sequence %d, %v", e.Seq, err)
	}
	link = note(t, "b", "1", "")
	link.Prev = end.Seq
	if _, _, err := to.Append(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.DeleteRun(t.Context(), run); err != nil { // no leader has any of it now
		t.Fatal(err)
	}
	natstest.Eventually(t, "the run has a stream again",
		func() bool { return log.Streams.EnsureRun(t.Context(), run) == nil })
	chain(t, log, "a", "0")
	for what, at := range map[string]eventlog.Reader{"read": has, "appended": to.Reader} {
		hurried, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if e, err := last("b")(hurried, at); !eventlog.Away(err) {
			t.Errorf("who has %s a later event was shown less: sequence %d, %v", what, e.Seq, err)
		}
		stop()
	}
}
