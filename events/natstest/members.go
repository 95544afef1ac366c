package natstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/eventlog"
)

// memberEnv holds the settings of the server that this process was started to be.
const memberEnv = "RONDO_TEST_NATS_MEMBER"

// member is a server of a cluster in a process of its own.
type member struct {
	Name         string
	Port, Routed int      // where clients and other servers connect
	Routes       []string // to the others
	Dir          string
	Always       bool // each write is synced
}

// BeMember is called first by the TestMain of a package that uses Members: the test's program is
// the servers' program, too.
func BeMember() {
	text := os.Getenv(memberEnv)
	if text == "" {
		return
	}
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		panic(err)
	}
	var routes []*url.URL
	for _, r := range m.Routes {
		routes = append(routes, &url.URL{Scheme: "nats", Host: r})
	}
	options := &server.Options{
		ServerName: m.Name, Host: "127.0.0.1", Port: m.Port, NoSigs: true, JetStream: true, StoreDir: m.Dir,
		JetStreamMaxStore: 1 << 50, JetStreamMaxMemory: 1 << 30,
		SyncAlways: m.Always, SyncInterval: time.Minute, LogFile: m.Dir + ".log", Routes: routes,
	}
	if len(routes) > 0 {
		// Servers tell each other and their clients no addresses: these would lead
		// around the wires between them.
		options.Cluster = server.ClusterOpts{Name: "rondo", Host: "127.0.0.1", Port: m.Routed, NoAdvertise: true,
			Advertise: "127.0.0.1:9"}
	}
	s, err := server.NewServer(options)
	if err != nil {
		panic(err)
	}
	s.ConfigureLogger()
	s.Start()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test is gone
		os.Exit(1)
	}()
	<-end
	s.LameDuckShutdown()
	s.WaitForShutdown()
	os.Exit(0)
}

// process is a server that was started.
type process struct {
	*exec.Cmd
	ended chan struct{}
}

// Members is a cluster of servers that are processes of their own, with a wire between each two of
// them, and between clients and each.
type Members struct {
	t       testing.TB
	members []member
	running []*process
	routes  map[[2]int]*Wire // from, to
	clients []*Wire
}

// StartMembers starts a cluster of n servers that end with the test. always: each write is synced.
func StartMembers(t testing.TB, n int, always bool) *Members {
	t.Helper()
	dirs, dir := make([]string, n), t.TempDir()
	for i := range n {
		dirs[i] = fmt.Sprintf("%s/n%d", dir, i)
	}
	return StartMembersIn(t, dirs, always)
}

// StartMembersIn is StartMembers with a server in each of some folders, beside
// which it writes its log.
func StartMembersIn(t testing.TB, dirs []string, always bool) *Members {
	t.Helper()
	n := len(dirs)
	c := &Members{t: t, members: make([]member, n), running: make([]*process, n), routes: map[[2]int]*Wire{},
		clients: make([]*Wire, n)}
	ports := FreePorts(t, 2*n)
	for i := range n {
		c.members[i] = member{Name: fmt.Sprintf("n%d", i), Port: ports[i], Routed: ports[n+i],
			Dir: dirs[i], Always: always}
		c.clients[i] = NewWire(t, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	for i := range n {
		for j := range n {
			if i != j {
				w := NewWire(t, fmt.Sprintf("127.0.0.1:%d", ports[n+j]))
				c.routes[[2]int{i, j}] = w
				c.members[i].Routes = append(c.members[i].Routes, w.Address())
			}
		}
	}
	t.Cleanup(func() {
		for i := range n {
			if p := c.running[i]; p != nil && t.Failed() {
				select {
				case <-p.ended:
					t.Logf("server %d has ended by itself: %v", i, p.ProcessState)
				default:
				}
			}
			c.Kill(i)
			if t.Failed() {
				log, _ := os.ReadFile(c.members[i].Dir + ".log")
				t.Logf("server %d:\n%s", i, log[max(0, len(log)-3000):])
			}
		}
	})
	for i := range n {
		c.Start(i)
	}
	return c
}

// Start starts a server that does not run.
func (c *Members) Start(i int) {
	c.t.Helper()
	settings, err := json.Marshal(c.members[i])
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), memberEnv+"="+string(settings)), os.Stderr
	if _, err = cmd.StdinPipe(); err == nil { // it ends with this process
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	c.running[i] = p
}

// Kill ends some servers at once, all in the same moment.
func (c *Members) Kill(servers ...int) {
	for _, i := range servers {
		if p := c.running[i]; p != nil {
			_ = p.Process.Kill()
		}
	}
	for _, i := range servers {
		c.end(i)
	}
}

// Stop lets a server end as in an upgrade: it gives up what it leads first.
func (c *Members) Stop(i int) {
	if p := c.running[i]; p != nil {
		_ = p.Process.Signal(syscall.SIGTERM)
		c.end(i)
	}
}

// end waits for a server that was told to end.
func (c *Members) end(i int) {
	if p := c.running[i]; p != nil {
		<-p.ended
		c.running[i] = nil
	}
}

// Cut parts a server from the other servers, or from its clients, until the function that it
// returns mends that: bytes stand still, and no end is told.
func (c *Members) Cut(i int, servers, clients bool) (mend func()) {
	var cut []*Wire
	for pair, w := range c.routes {
		if servers && (pair[0] == i || pair[1] == i) {
			cut = append(cut, w)
		}
	}
	if clients {
		cut = append(cut, c.clients[i])
	}
	for _, w := range cut {
		w.Hold()
	}
	return func() {
		for _, w := range cut {
			w.Release()
		}
	}
}

// URL names all servers, each at the end of its wire.
func (c *Members) URL() string {
	var urls []string
	for _, w := range c.clients {
		urls = append(urls, "nats://"+w.Address())
	}
	return strings.Join(urls, ",")
}

// Connect opens a connection to any of the servers that ends with the test.
func (c *Members) Connect() *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// Log is a log over a connection of its own whose streams have a replica on every server. It waits
// until the cluster takes them.
func (c *Members) Log() *eventlog.Log {
	c.t.Helper()
	log, err := eventlog.New(c.Connect(), Store(c.t), eventlog.Replicas(len(c.members)))
	if err != nil {
		c.t.Fatal(err)
	}
	Eventually(c.t, "the cluster has the streams", func() bool { return log.Streams.Ensure(c.t.Context()) == nil })
	return log
}

// Leader is the server that leads a stream as another one says, -1 while there is none.
func (c *Members) Leader(log *eventlog.Log, stream string) int {
	s, err := log.JetStream().Stream(c.t.Context(), stream)
	if err != nil || s.CachedInfo().Cluster == nil {
		return -1
	}
	for i, m := range c.members {
		if m.Name == s.CachedInfo().Cluster.Leader {
			return i
		}
	}
	return -1
}

// Whole waits until every stream of the log has a leader, and all its replicas are current.
func (c *Members) Whole(log *eventlog.Log) {
	c.t.Helper()
	Eventually(c.t, "every replica is current", func() bool {
		all, err := log.Streams.Replications(c.t.Context())
		for _, r := range all {
			if r.Degraded() != "" || len(r.Behind) > 0 {
				return false
			}
		}
		return err == nil && len(all) > 0
	})
}

// Logged is what a server has written into its log.
func (c *Members) Logged(i int) string {
	text, err := os.ReadFile(c.members[i].Dir + ".log")
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}
