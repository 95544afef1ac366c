package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/program"
)

// opened is a log over a cluster that has a leader, and whose streams other processes make.
func opened(t *testing.T, c *natstest.Members, store string) *eventlog.Log {
	t.Helper()
	objects, err := dir.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	log, err := eventlog.New(c.Connect(), objects)
	if err != nil {
		t.Fatal(err)
	}
	// An intake that finds no leader for half a minute ends, and is started
	// again by whoever runs it.
	natstest.Eventually(t, "the cluster has a leader", func() bool {
		// its leader alone knows that there is none
		_, err := log.JetStream().Stream(t.Context(), events.CatalogueStream)
		return errors.Is(err, jetstream.ErrStreamNotFound)
	})
	return log
}

// replicated demands three replicas of each stream, and that all of some streams are there.
func replicated(t *testing.T, log *eventlog.Log, streams ...string) {
	t.Helper()
	all, err := log.Streams.Replications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, r := range all {
		found[r.Stream] = true
		if r.Replicas != servers || r.Compressed {
			t.Errorf("%+v", r)
		}
	}
	for _, stream := range streams {
		if !found[stream] {
			t.Errorf("the replicas of stream %s are not looked at", stream)
		}
	}
}

// fixed are the streams that every plane has.
var fixed = []string{events.CatalogueStream, events.IntakeStream, events.DeadStream}

// TestProgramOnThreeServers: the services, as processes of the program with --replicas 3 at the
// intake alone, train the built-in policy while each server is killed once, the leader of the run's
// stream first. The run goes on while a server is away.
func TestProgramOnThreeServers(t *testing.T) {
	program.NeedSandbox(t)
	t.Parallel()
	c, store := natstest.StartMembers(t, servers, true), t.TempDir()
	log := opened(t, c, store)
	p := program.NewClient(t, program.Binary(t), program.Over(c.URL(), store)...)
	var services []*program.Process
	for i, args := range program.Services(fmt.Sprint("127.0.0.1:", natstest.FreePorts(t, 1)[0])) {
		if i == 0 { // the intake makes the streams
			args = append(args, "--replicas", "3")
		}
		services = append(services, p.Start(args...))
	}
	demo := p.Start(program.ShortDemo(4)...)
	stream := events.RunStream(program.DemoRun)
	all := append(services, demo)
	program.Grows(t, log, program.DemoRun, 20, "in the beginning", all...)
	killed := map[int]bool{}
	for len(killed) < servers {
		i := leads(t, c, log, stream)
		for killed[i] { // it leads again: take one that was spared
			i = (i + 1) % servers
		}
		c.Kill(i)
		killed[i] = true
		leads(t, c, log, stream)
		program.Grows(t, log, program.DemoRun, 5, fmt.Sprintf("without server %d", i), all...)
		c.Start(i)
		c.Whole(log)
	}
	if err := program.Alive(demo); err != nil {
		t.Fatal("the run is too short: ", err)
	}
	demo.Wait(t, services...)
	p.Must("audit", program.DemoRun)
	p.Must("replay", program.DemoRun, "--verify")
	p.Must("doctor", "--json")
	replicated(t, log, append(fixed, stream, topology.LeaseStream)...)
}

// TestRunsMoveToCluster: as the guide says, a run of one server is archived and restored on a
// cluster whose streams the intake has made, and has three replicas there.
func TestRunsMoveToCluster(t *testing.T) {
	program.NeedSandbox(t)
	t.Parallel()
	home := t.TempDir()
	one := program.NewClient(t, program.Binary(t))
	one.Must(append(program.ShortDemo(1), "--dir", home)...)
	one.Must("archive", "seal", program.DemoRun, "--dir", home)

	c, store := natstest.StartMembers(t, servers, true), filepath.Join(home, "objects")
	p := program.NewClient(t, program.Binary(t), program.Over(c.URL(), store)...)
	log := opened(t, c, store)
	intake := p.Start("service", topology.Intake, "--replicas", "3")
	program.Eventually(t, func() error {
		if err := program.Alive(intake); err != nil {
			t.Fatal(err)
		}
		_, err := log.JetStream().Stream(t.Context(), events.DeadStream)
		return err
	})
	intake.Stop(t)
	p.Must("archive", "restore", program.DemoRun)
	p.Must("audit", program.DemoRun)
	p.Must("replay", program.DemoRun, "--verify")
	replicated(t, log, append(fixed, events.RunStream(program.DemoRun))...)
}
