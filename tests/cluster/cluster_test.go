// Package cluster kills, stops and parts the servers of a NATS cluster, which are processes of
// their own, while runs go on, and holds the runs to what Rondo promises.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

func TestMain(m *testing.M) {
	natstest.BeMember()
	os.Exit(program.Run(m))
}

const servers = 3

// size is how long a test goes on. RONDO_CLUSTER_ROLLOUTS=2000 makes the run as long, and disturbs
// the cluster every 20 s until it ends.
type size struct {
	rounds int
	steps  int64
	every  time.Duration
}

func sizeOf(t *testing.T) size {
	t.Helper()
	s := size{rounds: nightly.Count(2, 20)}
	s.steps = int64(4 * s.rounds)
	if text := os.Getenv("RONDO_CLUSTER_ROLLOUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("RONDO_CLUSTER_ROLLOUTS=%q: give a number", text)
		}
		s = size{steps: int64(max(1, n/mill.RolloutsPerStep)), every: 20 * time.Second}
	}
	return s
}

// mills runs two planes that share the work over a cluster, each over a connection of its
// own, until the test ends.
func mills(t *testing.T, c *natstest.Members, log *eventlog.Log, run string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for i := range 2 {
		own, err := eventlog.New(c.Connect(), log.Store()) // without a number of replicas: the catalogue knows it
		if err != nil {
			t.Fatal(err)
		}
		p := &mill.Mill{Log: own, Dir: t.TempDir(), Instance: fmt.Sprint("mill-", i),
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
		go func() { ended <- p.Run(ctx, run) }()
	}
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// stepsOf is how many batches of a run are consumed.
func stepsOf(t *testing.T, log *eventlog.Log, run string) (n int64) {
	t.Helper()
	last, err := log.LastOfType(t.Context(), run, events.BatchConsumedType, "trainer")
	if err != nil {
		return 0 // none, or there is no leader at this moment
	}
	consumed, err := events.Data[events.BatchConsumed](last)
	if err != nil {
		t.Fatal(err)
	}
	return consumed.Step
}

// disturbed lets a run go on while its cluster is disturbed again and again, always after a step
// of the run, and judges it.
func disturbed(t *testing.T, disturb func(c *natstest.Members, log *eventlog.Log, run string, round int)) {
	t.Helper()
	t.Parallel() // servers that elect a leader, and services that wait for it, need no processor
	disturbedOn(t, natstest.StartMembers(t, servers, true), disturb)
}

// disturbedOn does it on a cluster that runs.
func disturbedOn(t *testing.T, c *natstest.Members, disturb func(c *natstest.Members, log *eventlog.Log,
	run string, round int)) {
	t.Helper()
	log := c.Log()
	const run = "r"
	size := sizeOf(t)
	steps := size.steps
	mills(t, c, log, run)
	if err := mill.Open(t.Context(), log, run, steps); err != nil {
		t.Fatal(err)
	}
	round, done := 0, int64(0)
	for began := time.Now(); round < size.rounds || size.every > 0 && done < steps; round++ {
		before := done
		program.Eventually(t, func() error {
			if done = stepsOf(t, log, run); done <= before && done < steps {
				return fmt.Errorf("round %d: the run does not go on behind step %d", round, done)
			}
			return nil
		})
		disturb(c, log, run, round)
		retry.Sleep(t.Context(), time.Until(began.Add(time.Duration(round+1)*size.every)))
	}
	t.Logf("disturbed %d times", round)
	c.Whole(log)
	judged(t, log, run, steps)
	replicated(t, log)
}

// judged waits for the end of a run, and judges it.
func judged(t *testing.T, log *eventlog.Log, run string, steps int64) {
	t.Helper()
	program.Eventually(t, func() error {
		waits, err := mill.Ended(t.Context(), log, run)
		if err == nil && waits != "" {
			err = errors.New(waits)
		}
		return err
	})
	if err := mill.Judge(t.Context(), log, run, steps); err != nil {
		t.Error(err)
	}
}

// leads waits until somebody leads a stream.
func leads(t *testing.T, c *natstest.Members, log *eventlog.Log, stream string) (leader int) {
	t.Helper()
	natstest.Eventually(t, "stream "+stream+" has a leader", func() bool {
		leader = c.Leader(log, stream)
		return leader >= 0
	})
	return leader
}

// TestLeaderKilled: the server that leads the run's stream is killed, the run goes on,
// and the server joins again.
func TestLeaderKilled(t *testing.T) {
	disturbed(t, func(c *natstest.Members, log *eventlog.Log, run string, _ int) {
		i := leads(t, c, log, events.RunStream(run))
		c.Kill(i)
		leads(t, c, log, events.RunStream(run))
		c.Start(i)
		c.Whole(log)
	})
}

// TestRollingRestart: one server after the other is stopped, as in an upgrade, and started.
func TestRollingRestart(t *testing.T) {
	nightly.Only(t)
	disturbed(t, func(c *natstest.Members, log *eventlog.Log, _ string, round int) {
		i := round % servers
		c.Stop(i)
		c.Start(i)
		c.Whole(log)
	})
}

// TestPartition: the leader of the run's stream is parted from the other servers and from
// its clients, so the others go on without it; or it is parted from its clients alone,
// which go to another one.
func TestPartition(t *testing.T) {
	disturbed(t, func(c *natstest.Members, log *eventlog.Log, run string, round int) {
		stream := events.RunStream(run)
		i := leads(t, c, log, stream)
		mend := c.Cut(i, round%2 == 0, true)
		natstest.Eventually(t, "the others go on", func() bool {
			now := c.Leader(log, stream)
			return now >= 0 && (now != i || round%2 == 1)
		})
		mend()
		c.Whole(log)
	})
}

// TestConsumersKeepTheirReplicas: whoever looks for a consumer again does not change how many
// servers hold it, and neither do leases.
func TestConsumersKeepTheirReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.StartMembers(t, servers, false)
	log := c.Log()
	const run = "r"
	mills(t, c, log, run)
	if err := mill.Open(t.Context(), log, run, 1); err != nil {
		t.Fatal(err)
	}
	program.Eventually(t, func() error {
		if stepsOf(t, log, run) == 0 {
			return errors.New("no batch was consumed")
		}
		return nil
	})
	for _, stream := range []string{events.RunStream(run), events.IntakeStream, topology.LeaseStream} {
		s, err := log.JetStream().Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().Config.Replicas; n != servers {
			t.Errorf("stream %s has %d replicas", stream, n)
		}
		durable := 0
		for info := range s.ListConsumers(t.Context()).Info() {
			if info.Config.Durable == "" {
				continue // a reader's
			}
			durable++
			if info.Cluster == nil || len(info.Cluster.Replicas) != servers-1 {
				t.Errorf("consumer %s of %s: %+v", info.Name, stream, info.Cluster)
			}
		}
		if durable == 0 && stream != topology.LeaseStream {
			t.Errorf("stream %s has no consumers", stream)
		}
	}
	replicated(t, log, topology.LeaseStream)
}

// TestMoreReplicas: a plane that began with one replica gets three, by the option of the process
// that makes its streams, and keeps them.
func TestMoreReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.StartMembers(t, servers, false)
	log := c.Log()
	js := log.JetStream()
	one, err := eventlog.New(c.Connect(), log.Store(), eventlog.Replicas(1))
	if err != nil {
		t.Fatal(err)
	}
	has := func(want int) {
		t.Helper()
		for _, stream := range fixed {
			s, err := js.Stream(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			if n := s.CachedInfo().Config.Replicas; n != want {
				t.Errorf("stream %s has %d replicas, want %d", stream, n, want)
			}
		}
	}
	has(servers)
	for _, l := range []struct {
		log  *eventlog.Log
		want int
	}{{one, 1}, {log, servers}} {
		natstest.Eventually(t, "the streams have other replicas",
			func() bool { return l.log.Streams.Ensure(t.Context()) == nil })
		has(l.want)
	}
	without, err := eventlog.New(c.Connect(), log.Store())
	if err == nil {
		err = without.Streams.Ensure(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	has(servers)
	if n, err := without.Streams.Replicas(t.Context()); n != servers || err != nil {
		t.Errorf("a process without the option makes streams with %d replicas, %v", n, err)
	}
}
