package natstest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// Servers is a cluster of servers on the loopback interface.
type Servers struct {
	servers []*server.Server
	options []*server.Options
}

// Cluster starts n servers that form one JetStream cluster and end with the test. changes are made
// to the options of each before it starts.
func Cluster(t testing.TB, n int, changes ...func(i int, o *server.Options)) *Servers {
	t.Helper()
	ports := FreePorts(t, 2*n)
	routes := make([]*url.URL, n)
	for i := range routes {
		routes[i] = &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[n+i])}
	}
	c := &Servers{servers: make([]*server.Server, n), options: make([]*server.Options, n)}
	for i := range c.options {
		c.options[i] = &server.Options{
			ServerName: fmt.Sprintf("rondo-%d", i), Host: "127.0.0.1", Port: ports[i], NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: Folder(t), JetStreamMaxStore: 1 << 50, JetStreamMaxMemory: 1 << 30,
			SyncInterval: time.Minute,
			Cluster:      server.ClusterOpts{Name: "rondo", Host: "127.0.0.1", Port: ports[n+i]}, Routes: routes,
		}
	}
	for i, o := range c.options {
		for _, change := range changes {
			change(i, o)
		}
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	for i := range c.servers {
		c.Start(t, i)
	}
	if !c.options[0].JetStream {
		Eventually(t, "the servers know each other", func() bool {
			for _, s := range c.servers {
				if s.NumRoutes() < n-1 {
					return false
				}
			}
			return true
		})
		return c
	}
	Eventually(t, "the cluster has a leader and all its members", func() bool {
		for _, s := range c.servers {
			if s.JetStreamIsLeader() {
				return len(s.JetStreamClusterPeers()) == n
			}
		}
		return false
	})
	return c
}

// Start starts server i, which was not started yet or was stopped.
func (c *Servers) Start(t testing.TB, i int) {
	t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	c.servers[i] = s
	if !s.ReadyForConnections(startTimeout) {
		t.Fatalf("server %d did not get ready", i)
	}
}

// Stop stops server i.
func (c *Servers) Stop(i int) {
	if s := c.servers[i]; s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Connect opens a connection to any of the servers that ends with the test.
func (c *Servers) Connect(t testing.TB) *nats.Conn {
	t.Helper()
	var urls []string
	for i := range c.options {
		urls = append(urls, c.URL(i))
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// URL is where server i listens.
func (c *Servers) URL(i int) string {
	return fmt.Sprintf("nats://%s:%d", c.options[i].Host, c.options[i].Port)
}

// Log is a log over a connection of its own whose streams have a replica on every server.
func (c *Servers) Log(t testing.TB) *eventlog.Log {
	t.Helper()
	log, err := eventlog.New(c.Connect(t), Store(t), eventlog.Replicas(len(c.servers)))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// StepDown makes the leader of a stream give its place up, and reports
// whether there was one to ask.
func (c *Servers) StepDown(ctx context.Context, nc *nats.Conn, stream string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	return err == nil && strings.Contains(string(resp.Data), `"success":true`)
}

// Leader is the server that leads a stream, -1 while there is none.
func (c *Servers) Leader(stream string) int {
	for i, s := range c.servers {
		if s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return i
		}
	}
	return -1
}

// startTimeout bounds what a busy machine may need.
const startTimeout = 2 * time.Minute
