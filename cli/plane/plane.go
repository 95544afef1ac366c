// Package plane finds or holds the plane that a command works with: its log, its store and the
// directory that they are in.
package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// Plane is a log and a store that a command works with: external ones, those of a running plane in
// the directory, or embedded ones of its own.
type Plane struct {
	Dir    string
	Log    *eventlog.Log
	Store  storage.Store
	Conn   *nats.Conn
	server *embedded.Server // nil unless this process holds the directory
	lock   *os.File
	URL    string
	waits  bool // for streams that somebody else makes
	trusts bool // that they are there

	replicas int // of streams that it makes; 0 is as many as hold the catalogue

	storeURL    string
	natsMonitor string // "" when it is not known
}

// endpoint is what a process that holds a directory tells others about itself. Only the
// directory's owner can read it.
type endpoint struct {
	NATS  string `json:"nats"` // nats://TOKEN@127.0.0.1:PORT: the token is needed to connect
	Store string `json:"store"`
	HTTP  string `json:"http,omitempty"`
	PID   int    `json:"pid"`
}

// EndpointFile is the path of the file in which a plane writes its addresses.
func EndpointFile(dir string) string { return filepath.Join(dir, "endpoint.json") }

// Connect finds the plane that the flags name.
func Connect(ctx context.Context, g *app.Global) (*Plane, error) { return connect(ctx, g, holdsLog) }

// ConnectRestoring is Connect that makes the log of a plane's directory anew
// where only a store is left.
func ConnectRestoring(ctx context.Context, g *app.Global) (*Plane, error) {
	must := holdsStore
	if g.Store != "" {
		must = nil
	}
	return connect(ctx, g, must)
}

func connect(ctx context.Context, g *app.Global, must func(dir string) error) (*Plane, error) {
	if g.NATS != "" {
		if g.Store == "" {
			return nil, errors.New("--nats needs --store: the log refers to objects (a directory, or s3://bucket/prefix?endpoint=URL)")
		}
		return dial(ctx, g, g.NATS, g.Store, nil)
	}
	if g.Follows && !InUse(ctx, g.Dir) { // its own server would see nothing new, and keep a plane from starting
		return nil, fmt.Errorf("no plane runs in %s, so there is nothing to follow: start one with `rondo up --dir %s`",
			g.Dir, g.Dir)
	}
	p, err := Hold(ctx, g.Dir, HoldOptions{must: must, StoreURL: g.Store})
	if !errors.Is(err, ErrInUse) {
		return p, err
	}
	e, err := ReadEndpoint(g.Dir)
	if err != nil {
		return nil, err
	}
	return dial(ctx, g, app.RedactedURL(e.NATS), e.Store, &planeDialer{dir: g.Dir})
}

// ConnectRun connects to a plane that has a run.
func ConnectRun(ctx context.Context, g *app.Global, run string) (*Plane, error) {
	p, err := Connect(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := p.MustRun(ctx, run); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// dial uses a server and a store that run elsewhere. With a dialer the server is
// that of a plane's directory.
func dial(ctx context.Context, g *app.Global, natsURL, storeURL string, dialer *planeDialer) (*Plane, error) {
	options, err := g.Access.Options()
	if err != nil {
		return nil, err
	}
	where := "NATS at " + app.Redacted(natsURL)
	if dialer != nil {
		options = append(options, dialer.Options()...)
		where = "the plane in " + dialer.dir
	}
	options = append(options, watchConnection(g, where)...)
	opening := open.Open
	if g.Reads {
		opening = open.ForReading
	}
	store, err := opening(ctx, storeURL)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	conn, err := reach(ctx, g, natsURL, append(options, nats.Name("rondo"), nats.MaxReconnects(-1),
		nats.Timeout(5*time.Second), nats.ErrorHandler(app.TellRefusal))...)
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", app.Redacted(natsURL), app.WithoutSecrets(natsURL, err))
	}
	p := &Plane{Dir: g.Dir, Conn: conn, Store: store, URL: natsURL, waits: g.AwaitStreams, trusts: g.Outsider,
		storeURL: storeURL, natsMonitor: g.Access.Monitor, replicas: g.Replicas}
	waits := time.AfterFunc(silence, func() {
		app.Logger(slog.LevelWarn).Warn("log not answered yet", "server", where, "waits", "for an answer of JetStream")
	})
	defer waits.Stop()
	if err := p.openLog(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// The folders of an embedded plane.
const (
	logFolder   = "nats"
	storeFolder = "objects"
)

// ErrInUse means that another process holds the directory.
var ErrInUse = errors.New("the directory is in use")

// HoldOptions say how a directory is held.
type HoldOptions struct {
	must       func(dir string) error // what the directory has to hold; nil = nothing
	StoreURL   string                 // "" = DIR/objects
	Listen     bool
	Durability time.Duration // 0 = every append is synced
}

// has reports whether a directory has a folder.
func has(dir, folder string) bool {
	_, err := os.Stat(filepath.Join(dir, folder))
	return !errors.Is(err, fs.ErrNotExist)
}

func holdsLog(dir string) error {
	if err := holdsStore(dir); err != nil || has(dir, logFolder) {
		return err
	}
	return fmt.Errorf("the log of the plane in %s is gone, and its store is there: restore each run by `rondo archive restore RUN --dir %s`", dir, dir)
}

func holdsStore(dir string) error {
	if has(dir, logFolder) || has(dir, storeFolder) {
		return nil
	}
	return fmt.Errorf("%s holds no plane: run `rondo demo` or `rondo up` first, or name one by --dir or --nats", dir)
}

// Hold opens the embedded plane of a directory for this process alone.
func Hold(ctx context.Context, dir string, o HoldOptions) (*Plane, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if o.must != nil {
		if err := o.must(dir); err != nil {
			return nil, err
		}
	}
	if err := PrivateDir(dir); err != nil {
		return nil, err
	}
	p := &Plane{Dir: dir}
	if p.lock, err = lockDir(ctx, dir, o.Listen); err != nil {
		return nil, err
	}
	storeURL := o.StoreURL
	if storeURL == "" {
		storeURL = filepath.Join(dir, storeFolder)
	} else if !strings.Contains(storeURL, "://") {
		if storeURL, err = filepath.Abs(storeURL); err != nil { // others read it in folders of their own
			p.Close()
			return nil, err
		}
	}
	if err := p.start(ctx, storeURL, o); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context, storeURL string, o HoldOptions) (err error) {
	if p.Store, err = open.Open(ctx, storeURL); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	p.storeURL = storeURL
	opts := embedded.Options{Dir: filepath.Join(p.Dir, logFolder), SyncInterval: o.Durability,
		Streams: eventlog.StreamSettings}
	if o.Listen {
		opts.Listen, opts.Token = "127.0.0.1:0", newToken()
	}
	if p.server, err = embedded.Start(opts); err != nil {
		return fmt.Errorf("start the embedded log: %w", err)
	}
	for _, stream := range p.server.Mended() {
		app.Logger(slog.LevelWarn).Warn("stream settings restored", "stream", stream)
	}
	if p.Conn, err = p.server.Connect(); err != nil {
		return fmt.Errorf("connect to the embedded log: %w", err)
	}
	p.URL = p.server.URL()
	if o.Listen {
		if err := p.announce(endpoint{NATS: p.URL, Store: storeURL, PID: os.Getpid()}); err != nil {
			return err
		}
	}
	if err := p.openLog(ctx); err != nil {
		return err
	}
	for _, stream := range p.server.Mended() {
		run, _ := events.RunOfStream(stream)
		if !events.ValidRun(run) {
			continue
		}
		if err := p.Log.Streams.FitRun(ctx, run); err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			app.Logger(slog.LevelWarn).Warn("stream size not restored", "stream", stream, "error", err)
		}
	}
	return nil
}

func (p *Plane) openLog(ctx context.Context) (err error) {
	options := []eventlog.Option{eventlog.Replicas(p.replicas)}
	if p.server != nil {
		options = append(options, eventlog.Persisted(p.server.Persist))
		if p.server.SyncsLater() {
			options = append(options, eventlog.Uncompressed())
		}
	}
	if p.Log, err = eventlog.New(p.Conn, p.Store, options...); err != nil {
		return err
	}
	switch {
	case p.trusts:
		return nil
	case p.waits:
		return p.Log.Streams.Await(ctx)
	}
	return p.Log.Streams.Ensure(ctx)
}

func (p *Plane) announce(e endpoint) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	announced.Store(p.Dir, true)
	return writePrivate(EndpointFile(p.Dir), data)
}

// announced are the directories whose planes this process serves.
var announced sync.Map

// ReadEndpoint reads the addresses of the plane of a directory.
func ReadEndpoint(dir string) (endpoint, error) {
	var e endpoint
	if err := ownDir(dir); err != nil { // it would lead to another user's server
		return e, err
	}
	data, err := os.ReadFile(EndpointFile(dir))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return e, fmt.Errorf("%s is in use by a process that cannot be reached: %w", dir, err)
	}
	return e, nil
}

// lockPatience is how long a plane that starts waits for a short command that
// looks into its directory.
const lockPatience = 15 * time.Second

// lockDir takes the directory for this process; the kernel gives it back however the process ends.
// A patient caller waits for a holder that is no plane itself.
func lockDir(ctx context.Context, dir string, patient bool) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		}
		if !patient || PlaneRuns(dir) || time.Now().After(deadline) || ctx.Err() != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
		}
		retry.Sleep(ctx, 50*time.Millisecond)
	}
}

// InUse reports whether a process holds a directory.
func InUse(ctx context.Context, dir string) bool {
	if ownDir(dir) != nil {
		return true // hold says what is wrong
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
		return false
	}
	f, err := lockDir(ctx, dir, false)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, ErrInUse)
}

// PlaneRuns reports whether the process that announced itself in a directory is alive.
func PlaneRuns(dir string) bool {
	e, err := ReadEndpoint(dir)
	if err != nil {
		return false
	}
	if e.PID == os.Getpid() { // or a process that had the same number, in an earlier life of this container
		_, ours := announced.Load(dir)
		return ours
	}
	return unix.Kill(e.PID, 0) == nil
}

// Close gives everything back, the log last.
func (p *Plane) Close() {
	if p.Conn != nil {
		p.Conn.Close()
	}
	if p.server != nil {
		os.Remove(EndpointFile(p.Dir))
		announced.Delete(p.Dir)
		p.server.Shutdown()
	}
	if p.Store != nil {
		p.Store.Close()
	}
	if p.lock != nil {
		// Closing alone would leave it to a process that is being started, and has not
		// closed what it inherited.
		_ = unix.Flock(int(p.lock.Fd()), unix.LOCK_UN)
		p.lock.Close()
	}
}
