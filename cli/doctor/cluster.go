package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
)

// listPatience bounds the questions about a cluster: one without a leader gives no answer.
const listPatience = 10 * time.Second

// tryCluster looks at the replicas of the log's streams, where they are in a cluster.
func tryCluster(ctx context.Context, url string, access app.NATSAccess) []finding {
	options, err := access.Options()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	ctx, refused := context.WithCancelCause(ctx)
	defer refused(nil)
	nc, err := connect(url, options, refused)
	if err != nil {
		return nil // another check tells
	}
	defer nc.Close()
	cluster := nc.ConnectedClusterName()
	if cluster == "" {
		return nil
	}
	log, err := eventlog.New(nc, nil)
	if err != nil {
		return nil
	}
	all, err := log.Streams.Replications(ctx)
	if errors.Is(context.Cause(ctx), nats.ErrPermissionViolation) {
		return []finding{ok("cluster", "not looked at: these credentials may not list the streams, the operator's may")}
	}
	if err != nil {
		return []finding{trouble("cluster", fmt.Errorf("cluster %s: %w", cluster, err),
			"start the servers that are away: a majority of them has to run")}
	}
	return clusterFindings(cluster, all)
}

// clusterFindings are those about the replicas of streams.
func clusterFindings(cluster string, all []eventlog.Replication) (findings []finding) {
	most := 1
	for _, r := range all {
		if r.Stream == events.CatalogueStream {
			most = r.Replicas
		}
	}
	warn := func(r eventlog.Replication, do, format string, args ...any) {
		findings = append(findings, finding{"cluster", levelWarning,
			"stream " + r.Stream + ": " + fmt.Sprintf(format, args...), do})
	}
	for _, r := range all {
		switch degraded := r.Degraded(); {
		case degraded != "" && r.Leader == "":
			findings = append(findings, trouble("cluster", fmt.Errorf("stream %s: %s", r.Stream, degraded),
				"start the servers that are away: nothing can be appended until then"))
		case degraded != "":
			warn(r, "start the servers that are away, or replace them: one more loss may stop the log", "%s", degraded)
		case len(r.Behind) > 0:
			warn(r, "wait: the leader brings them up to date", "%s behind", strings.Join(r.Behind, ", "))
		case r.Replicas < most && r.Stream == topology.LeaseStream:
			warn(r, "start the services again: they give the leases as many as the catalogue has",
				"%d replicas, where the catalogue has %d", r.Replicas, most)
		case r.Replicas < most:
			warn(r, "runs keep the replicas that they were opened with; open new ones with --replicas",
				"%d replicas, where the catalogue has %d", r.Replicas, most)
		}
		if r.Compressed {
			warn(r, "turn its compression off: in nats-server 2.15 a replica may break when its server is killed",
				"it is replicated and compressed")
		}
	}
	if findings == nil {
		return []finding{ok("cluster", "%s: every replica of %d streams is live, and the catalogue has %d", cluster,
			len(all), most)}
	}
	return findings
}
