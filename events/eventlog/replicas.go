package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// Replicas says how many servers of a cluster hold each stream that this Log makes, and the fixed
// streams that are there already. Without it, or with 0, that is as many as hold the catalogue: the
// log itself remembers what the operator chose, over restarts and for every process.
func Replicas(n int) Option { return func(l *core) { l.replicas = n } }

// Replicas is how many servers hold what this Log makes: as many as it was told, else as many as
// hold the catalogue, else one.
func (l Streams) Replicas(ctx context.Context) (int, error) {
	if l.replicas > 0 {
		return l.replicas, nil
	}
	s, err := l.js.Stream(ctx, events.CatalogueStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the replicas of the catalogue: %w", err)
	}
	return max(1, s.CachedInfo().Config.Replicas), nil
}

// compression of a stream with some replicas. In nats-server 2.15, replicated streams with
// compression lose a block of messages when a server is killed that syncs each write
// (docs/upstream). A client does not see how a server syncs, so no replicated stream is compressed.
func compression(replicas int) jetstream.StoreCompression {
	if replicas > 1 {
		return jetstream.NoCompression
	}
	return jetstream.S2Compression
}

// fitReplicas gives a stream as many replicas as this Log was told, where it has another number:
// the plane has moved to a cluster.
func (l Streams) fitReplicas(ctx context.Context, name string) error {
	if l.replicas == 0 {
		return nil
	}
	s, err := l.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at the replicas of stream %s: %w", name, err)
	}
	cfg := s.CachedInfo().Config
	if cfg.Replicas == l.replicas {
		return nil
	}
	before := cfg.Replicas
	cfg.Replicas = l.replicas
	if l.replicas > 1 {
		cfg.Compression = jetstream.NoCompression
	}
	if _, err := l.js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("give stream %s %d replicas instead of %d (an operator may, and the intake's credentials may not): %w",
			name, l.replicas, before, noReplicas(cfg, err))
	}
	return nil
}

// ErrReplicas means that there are too few servers for the replicas of a stream.
var ErrReplicas = errors.New("the NATS cluster has too few servers for the replicas")

// codeReplicasUnclustered is the error of a server that is in no cluster.
const codeReplicasUnclustered jetstream.ErrorCode = 10074

// noReplicas wraps what a server answers that has no place for a stream's replicas.
func noReplicas(cfg jetstream.StreamConfig, err error) error {
	switch code := apiCode(err); {
	case errors.Is(err, ErrNoRoom):
	case code == codeNoPeers && cfg.Placement != nil && strings.Contains(err.Error(), "tags not matched"):
		return fmt.Errorf("%w: %d with the tag %q are wanted (log.placement): %w", ErrReplicas, cfg.Replicas,
			strings.Join(cfg.Placement.Tags, ", "), err)
	case code == codeReplicasUnclustered, code == codeNoPeers && !strings.Contains(err.Error(), "storage"):
		return fmt.Errorf("%w: %d are wanted: %w", ErrReplicas, cfg.Replicas, err)
	}
	return err
}
