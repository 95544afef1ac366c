package deploy_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage/dir"
)

// TestNATSConfiguration starts a server from deploy/nats.conf with keys beside it, elsewhere on
// disk and on another port, and makes Rondo's streams on it.
func TestNATSConfiguration(t *testing.T) {
	folder, a := locked(t, "nats.conf")
	options, err := server.ProcessConfigFile(filepath.Join(folder, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if !options.SyncAlways || options.StoreDir != "/data" || options.Port != 4222 || options.HTTPPort != 8222 {
		t.Errorf("sync always %v, store %s, ports %d and %d", options.SyncAlways, options.StoreDir,
			options.Port, options.HTTPPort)
	}
	options.StoreDir, options.Host, options.Port, options.HTTPPort = t.TempDir(), "127.0.0.1", server.RANDOM_PORT, 0
	s := start(t, options)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server did not get ready")
	}
	folder = filepath.Dir(a.Creds(topology.Intake))
	believes := nats.RootCAs(filepath.Join(folder, "ca.crt"))
	if _, err := nats.Connect(s.ClientURL(), believes); err == nil {
		t.Error("it lets strangers in")
	}
	conn, err := nats.Connect(s.ClientURL(), believes, nats.UserCredentials(a.Creds(topology.Intake)),
		nats.CustomInboxPrefix(topology.ServiceInbox(topology.Intake)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log, err := eventlog.New(conn, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Streams reserve their limits: many runs must fit.
	for _, run := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

// locked is a folder with configurations, and the keys beside them of servers
// that are called 127.0.0.1.
func locked(t *testing.T, configurations ...string) (folder string, a *auth.Authority) {
	t.Helper()
	folder = t.TempDir()
	for _, name := range configurations {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	keys := filepath.Join(folder, "auth")
	a, err := auth.Init(keys)
	if err == nil {
		err = auth.EnsureTLS(keys, []string{"127.0.0.1"}, time.Now())
	}
	for _, name := range []string{topology.Intake, topology.Admin} {
		if err == nil {
			_, err = a.Ensure(auth.User{Name: name, Services: []string{name}})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, a
}

// start starts a server that ends with the test.
func start(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	options.NoLog, options.NoSigs = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// TestNATSClusterConfiguration starts three servers from deploy/nats-cluster.conf with keys
// beside it, elsewhere on disk and on other ports. The intake's credentials make streams
// with three replicas. A server without a certificate of theirs, or with one of another
// authority, joins nobody.
func TestNATSClusterConfiguration(t *testing.T) {
	folder, a := locked(t, "nats.conf", "nats-cluster.conf")
	ports := natstest.FreePorts(t, 3)
	member := func(folder string, name string, port int) *server.Options {
		options, err := server.ProcessConfigFile(filepath.Join(folder, "nats-cluster.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if !options.SyncAlways || len(options.Routes) != 3 || options.Cluster.Port != 6222 ||
			!options.Cluster.NoAdvertise {
			t.Errorf("sync always %v, cluster %+v", options.SyncAlways, options.Cluster)
		}
		options.ServerName, options.StoreDir, options.Host, options.Port, options.HTTPPort = name, t.TempDir(),
			"127.0.0.1", server.RANDOM_PORT, 0
		options.Cluster.Host, options.Cluster.Port, options.Routes = "127.0.0.1", port, nil
		for _, to := range ports {
			options.Routes = append(options.Routes, &url.URL{Scheme: "nats-route", Host: fmt.Sprint("127.0.0.1:", to)})
		}
		return options
	}
	var servers []*server.Server
	for i, port := range ports {
		servers = append(servers, start(t, member(folder, fmt.Sprint("nats-", i+1), port)))
	}
	theirs, _ := locked(t, "nats.conf", "nats-cluster.conf")
	strangers := []*server.Options{member(theirs, "of-another-authority", server.RANDOM_PORT),
		member(folder, "without-a-certificate", server.RANDOM_PORT)}
	strangers[1].Cluster.TLSConfig = nil
	var alone []*server.Server
	for _, options := range strangers {
		alone = append(alone, start(t, options))
	}
	natstest.Eventually(t, "each server has a route to the others", func() bool {
		for _, s := range servers {
			if s.NumRoutes() < 2 {
				return false
			}
		}
		return true
	})
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	connect := func(user string) *eventlog.Log {
		t.Helper()
		conn, err := nats.Connect(strings.Join(urls, ","),
			nats.RootCAs(filepath.Join(filepath.Dir(a.Creds(user)), "ca.crt")), nats.UserCredentials(a.Creds(user)),
			nats.CustomInboxPrefix(topology.ServiceInbox(user)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		log, err := eventlog.New(conn, natstest.Store(t), eventlog.Replicas(3))
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	intake := connect(topology.Intake)
	natstest.Eventually(t, "the cluster has the streams",
		func() bool { return intake.Streams.Ensure(t.Context()) == nil })
	all, err := connect(topology.Admin).Streams.Replications(t.Context()) // the intake may not list streams
	if err != nil || len(all) < 3 {
		t.Fatal(all, err)
	}
	for _, r := range all {
		if r.Replicas != 3 {
			t.Errorf("%+v", r)
		}
	}
	for i, s := range alone {
		if n := s.NumRoutes(); n != 0 {
			t.Errorf("%s has %d routes", strangers[i].ServerName, n)
		}
	}
}
