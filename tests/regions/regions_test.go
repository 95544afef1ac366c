// Package regions runs a plane whose rollouts are far from its log: two clusters of servers, joined
// by leaf nodes over a long wire.
package regions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/mill"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// delay is that of a way between the regions; an answer takes two.
const delay = 50 * time.Millisecond

// domain is the name of the log's JetStream. The far servers send their clients' requests to it.
const domain = "home"

// twoRegions starts a cluster of three servers with the log, and one of two that hold nothing, each
// of which has the first as its leaf node's hub.
func twoRegions(t *testing.T) (home, far *natstest.Servers, wires []*natstest.Wire) {
	t.Helper()
	ports := natstest.FreePorts(t, 3)
	home = natstest.Cluster(t, 3, func(i int, o *server.Options) {
		o.JetStreamDomain = domain
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: ports[i], NoAdvertise: true}
	})
	for range 2 {
		wires = append(wires, natstest.NewLongWire(t, fmt.Sprintf("127.0.0.1:%d", ports[len(wires)]), delay))
	}
	far = natstest.Cluster(t, 2, func(i int, o *server.Options) {
		o.ServerName, o.JetStream, o.StoreDir, o.Cluster.Name = fmt.Sprint("far-", i), false, "", "far"
		o.JsAccDefaultDomain = map[string]string{server.DEFAULT_GLOBAL_ACCOUNT: domain}
		o.LeafNode = server.LeafNodeOpts{ReconnectInterval: 100 * time.Millisecond, Remotes: []*server.RemoteLeafOpts{
			{URLs: []*url.URL{{Scheme: "nats-leaf", Host: wires[i].Address()}}},
		}}
	})
	return home, far, wires
}

// runs runs some services of a plane until the test ends.
func runs(t *testing.T, log *eventlog.Log, name, run string, only ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	p := &mill.Mill{Log: log, Dir: t.TempDir(), Instance: name, Only: only,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	var trains []string
	if run != "" {
		trains = []string{run}
	}
	go func() { ended <- p.Run(ctx, trains...) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestFarRollouts: intake, deciders and trainer are at home, and all rollouts are sampled and
// scored far away, through servers there that know the log by their leaf nodes alone. The wire
// breaks again and again. Nothing is lost and nothing is there twice.
func TestFarRollouts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	home, far, wires := twoRegions(t)
	farRollouts(t, home.Log(t), func() *nats.Conn { return far.Connect(t) }, wires,
		int64(nightly.Count(6, 12)), nightly.Count(2, 3))
}

// farRollouts runs the services at home over the log, and generators and scorers over
// connections of their own.
func farRollouts(t *testing.T, log *eventlog.Log, connect func() *nats.Conn, wires []*natstest.Wire,
	steps int64, breaks int) {
	t.Helper()
	const run = "r"
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs(t, log, "home", run, topology.Intake, topology.QuerySampler, topology.AdvantageCalculator,
		topology.TrainerFeeder, topology.DeadLetters)
	for i := range 2 {
		own, err := eventlog.New(connect(), log.Store())
		if err != nil {
			t.Fatal(err)
		}
		runs(t, own, fmt.Sprint("far-", i), "", topology.Generator, topology.Scorer)
	}
	if err := mill.Open(t.Context(), log, run, steps); err != nil {
		t.Fatal(err)
	}
	began, step := time.Now(), int64(0)
	for i := range breaks {
		program.Eventually(t, func() error {
			last, err := log.LastOfType(t.Context(), run, events.BatchConsumedType, "trainer")
			if err != nil {
				return err
			}
			consumed, err := events.Data[events.BatchConsumed](last)
			if err == nil && consumed.Step <= step {
				err = fmt.Errorf("the run does not go on behind step %d", step)
			}
			step = max(step, consumed.Step)
			return err
		})
		wires[i%2].Break()
	}
	program.Eventually(t, func() error {
		waits, err := mill.Ended(t.Context(), log, run)
		if err == nil && waits != "" {
			err = errors.New(waits)
		}
		return err
	})
	t.Logf("%d rollouts in %.1f s", steps*mill.RolloutsPerStep, time.Since(began).Seconds())
	if err := mill.Judge(t.Context(), log, run, steps); err != nil {
		t.Error(err)
	}
}
