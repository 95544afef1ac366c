package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// A lease lets one of several processes decide while the others fold along, ready to take over. It saves work
// and nothing else: what keeps two deciders apart are the chains that they append to.
const (
	leaseTTL   = 10 * time.Second
	leaseRenew = leaseTTL / 4
)

type leases struct {
	bucket   jetstream.KeyValue
	instance string
}

func newLeases(ctx context.Context, env Env) (*leases, error) {
	bucket, err := env.Log.JetStream().CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: events.LeaseBucket, Description: "which process of a deciding service decides", TTL: leaseTTL, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return nil, fmt.Errorf("make the lease bucket: %w", err)
	}
	return &leases{bucket: bucket, instance: env.Instance}, nil
}

// lease is held from time to time.
type lease struct {
	leases *leases
	key    string
	mu     sync.Mutex
	until  time.Time
	// isFresh: the lease was gained, and nothing was decided under it yet.
	isFresh  bool
	revision uint64
}

// hold tries to gain and keep a lease until the context ends, and gives it back then.
func (l *leases) hold(ctx context.Context, key string) *lease {
	h := &lease{leases: l, key: strings.ReplaceAll(key, "/", ".")}
	h.renew(ctx)
	go func() {
		tick := time.NewTicker(leaseRenew)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				h.giveBack()
				return
			case <-tick.C:
				h.renew(ctx)
			}
		}
	}()
	return h
}

// renew gains the lease when nobody has it, or keeps it.
func (h *lease) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	h.mu.Lock()
	revision := h.revision
	h.mu.Unlock()
	began := time.Now()
	var err error
	gained := revision == 0
	if gained {
		revision, err = h.leases.bucket.Create(ctx, h.key, []byte(h.leases.instance))
	} else {
		revision, err = h.leases.bucket.Update(ctx, h.key, []byte(h.leases.instance), revision)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			h.revision = 0 // somebody else's, or gone with the server: gain it anew
		}
		return
	}
	h.revision, h.until = revision, began.Add(leaseTTL)
	h.isFresh = h.isFresh || gained
}

func (h *lease) held() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until)
}

func (h *lease) fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isFresh
}

func (h *lease) settled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isFresh = false
}

func (h *lease) giveBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// A lease that cannot be given back runs out by itself.
	_ = h.leases.bucket.Delete(ctx, h.key, jetstream.LastRevision(h.revision))
	h.revision, h.until = 0, time.Time{}
}
