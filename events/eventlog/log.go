// Package eventlog is the log in parts, of which each user names those that it needs: a Reader, an
// Appender, a Submitter, an Archive and its Restorer, and Streams.
package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/slots"
	"github.com/rondo-rl/rondo/storage"
)

// requestTimeout bounds one request to the server; an unanswered append is
// resolved by reading the chain.
const requestTimeout = 5 * time.Second

// The cache holds links that a chain walk reads again and again; they are immutable. It is bounded
// to cachedEvents × cachedBody = 128 MiB.
const (
	cachedEvents = 4096
	cachedBody   = 32 << 10
)

// Log is the whole log: a Reader, and the parts that do more. A service, a command or a
// library is given the parts that it needs. All are safe for concurrent use, share their
// caches, and do not own the connection.
type Log struct {
	Reader
	Appender  Appender
	Submitter Submitter
	Archive   Archive
	Restorer  Restorer
	Streams   Streams
}

// Reader reads what is on the log, and what has left a run's stream for its archive.
type Reader struct {
	*core
	seen *seen // nil: nothing that a read must show
}

// Appender is a Reader that puts events on the log.
type Appender struct{ Reader }

// Submitter states facts to the intake, as outsiders do.
type Submitter struct{ *core }

// Archive is a Reader that seals segments, checks them, and takes from streams what they hold. It
// puts no event on the log: it makes the events that say what it did.
type Archive struct{ Reader }

// Restorer writes a run's stream again from its archive, while the stream is hidden.
type Restorer struct{ Archive }

// Streams makes streams and consumers, and says how the streams are.
type Streams struct{ Reader }

// core is what the parts share.
type core struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	store    storage.Store
	answers  *answers
	requests *slots.Slots
	appends  appends
	// replicas: see [Replicas].
	replicas int
	persist  func(stream string) error
	// uncompressed: see [Uncompressed].
	uncompressed bool
	cache        *lru.Cache[cacheKey, events.Event]
	folds        *folds
	archives     archives
	created      sync.Map // run → time.Time at which its stream was made
	single       sync.Map // run → time.Time at which its stream had one replica
	reached      sync.Map // run → reached
	now          func() time.Time
}

type cacheKey struct {
	run string
	seq uint64
}

// Option changes how a Log is made.
type Option func(*core)

// Persisted says how a stream of the server is brought to its disk, which makes the Log
// wait for that where a later sync is not enough: see [Streams.Persist]. Without it, that
// is the server's own matter.
func Persisted(persist func(stream string) error) Option {
	return func(l *core) { l.persist = persist }
}

// Uncompressed makes streams whose full files are not compressed: a server that syncs at an
// interval replaces the one file by the other before that is synced, and a power cut may take both.
func Uncompressed() Option { return func(l *core) { l.uncompressed = true } }

// New makes a Log over a connection and the store that holds large bodies.
func New(nc *nats.Conn, store storage.Store, opts ...Option) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	cache, err := lru.New[cacheKey, events.Event](cachedEvents)
	if err != nil {
		return nil, err
	}
	folds, err := newFolds()
	if err != nil {
		return nil, err
	}
	c := &core{nc: nc, js: js, answers: newAnswers(nc), requests: slots.New(requestsAtOnce), store: store, cache: cache,
		folds: folds, now: time.Now}
	for _, o := range opts {
		o(c)
	}
	r := Reader{core: c}
	return &Log{Reader: r, Appender: Appender{r}, Submitter: Submitter{c}, Archive: Archive{r},
		Restorer: Restorer{Archive{r}}, Streams: Streams{r}}, nil
}

// Conn is the connection, for core NATS traffic that is not on the log.
func (l *Log) Conn() *nats.Conn { return l.Reader.nc }

// JetStream is the connection's JetStream context.
func (l *Log) JetStream() jetstream.JetStream { return l.Reader.js }

// Store holds the objects that events refer to.
func (l Reader) Store() storage.Store { return l.store }

// ErrNotFound means that there is no such event, chain or run.
var ErrNotFound = errors.New("not found")

// errNoRun is the ErrNotFound of a run that has no stream.
var errNoRun = fmt.Errorf("stream %w", ErrNotFound)

// Await waits until the fixed streams of the topology table are there, for who may not make them.
func (l Streams) Await(ctx context.Context) error {
	for _, s := range topology.Streams[1:] {
		for try := 1; ; try++ {
			_, err := l.js.Stream(ctx, s.Name)
			if err == nil {
				break
			}
			if !errors.Is(err, jetstream.ErrStreamNotFound) && !unknownOutcome(err) {
				return fmt.Errorf("look for stream %s: %w", s.Name, err)
			}
			if !askAgain.Wait(ctx, try) {
				return fmt.Errorf("wait for stream %s, which the intake makes: %w: %w", s.Name, ctx.Err(), err)
			}
		}
	}
	return nil
}

// Ensure makes the fixed streams of the topology table where they are missing, and gives them the
// replicas that this Log was told. It waits for servers that are starting.
func (l Streams) Ensure(ctx context.Context) error {
	for _, s := range topology.Streams[1:] {
		if err := l.ensureFixed(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (l Streams) ensureFixed(ctx context.Context, s topology.StreamSpec) error {
	for began, try := time.Now(), 1; ; try++ {
		err := l.tryFixed(ctx, s)
		if err == nil || !starting(err) || time.Since(began) > makePatience || !askAgain.Wait(ctx, try) {
			return err
		}
	}
}

// tryFixed has a limit of its own: a cluster without a leader drops what it is asked.
func (l Streams) tryFixed(ctx context.Context, s topology.StreamSpec) error {
	ctx, cancel := context.WithTimeout(ctx, makePatience/4)
	defer cancel()
	if err := l.ensureStream(ctx, s, l.replicas); err != nil {
		return err
	}
	return l.fitReplicas(ctx, s.Name)
}

// starting reports whether an error may come from servers that are starting: they do not answer
// yet, know too few others, or do not know a stream yet whose name they call in use.
func starting(err error) bool {
	return unknownOutcome(err) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, ErrReplicas) && apiCode(err) == codeNoPeers
}

// EnsureRun makes the stream of a run where it is missing, of the default size.
func (l Streams) EnsureRun(ctx context.Context, run string) error {
	return l.EnsureRunFor(ctx, run, runfile.Log{})
}

// EnsureRunFor makes the stream of a run where it is missing, as the run's settings say: ErrNoRoom
// or ErrReplicas where the server cannot.
func (l Streams) EnsureRunFor(ctx context.Context, run string, settings runfile.Log) error {
	return l.makeRun(ctx, run, settings, func(*jetstream.StreamConfig) {})
}

func (l Streams) makeRun(ctx context.Context, run string, settings runfile.Log,
	change func(*jetstream.StreamConfig)) error {
	if !events.ValidRun(run) {
		return fmt.Errorf("run name %q: use letters, digits, - and _, at most 64, and none of _, IN and DEAD", run)
	}
	s := topology.Stream(events.RunStream(run))
	s.MaxBytes, s.Forgets = settings.Bytes(), settings.Forgets()
	return l.ensureStreamAt(ctx, s, settings.Replicas, func(cfg *jetstream.StreamConfig) {
		if settings.Placement != "" {
			cfg.Placement = &jetstream.Placement{Tags: []string{settings.Placement}}
		}
		change(cfg)
	})
}

// FitRun gives a run's stream the size that the run was opened with, where the stream was made
// again without its settings, and denies purging where nothing may leave it.
func (l Streams) FitRun(ctx context.Context, run string) error {
	cfg, err := l.Config(ctx, run)
	if err != nil {
		return err
	}
	info, err := l.info(ctx, run)
	if err != nil {
		return err
	}
	denies := info.Config.DenyPurge || !cfg.Log.Forgets() // a server does not take a denial back
	if info.Config.MaxBytes == cfg.Log.Bytes() && info.Config.DenyPurge == denies {
		return nil
	}
	info.Config.MaxBytes, info.Config.DenyPurge = cfg.Log.Bytes(), denies
	if _, err := l.js.UpdateStream(ctx, info.Config); err != nil {
		return fmt.Errorf("give the stream of run %s its %s: %w", run, runfile.Size(cfg.Log.Bytes()), noRoom(err))
	}
	return l.persistStream(events.RunStream(run))
}

// ErrNoRoom means that the server's storage limit leaves no room for a stream, which
// reserves its whole size.
var ErrNoRoom = errors.New("the NATS server's storage limit leaves no room for it")

// noRoom wraps what a server answers that cannot reserve a stream's size.
func noRoom(err error) error {
	switch code := apiCode(err); {
	case code == codeStorageFull, code == codeAccountFull, code == codeInsufficient,
		code == codeNoPeers && strings.Contains(err.Error(), "storage"):
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}

// makePatience is how long the making of a stream may take: its files are synced, which
// takes seconds on a busy disk.
const makePatience = 30 * time.Second

// ensureStream makes a stream where it is missing; 0 replicas are as many as the catalogue has.
func (l Streams) ensureStream(ctx context.Context, s topology.StreamSpec, replicas int) error {
	return l.ensureStreamAt(ctx, s, replicas, func(*jetstream.StreamConfig) {})
}

// ensureStreamAt makes it with settings of its own.
func (l Streams) ensureStreamAt(ctx context.Context, s topology.StreamSpec, replicas int,
	change func(*jetstream.StreamConfig)) error {
	if _, err := l.js.Stream(ctx, s.Name); err == nil {
		// made earlier, perhaps with other limits that an operator chose, or just before a crash
		return l.persistStream(s.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, makePatience)
	defer cancel()
	if replicas == 0 {
		var err error
		if replicas, err = l.Replicas(ctx); err != nil {
			return fmt.Errorf("make stream %s: %w", s.Name, err)
		}
	}
	cfg := settings(s, replicas)
	if l.uncompressed {
		cfg.Compression = jetstream.NoCompression
	}
	change(&cfg)
	_, err := l.js.CreateStream(ctx, cfg)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // which it was by somebody else, just now
		return fmt.Errorf("make stream %s of %s: %w", s.Name, runfile.Size(s.MaxBytes), noReplicas(cfg, noRoom(err)))
	}
	return l.persistStream(s.Name)
}

// StreamSettings are the settings of a stream on a single server, by its name; false where the
// topology table has no such stream.
func StreamSettings(name string) (jetstream.StreamConfig, bool) {
	fixed := slices.ContainsFunc(topology.Streams[1:], func(s topology.StreamSpec) bool { return s.Name == name })
	if run, _ := events.RunOfStream(name); !fixed && !events.ValidRun(run) {
		return jetstream.StreamConfig{}, false
	}
	s := topology.Stream(name)
	s.Forgets = !fixed // FitRun denies it where the run does not ask for it
	return settings(s, 1), true
}

func settings(s topology.StreamSpec, replicas int) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name: s.Name, Description: s.Purpose, Subjects: s.Subjects,
		Storage: jetstream.FileStorage, Replicas: replicas,
		Discard: jetstream.DiscardNew, MaxBytes: s.MaxBytes,
		Duplicates: s.Duplicates, Compression: compression(replicas), AllowMsgTTL: s.Expires,
		// Chain reads by sequence may be answered by any replica: a link never changes.
		AllowDirect: true,
	}
	if s.Tells != "" {
		cfg.RePublish = &jetstream.RePublish{Source: s.Subjects[0], Destination: s.Tells + ">", HeadersOnly: true}
	}
	if s.WorkQueue {
		cfg.Retention = jetstream.WorkQueuePolicy
	} else {
		// A purge breaks chains, unless it spares their last links: it locks the holder
		// out and lets a zombie in.
		cfg.DenyDelete, cfg.DenyPurge = true, !s.Forgets
	}
	return cfg
}

// DeleteRun removes a run's stream whole.
func (l Streams) DeleteRun(ctx context.Context, run string) error {
	err := l.js.DeleteStream(ctx, events.RunStream(run))
	l.forget()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete run %s: %w", run, errNoRun)
	}
	if err != nil {
		return err
	}
	return l.persistStream(events.RunStream(run))
}

// forget drops what is remembered of streams.
func (l *core) forget() {
	l.cache.Purge()
	l.folds.purge()
	l.archives.forget()
}

// Persist returns when all that is on a run's log is on the disk, at any durability, where the Log
// knows how: see [Persisted].
func (l Streams) Persist(run string) error { return l.persistStream(events.RunStream(run)) }

func (l *core) persistStream(name string) error {
	if l.persist == nil {
		return nil
	}
	if err := l.persist(name); err != nil {
		return fmt.Errorf("bring stream %s to the disk: %w", name, err)
	}
	return nil
}

// queueKept is how long the server keeps the consumer of a queue from which nobody takes. The
// stream keeps the messages of the queue.
const queueKept = 10 * time.Minute

// EnsureConsumer makes a durable consumer of the topology table where it is missing: ErrClosed
// where the catalogue says that the run is closed.
func (l Streams) EnsureConsumer(ctx context.Context, spec topology.ConsumerSpec,
	route string) (jetstream.Consumer, error) {
	if run, ok := events.RunOfStream(spec.Stream); ok && events.ValidRun(run) {
		if _, err := l.info(ctx, run); errors.Is(err, ErrRestoring) {
			return nil, fmt.Errorf("make consumer %s: %w", spec.Name, err)
		}
		if err := l.mustServe(ctx, run); err != nil {
			return nil, fmt.Errorf("make consumer %s: %w", spec.Name, err)
		}
	}
	cfg := jetstream.ConsumerConfig{
		Durable: spec.Name, FilterSubject: spec.Filter(route),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: spec.AckWait,
		MaxDeliver: spec.MaxDeliver, MaxAckPending: spec.MaxAckPending,
		Replicas: 0, // as many as its stream has, whatever the process was told that makes it again
	}
	if spec.Queue.Name != "" {
		cfg.InactiveThreshold, cfg.FilterSubject = queueKept, spec.Queue.Filter
	}
	ensure := l.js.CreateOrUpdateConsumer
	switch len(spec.Filters) {
	case 0:
	case 1:
		cfg.FilterSubject, ensure = spec.Filters[0], l.firstConsumer
	default:
		cfg.FilterSubjects, ensure = spec.Filters, l.firstConsumer
	}
	c, err := ensure(ctx, spec.Stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("make consumer %s of %s: %w", spec.Name, spec.Stream, err)
	}
	return c, nil
}

// firstConsumer makes a consumer, or gives the one of its name that another process has made: with
// other filters that would pass over what it has passed.
func (l Streams) firstConsumer(ctx context.Context, stream string,
	cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := l.js.CreateConsumer(ctx, stream, cfg)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return l.js.Consumer(ctx, stream, cfg.Durable)
	}
	return c, err
}

// Incarnation tells a stream from a later one of the same name.
type Incarnation struct {
	Created  time.Time
	FirstSeq uint64
	LastSeq  uint64
}

// Incarnation reads a run stream's identity and bounds.
func (l Reader) Incarnation(ctx context.Context, run string) (Incarnation, error) {
	info, err := l.info(ctx, run)
	if err != nil {
		return Incarnation{}, err
	}
	return Incarnation{Created: info.Created, FirstSeq: info.State.FirstSeq, LastSeq: info.State.LastSeq}, nil
}

// info reads what the server says of a run's stream: ErrRestoring where that is hidden.
func (l *core) info(ctx context.Context, run string) (*jetstream.StreamInfo, error) {
	info, err := l.anyInfo(ctx, run)
	if err == nil && hidden(info.Config) {
		return nil, fmt.Errorf("run %s: %w", run, ErrRestoring)
	}
	return info, err
}

func (l *core) anyInfo(ctx context.Context, run string) (*jetstream.StreamInfo, error) {
	s, err := l.js.Stream(ctx, events.RunStream(run))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("run %s: %w", run, errNoRun)
	}
	if err != nil {
		return nil, fmt.Errorf("look up run %s: %w", run, silent(ctx, err))
	}
	info := s.CachedInfo()
	if before, ok := l.created.Swap(run, info.Created); ok && !before.(time.Time).Equal(info.Created) {
		l.forget() // a stream made again holds other events at the same sequences
	}
	if info.Config.Replicas > 1 {
		l.single.Delete(run)
	} else {
		l.single.Store(run, time.Now())
	}
	return info, nil
}

// silent makes nats.ErrTimeout of a time that is over and not the caller's own: the
// server has not answered.
func silent(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nats.ErrTimeout
	}
	return err
}

// Fill is how full a run's stream is, from 0 to 1.
func (l Reader) Fill(ctx context.Context, run string) (float64, error) {
	bytes, most, err := l.Size(ctx, run)
	if err != nil || most <= 0 {
		return 0, err
	}
	return float64(bytes) / float64(most), nil
}

// Size is how many bytes a run's stream holds, and may hold; most is 0 where it has no limit.
func (l Reader) Size(ctx context.Context, run string) (bytes uint64, most int64, err error) {
	info, err := l.info(ctx, run)
	if err != nil {
		return 0, 0, err
	}
	return info.State.Bytes, max(info.Config.MaxBytes, 0), nil
}

// Decode reads a message of a stream and fetches its body when that lies in the store.
func Decode(ctx context.Context, store storage.Store, subject string, h nats.Header, body []byte,
	seq uint64) (events.Event, error) {
	e, err := events.Parse(subject, h, body)
	e.Seq = seq
	if err != nil {
		return e, fmt.Errorf("sequence %d: %w", seq, err)
	}
	if len(h[events.HeaderDataRef]) == 0 {
		return e, checkVersion(e)
	}
	var ref storage.Ref
	if err := json.Unmarshal(body, &ref); err != nil {
		return e, fmt.Errorf("sequence %d: %w: body reference: %w", seq, events.ErrMalformed, err)
	}
	if e.Data, err = storage.GetBlob(ctx, store, ref); err != nil {
		return e, fmt.Errorf("sequence %d: fetch body: %w", seq, err)
	}
	return e, checkVersion(e)
}

func checkVersion(e events.Event) error {
	if err := e.CheckVersion(); err != nil {
		return fmt.Errorf("sequence %d: %w", e.Seq, err)
	}
	return nil
}

// encode makes the message and moves a large body to the store. It is the one claim check.
func (l *core) encode(ctx context.Context, e events.Event) (*nats.Msg, error) {
	msg := e.Message()
	if len(e.Data) <= events.MaxPayload {
		return msg, nil
	}
	ref, err := storage.PutBlob(ctx, l.store, e.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: store body: %w", e.ID, err)
	}
	if msg.Data, err = json.Marshal(ref); err != nil {
		return nil, err
	}
	msg.Header[events.HeaderDataRef] = []string{ref.Key}
	return msg, nil
}
