package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/retry"
)

// A lease lets one of several processes decide while the others fold along, ready to take over. It
// saves work and nothing else: what keeps two deciders apart are the chains that they append to.
const (
	leaseTTL   = 10 * time.Second
	leaseRenew = leaseTTL / 4
)

type leases struct {
	log      *eventlog.Log
	bucket   jetstream.KeyValue
	instance string

	mu  sync.Mutex
	all map[*lease]struct{} // that this process holds or would like to
}

// newLeases makes the leases of a service.
func newLeases(ctx context.Context, env Env, service string) (*leases, error) {
	l := &leases{log: env.Log, instance: env.Instance}
	if _, err := ShareMetric(env.Metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "rondo_leases_held",
		Help:        "Leases that this process holds: deciders of runs for which it decides, and no other process.",
		ConstLabels: prometheus.Labels{"service": service},
	}, l.count)); err != nil {
		return nil, err
	}
	return l, askAgain.Keep(ctx, func() (done bool, err error) {
		l.bucket, err = l.make(ctx)
		return err == nil || !eventlog.Away(err), err
	}, func(err error, wait time.Duration) {
		env.Logger.Warn("lease bucket unavailable", "retry_in", wait, "error", err)
	})
}

// count is how many leases this process holds.
func (l *leases) count() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for h := range l.all {
		if h.isHeld() {
			n++
		}
	}
	return float64(n)
}

// make makes the bucket where it is missing.
func (l *leases) make(ctx context.Context) (jetstream.KeyValue, error) {
	replicas, err := l.log.Streams.Replicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the lease bucket: %w", err)
	}
	bucket, err := l.log.JetStream().CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: topology.LeaseBucket, Description: "which process of a deciding service decides", TTL: leaseTTL,
		Storage: jetstream.MemoryStorage, Replicas: replicas,
	})
	if err != nil {
		return nil, fmt.Errorf("make the lease bucket: %w", err)
	}
	return bucket, nil
}

// lease is held from time to time.
type lease struct {
	leases *leases
	key    string
	// gained is told when the lease was gained from somebody else, or for the first time.
	gained chan struct{}
	// standing is closed when this process may gain the lease.
	standing chan struct{}
	stand    func()

	revision uint64 // of the bucket's entry, 0 when it is not ours; the renewing goroutine's own
	mu       sync.Mutex
	until    time.Time
}

// aside is how long a decider that has failed leaves a lease to others that want it:
// they look every leaseRenew.
const aside = 2 * leaseRenew

// hold tries to gain and keep a lease, from the call of stand on, and when it has left it to others
// for some time. giveBack ends that, and lets another process have it.
func (l *leases) hold(ctx context.Context, key string, leave time.Duration) (h *lease, giveBack func()) {
	h = &lease{leases: l, key: strings.ReplaceAll(key, "/", "."), gained: make(chan struct{}, 1),
		standing: make(chan struct{})}
	h.stand = sync.OnceFunc(func() { close(h.standing) })
	l.mu.Lock()
	if l.all == nil {
		l.all = map[*lease]struct{}{}
	}
	l.all[h] = struct{}{}
	l.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			return
		case <-h.standing:
		}
		if !retry.Sleep(ctx, leave) {
			return
		}
		tick := time.NewTicker(leaseRenew)
		defer tick.Stop()
		for {
			h.renew(ctx)
			select {
			case <-ctx.Done():
				h.giveBack()
				return
			case <-tick.C:
			}
		}
	}()
	return h, func() {
		stop()
		<-stopped
		l.mu.Lock()
		delete(l.all, h)
		l.mu.Unlock()
	}
}

// renew gains the lease when nobody has it, or keeps it.
func (h *lease) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	began := time.Now()
	revision, err := h.claim(ctx)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists): // it is somebody else's
		h.revision = 0
		h.hold(time.Time{})
	case bucketLost(err): // it lived in the memory of a server that has restarted
		h.revision = 0
		_, _ = h.leases.make(ctx) // the next claim shows whether it is there
	case err != nil: // the server is away: what is held runs on
		h.revision = 0
	default:
		h.revision = revision
		h.hold(began.Add(leaseTTL))
	}
}

// tell lets the session know that the lease was gained.
func (h *lease) tell() {
	select {
	case h.gained <- struct{}{}:
	default:
	}
}

// bucketLost reports whether nobody answers for the bucket, which may also be
// because its server is away.
func bucketLost(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, nats.ErrNoResponders)
}

// claim writes the entry: over the one that this process wrote, now or before it
// restarted, or where there is none.
func (h *lease) claim(ctx context.Context) (revision uint64, err error) {
	bucket, value := h.leases.bucket, []byte(h.leases.instance)
	if h.revision != 0 {
		return bucket.Update(ctx, h.key, value, h.revision)
	}
	if revision, err = bucket.Create(ctx, h.key, value); !errors.Is(err, jetstream.ErrKeyExists) {
		return revision, err
	}
	entry, getErr := bucket.Get(ctx, h.key)
	if getErr != nil || string(entry.Value()) != h.leases.instance {
		return 0, err
	}
	return bucket.Update(ctx, h.key, value, entry.Revision())
}

func (h *lease) isHeld() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until)
}

// hold notes until when the lease is held. Nobody sees that it is before gained is told.
func (h *lease) hold(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Before(until) && !now.Before(h.until) {
		h.tell()
	}
	h.until = until
}

func (h *lease) giveBack() {
	h.hold(time.Time{})
	if h.revision == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// A lease that cannot be given back runs out by itself.
	_ = h.leases.bucket.Delete(ctx, h.key, jetstream.LastRevision(h.revision))
}

// noDeciderWithin is how long deciders may take to notice that their run's stream is gone: two
// heartbeats of a reader, and the end of a lease.
const noDeciderWithin = time.Minute

// AwaitNoDecider returns when nobody holds a lease of a run. Who decides in a run whose stream
// is gone, or hidden, has not noticed it yet, and might append to the next stream what it
// decided of the last one.
func AwaitNoDecider(ctx context.Context, log *eventlog.Log, run string) error {
	ctx, cancel := context.WithTimeout(ctx, noDeciderWithin)
	defer cancel()
	for {
		holders, err := deciders(ctx, log, run)
		switch {
		// nobody decides, or the server has lost its memory, and leases run out
		case errors.Is(err, jetstream.ErrBucketNotFound):
			if !retry.Sleep(ctx, leaseTTL) {
				return ctx.Err()
			}
			return nil
		case err == nil && len(holders) == 0:
			return nil
		case !retry.Sleep(ctx, leaseRenew/10):
			return fmt.Errorf("run %s: %s may still decide: stop the services, and try again: %w", run,
				strings.Join(holders, ", "), errors.Join(ctx.Err(), err))
		}
	}
}

// deciders are the holders of leases of a run.
func deciders(ctx context.Context, log *eventlog.Log, run string) (keys []string, err error) {
	bucket, err := log.JetStream().KeyValue(ctx, topology.LeaseBucket)
	if err != nil {
		return nil, err
	}
	list, err := bucket.ListKeysFiltered(ctx, run+".>")
	if err != nil {
		return nil, err
	}
	for key := range list.Keys() {
		keys = append(keys, strings.TrimPrefix(key, run+"."))
	}
	return keys, ctx.Err()
}
