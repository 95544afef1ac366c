package regions

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// configured gives a server of natstest the settings of a configuration, beside its own address,
// folder and routes. What the text includes is in the folder.
func configured(t *testing.T, o *server.Options, folder, text string) {
	t.Helper()
	file := filepath.Join(folder, o.ServerName+".conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	conf, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	own := *o
	*o = *conf
	o.ServerName, o.Host, o.Port, o.NoLog, o.NoSigs, o.Routes = own.ServerName, own.Host,
		own.Port, true, true, own.Routes
	o.StoreDir, o.JetStreamMaxStore, o.JetStreamMaxMemory, o.SyncInterval = own.StoreDir, own.JetStreamMaxStore,
		own.JetStreamMaxMemory, own.SyncInterval
	o.Cluster.Name, o.Cluster.Host, o.Cluster.Port, o.Cluster.NoAdvertise = own.Cluster.Name,
		own.Cluster.Host, own.Cluster.Port, true
}

// TestFarRolloutsOfLockedServers is as TestFarRollouts, and both clusters know their users by
// the keys of `rondo auth`, as the guide says. Leaf nodes connect as a user of the plane's
// account. The far services have the rights of generator and scorer and no others, and nobody
// without credentials gets in.
func TestFarRolloutsOfLockedServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	keys := filepath.Join(t.TempDir(), "auth")
	a, err := auth.Init(keys)
	if err == nil {
		err = auth.EnsureTLS(keys, []string{"127.0.0.1"}, time.Now())
	}
	for _, u := range []auth.User{
		{Name: topology.Admin, Services: []string{topology.Admin}},
		{Name: "region", Services: []string{topology.Admin}},
		{Name: "rollouts", Services: []string{topology.Generator, topology.Scorer}, Domain: domain},
	} {
		if err == nil {
			_, err = a.Ensure(u)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(keys, auth.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	account := regexp.MustCompile(`# RONDO\n *(A\w+):`).FindSubmatch(text) // as the guide says
	if account == nil {
		t.Fatalf("the server's configuration does not name the plane's account:\n%s", text)
	}
	lock := fmt.Sprintf("include %q\ninclude %q\n", auth.ConfigFile, auth.TLSConfigFile)
	routes := fmt.Sprintf("cluster { include %q }\n", auth.RoutesConfigFile)
	ports := natstest.FreePorts(t, 3)
	home := natstest.Cluster(t, 3, func(i int, o *server.Options) {
		configured(t, o, keys,
			lock+routes+
				fmt.Sprintf("jetstream { domain: %s }\nleafnodes { listen: \"127.0.0.1:%d\", no_advertise: true, include %q }\n",
					domain, ports[i], auth.TLSConfigFile))
	})
	var wires []*natstest.Wire
	for i := range 2 {
		wires = append(wires, natstest.NewLongWire(t, fmt.Sprintf("127.0.0.1:%d", ports[i]), delay))
	}
	far := natstest.Cluster(t, 2, func(i int, o *server.Options) {
		o.ServerName, o.StoreDir, o.Cluster.Name = fmt.Sprint("far-", i), "", "far"
		configured(t, o, keys, lock+routes+fmt.Sprintf(`
			leafnodes { reconnect: 1, remotes: [{ urls: ["tls://%s"], account: %[2]s, credentials: %[3]q, tls { ca_file: %[4]q } }] }
			default_js_domain: { %[2]s: %[5]s }
		`, wires[i].Address(), account[1], a.Creds("region"), filepath.Join(keys, auth.CAFile), domain))
	})
	connect := func(to *natstest.Servers, n int, user string) *nats.Conn {
		t.Helper()
		var urls []string
		for i := range n {
			urls = append(urls, to.URL(i))
		}
		nc, err := nats.Connect(strings.Join(urls, ","), nats.UserCredentials(a.Creds(user)),
			nats.RootCAs(filepath.Join(keys, auth.CAFile)), nats.CustomInboxPrefix(topology.ServiceInbox(user)),
			nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	log, err := eventlog.New(connect(home, 3, topology.Admin), natstest.Store(t), eventlog.Replicas(3))
	if err != nil {
		t.Fatal(err)
	}
	farRollouts(t, log, func() *nats.Conn { return connect(far, 2, "rollouts") }, wires,
		int64(nightly.Count(3, 6)), nightly.Count(1, 2))

	refused := make(chan error, 10)
	nc := connect(far, 2, "rollouts")
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	if err := errors.Join(nc.Publish("rondo.v1.r.batch.trainer.ready", []byte("{}")), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("a far generator that makes a batch: %v", err)
	}
	if nc, err := nats.Connect(far.URL(0), nats.RootCAs(filepath.Join(keys, auth.CAFile))); err == nil {
		nc.Close()
		t.Error("far servers let strangers in")
	}
}
