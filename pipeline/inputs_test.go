package pipeline_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
)

// TestInputsLogShowsTheInput: in a cluster a handler reads at least its input, and who was told
// that a run was opened finds it open, also where the leader does not have that yet.
func TestInputsLogShowsTheInput(t *testing.T) {
	t.Parallel()
	p := &plane{log: natstest.Cluster(t, 3).Log(t)}
	natstest.Eventually(t, "the cluster has the streams",
		func() bool { return p.log.Streams.Ensure(t.Context()) == nil })

	told := make(chan error, 1)
	natstest.Eventually(t, "the run has its stream", func() bool {
		return p.log.Streams.EnsureRun(t.Context(),
			testRun) == nil
	})
	looked := looksAt(t, p.log, testRun)
	go func() { // it was told of an opening that the leader of the run does not have yet
		all := func(runfile.RunConfig) bool { return true }
		open, err := pipeline.OpenRuns(t.Context(), p.log.Reader, all, testRun)
		if err == nil && !slices.Equal(open, []string{testRun}) {
			err = errors.New("the run that was opened is none of the open ones")
		}
		told <- err
	}()
	looked()
	p.open(t, testRun)
	if err := <-told; err != nil {
		t.Error(err)
	}

	first := p.append(t, finished(t, testRun, 0))
	read := make(chan error, 1)
	handle := func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		last, err := m.Log.Last(ctx, testRun, "rollout", rollout(0))
		if err == nil && last.Seq != m.Seq {
			err = errors.New("it is an older one: " + last.ID)
		}
		read <- err
		return nil, nil
	}
	looked = looksAt(t, p.log, testRun)
	go func() { // the input came from a server that is ahead of the leader
		e := pipeline.Effect{Name: topology.Scorer, Handle: handle}
		read <- e.Record(t.Context(), pipeline.Env{Log: p.log},
			pipeline.Message{Event: events.Event{Run: testRun}, Seq: first.Seq + 1})
	}()
	looked()
	link := remark(t, "0", "the input")
	link.Prev = first.Seq
	p.append(t, link)
	for range 2 {
		if err := <-read; err != nil {
			t.Error(err)
		}
	}
}

// looksAt gives what waits until somebody asks how far the leader of a run has come.
func looksAt(t *testing.T, log *eventlog.Log, run string) (looked func()) {
	t.Helper()
	asked, err := log.Conn().SubscribeSync("$JS.API.STREAM.INFO." + events.RunStream(run))
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := asked.NextMsg(10 * time.Second); err != nil {
			t.Error("nobody asked how far the leader has come:", err)
		}
	}
}
