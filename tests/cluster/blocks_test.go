package cluster

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// TestKilledServersKeepTheirMessages kills servers that sync each write while files of messages
// fill up. A run's stream, made as Rondo makes it, has every message on each of them: compressed,
// as on a single server, one of them would not take writes any more (docs/upstream).
func TestKilledServersKeepTheirMessages(t *testing.T) {
	t.Parallel()
	c := natstest.StartMembers(t, servers, true)
	log := c.Log()
	const run = "r"
	natstest.Eventually(t, "the run has its stream", func() bool {
		return log.Streams.EnsureRun(t.Context(),
			run) == nil
	})
	js, stream := log.JetStream(), events.RunStream(run)
	text := bytes.Repeat([]byte("some words that compress well, "), 1000)
	for round := range nightly.Count(2, 20) {
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { // some files of 8 MB, until the server is back
			defer close(stopped)
			for ctx.Err() == nil {
				for range 64 {
					if _, err := js.PublishAsync(events.SubjectPrefix+run+".rollout.x.annotated", text); err != nil {
						break // no connection at this moment, or too much in flight
					}
				}
				select {
				case <-js.PublishAsyncComplete():
				case <-ctx.Done():
				case <-time.After(5 * time.Second): // the answers went with the server
					js.CleanupPublisher()
				}
			}
		}()
		size := func() uint64 {
			s, err := js.Stream(t.Context(), stream)
			if err != nil {
				return 0
			}
			return s.CachedInfo().State.Bytes
		}
		var before uint64
		natstest.Eventually(t, "the stream is known", func() bool { before = size(); return round == 0 || before > 0 })
		// A server that comes back goes behind its last snapshot, at most one in ten seconds, so
		// some files must fill up since.
		natstest.Eventually(t, "files are full", func() bool { return size() > before+40<<20 })
		c.Kill(round % servers)
		c.Start(round % servers)
		stop()
		<-stopped
		c.Whole(log)
		for i := range servers {
			for line := range strings.Lines(c.Logged(i)) {
				if strings.Contains(line, "corrupt") || strings.Contains(line, "Critical write error") {
					t.Fatalf("round %d, server %d: %s", round, i, line)
				}
			}
		}
	}
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if state := s.CachedInfo().State; state.Msgs == 0 || state.Msgs != state.LastSeq {
		t.Errorf("the stream has %d messages until sequence %d", state.Msgs, state.LastSeq)
	}
}
