package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// Replication is how the replicas of a stream are.
type Replication struct {
	Stream   string
	Replicas int // that it should have
	// Leader is the server that takes appends; "" while there is none, and then
	// nothing can be appended.
	Leader string
	// Away are servers that hold a replica and are not there, Behind those that catch up.
	Away, Behind []string
	// Compressed replicas may lose messages when a server is killed: see docs/upstream.
	Compressed bool
}

// Leaderless reports whether nothing can be appended: no server leads, or too few are there for one
// that goes on to believe that it does.
func (r Replication) Leaderless() bool {
	return r.Replicas > 1 && (r.Leader == "" || len(r.Away) > (r.Replicas-1)/2)
}

// Degraded says what is wrong with the replicas, "" when nothing is. A stream on one
// server is never degraded.
func (r Replication) Degraded() string {
	switch {
	case r.Replicas <= 1:
		return ""
	case r.Leaderless():
		return fmt.Sprintf("it has no leader: fewer than %d of the %d servers that hold it answer", r.Replicas/2+1,
			r.Replicas)
	case len(r.Away) > 0:
		return fmt.Sprintf("%d of %d replicas are live, %s away", r.Replicas-len(r.Away), r.Replicas, areNames(r.Away))
	}
	return ""
}

func areNames(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

func replication(info *jetstream.StreamInfo) Replication {
	r := Replication{Stream: info.Config.Name, Replicas: info.Config.Replicas, Compressed: info.Config.Replicas > 1 &&
		info.Config.Compression != jetstream.NoCompression}
	if info.Cluster == nil {
		return r
	}
	r.Leader = info.Cluster.Leader
	for _, peer := range info.Cluster.Replicas {
		switch {
		case peer.Offline:
			r.Away = append(r.Away, peer.Name)
		case !peer.Current:
			r.Behind = append(r.Behind, peer.Name)
		}
	}
	return r
}

// Replications are those of all streams of this plane, that of the leases too. A stream that the
// cluster lists and that nobody tells about has no leader.
func (l Streams) Replications(ctx context.Context) ([]Replication, error) {
	ours := func(name string) bool {
		return strings.HasPrefix(name, events.CatalogueStream) || name == topology.LeaseStream
	}
	var all []Replication
	told := l.js.ListStreams(ctx)
	for info := range told.Info() {
		if ours(info.Config.Name) {
			all = append(all, replication(info))
		}
	}
	if err := told.Err(); err != nil {
		return nil, l.leaderless(fmt.Errorf("list the streams: %w", err))
	}
	names := l.js.StreamNames(ctx)
	for name := range names.Name() {
		if ours(name) && !slices.ContainsFunc(all, func(r Replication) bool { return r.Stream == name }) {
			replicas := max(2, l.replicas)
			for _, r := range all {
				replicas = max(replicas, r.Replicas)
			}
			all = append(all, Replication{Stream: name, Replicas: replicas})
		}
	}
	return all, names.Err()
}

// leaderless adds to an error what it means in a cluster: a server that has no leader to ask gives
// no answer, or says that JetStream is away.
func (l *core) leaderless(err error) error {
	cluster := l.nc.ConnectedClusterName()
	if err == nil || cluster == "" || !unknownOutcome(err) || errors.Is(err, errNoLeader) {
		return err
	}
	return fmt.Errorf("%w in cluster %s: %w", errNoLeader, cluster, err)
}

// errNoLeader says what a person can do about a cluster that gives no answer.
var errNoLeader = errors.New("no leader answers, see that a majority of the servers runs")
