package doctor

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
)

func TestDoctorOnReplicas(t *testing.T) {
	catalogue := eventlog.Replication{Stream: events.CatalogueStream, Replicas: 3, Leader: "n1"}
	run := func(change func(*eventlog.Replication)) []finding {
		r := eventlog.Replication{Stream: "RONDO_r", Replicas: 3, Leader: "n0"}
		change(&r)
		return clusterFindings("c", []eventlog.Replication{catalogue, r})
	}
	wantFinding(t, run(func(*eventlog.Replication) {}), "cluster", levelOK,
		"every replica of 2 streams is live, and the catalogue has 3", "")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Leader, r.Away = "", []string{"n0", "n2"} }),
		"cluster", levelTrouble,
		"stream RONDO_r: it has no leader: fewer than 2 of the 3 servers that hold it answer",
		"start the servers that are away")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Away = []string{"n2"} }), "cluster", levelWarning,
		"stream RONDO_r: 2 of 3 replicas are live, n2 is away", "replace them")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Behind = []string{"n2"} }),
		"cluster", levelWarning, "n2 behind", "wait")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Replicas = 1 }), "cluster", levelWarning,
		"1 replicas, where the catalogue has 3", "--replicas")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Stream, r.Replicas = topology.LeaseStream, 1 }),
		"cluster", levelWarning, "1 replicas, where the catalogue has 3", "start the services again")
	wantFinding(t, run(func(r *eventlog.Replication) { r.Compressed = true }), "cluster", levelWarning,
		"replicated and compressed", "turn its compression off")
}

// TestDoctorOnACluster: doctor names the server that is away, for the leases too, and a cluster
// that has lost its majority.
func TestDoctorOnACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	c := natstest.Cluster(t, 3)
	log := c.Log(t)
	natstest.Eventually(t, "the streams are made", func() bool { return log.Streams.Ensure(t.Context()) == nil })
	natstest.Eventually(t, "the leases are made", func() bool {
		_, err := log.JetStream().CreateOrUpdateKeyValue(t.Context(),
			jetstream.KeyValueConfig{Bucket: topology.LeaseBucket, Storage: jetstream.MemoryStorage, Replicas: 3})
		return err == nil
	})
	found := func(url string, level, words string) func() bool {
		return func() bool {
			for _, f := range tryCluster(t.Context(), url, app.NATSAccess{}) {
				if f.Check == "cluster" && f.Level == level && strings.Contains(f.Found, words) {
					return true
				}
			}
			return false
		}
	}
	url := c.URL(0)
	natstest.Eventually(t, "all is well", found(url, levelOK, "every replica of 4 streams is live"))
	c.Stop(2)
	natstest.Eventually(t, "the server is missed", found(url, levelWarning,
		"stream "+events.CatalogueStream+": 2 of 3 replicas are live, rondo-2 is away"))
	natstest.Eventually(t, "the server is missed for the leases",
		found(url, levelWarning, "stream "+topology.LeaseStream+": 2 of 3 replicas are live, rondo-2 is away"))
	c.Stop(1)
	natstest.Eventually(t, "the leader is missed", found(url, levelTrouble, "no leader"))
}
