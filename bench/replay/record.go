package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// The run that is recorded.
const (
	run    = "bench"
	feed   = "trainer"
	policy = "bench"
)

// plane is a log and a store in a directory.
type plane struct {
	dir    string
	server *embedded.Server
	conn   *nats.Conn
	store  storage.Store
	log    *eventlog.Log
}

func startPlane(ctx context.Context, files string) (p *plane, err error) {
	p = &plane{dir: files}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.server, err = embedded.Start(embedded.Options{Dir: filepath.Join(files, "nats"),
		SyncInterval: 100 * time.Millisecond, Listen: "127.0.0.1:0", Token: rand.Text()}); err != nil {
		return p, err
	}
	if p.conn, err = p.server.Connect(); err != nil {
		return p, err
	}
	if p.store, err = dir.Open(p.objects()); err != nil {
		return p, err
	}
	if p.log, err = eventlog.New(p.conn, p.store); err != nil {
		return p, err
	}
	return p, p.log.Streams.Ensure(ctx)
}

func (p *plane) objects() string { return filepath.Join(p.dir, "objects") }

func (p *plane) close() {
	if p.conn != nil {
		p.conn.Close()
	}
	if p.server != nil {
		p.server.Shutdown()
	}
	if p.store != nil {
		p.store.Close()
	}
}

// config is a run that closes itself after as many batches as the rollouts make.
func config(rollouts int) (cfg runfile.RunConfig, recorded int) {
	groups := min(batchSize, rollouts/groupSize)
	cfg = runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.GroupSize = policy, runfile.BuiltinEndpoint, groupSize
	cfg.Feeds = []runfile.Feed{{Name: feed, GroupsPerBatch: groups}}
	cfg.InFlight, cfg.Staleness.Max, cfg.Limits.Timeout = 0, 4, runfile.Duration(24*time.Hour)
	cfg.MinVerifier = runfile.VerifierUnguarded
	cfg.Steps = int64(max(1, rollouts/(groups*groupSize)))
	for i := range 8 {
		name := fmt.Sprintf("task-%d", i)
		blob := storage.Ref{Key: storage.BlobKey(storage.Digest([]byte(name))),
			SHA256: storage.Digest([]byte(name)), Size: int64(len(name))}
		cfg.Tasks = append(cfg.Tasks, runfile.TaskSpec{Name: name, Digest: "sha256:" + name, Instruction: text(800),
			Workdir: "/app", Snapshot: blob, Tests: blob})
	}
	return cfg, int(cfg.Steps) * groups * groupSize
}

// record lets the services decide on a run until it closes itself. It gives the
// rollouts that were trained.
func (p *plane) record(ctx context.Context, o Options) (recorded int, err error) {
	cfg, recorded := config(o.Rollouts)
	if err := errors.Join(cfg.Validate(), p.log.Streams.EnsureRun(ctx, run)); err != nil {
		return 0, err
	}
	for _, where := range []string{run, events.Catalogue} {
		opened, err := events.New(where, events.RunOpenedType, run, "0", events.RunOpened{Config: cfg})
		if err == nil {
			_, _, err = p.log.Appender.Append(ctx, opened)
		}
		if err != nil {
			return 0, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	deciding, serving := errgroup.WithContext(ctx)
	for _, service := range o.Services {
		deciding.Go(func() error {
			return service(serving, pipeline.Env{
				Log: p.log, Dir: filepath.Join(p.dir, "state"), Metrics: prometheus.NewRegistry(), Instance: "bench",
				Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
		})
	}
	w := &world{plane: p}
	err = w.live(serving)
	stop()
	return recorded, errors.Join(err, deciding.Wait())
}

// world does what services and trainers do between the decisions.
type world struct {
	*plane
	published uint64 // last link of the policy's chain
}

// rolloutsAtOnce bounds the rollouts that are made up at the same time.
const rolloutsAtOnce = 64

var errClosed = errors.New("the run is closed")

// live answers the run's facts until it is closed.
func (w *world) live(ctx context.Context) error {
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(rolloutsAtOnce)
	err := w.log.Follow(working, run, 1, "", func(e events.Event) error {
		switch e.Type {
		case events.RolloutStartedType:
			work.Go(func() error { return w.rollout(working, e) })
		case events.BatchReadyType:
			return w.train(working, e)
		case events.RunClosedType:
			return errClosed
		}
		return nil
	})
	if errors.Is(err, errClosed) {
		err = nil
	}
	return errors.Join(work.Wait(), err)
}

// append puts facts of one chain on the log, one behind the other.
func (w *world) append(ctx context.Context, tail uint64, facts ...events.Event) (uint64, error) {
	for _, e := range facts {
		e.Prev, e.Source = tail, "bench"
		stored, _, err := w.log.Appender.Append(ctx, e)
		if err != nil {
			return tail, err
		}
		tail = stored.Seq
	}
	return tail, nil
}

// fact makes an event of the run.
func fact(t events.Type, entity, ordinal string, data any) events.Event {
	e, err := events.New(run, t, entity, ordinal, data)
	if err != nil {
		panic(err) // the payloads are the bench's own
	}
	return e
}

// train takes a batch and publishes a version.
func (w *world) train(ctx context.Context, e events.Event) error {
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	if _, err := w.append(ctx, e.Seq, fact(events.BatchConsumedType, feed, events.Ordinal(ready.Step),
		events.BatchConsumed{Step: ready.Step})); err != nil {
		return err
	}
	manifest, err := storage.PutBlob(ctx, w.store, fmt.Appendf(nil, `{"version":%d}`, ready.Step))
	if err != nil {
		return err
	}
	published := fact(events.WeightsPublishedType, policy, events.Ordinal(ready.Step), events.WeightsPublished{
		Policy: policy, Version: ready.Step, Run: run, ThroughStep: ready.Step, Manifest: manifest,
	})
	w.published, err = w.append(ctx, w.published, published)
	return err
}
