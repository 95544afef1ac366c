package main

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
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// plane is a log and a store that a command works with: external ones, those of a running plane in the
// directory, or embedded ones of its own.
type plane struct {
	dir    string
	log    *eventlog.Log
	store  storage.Store
	conn   *nats.Conn
	server *embedded.Server // nil unless this process holds the directory
	lock   *os.File
	url    string
	waits  bool // for streams that somebody else makes
}

// endpoint is what a process that holds a directory tells others about itself.
type endpoint struct {
	NATS  string `json:"nats"`
	Store string `json:"store"`
	HTTP  string `json:"http,omitempty"`
	PID   int    `json:"pid"`
}

func endpointFile(dir string) string { return filepath.Join(dir, "endpoint.json") }

// connect finds the plane that the flags name.
func connect(ctx context.Context, g *global) (*plane, error) {
	if g.nats != "" {
		if g.store == "" {
			return nil, errors.New("--nats needs --store: the log refers to objects (a directory, or s3://bucket/prefix?endpoint=URL)")
		}
		return dial(ctx, g, g.nats, g.store)
	}
	p, err := hold(ctx, g.dir, holdOptions{mustExist: true, storeURL: g.store})
	if !errors.Is(err, errHeld) {
		return p, err
	}
	e, err := readEndpoint(g.dir)
	if err != nil {
		return nil, err
	}
	return dial(ctx, g, e.NATS, e.Store)
}

// mustRun says clearly that there is no run of a name.
func (p *plane) mustRun(ctx context.Context, run string) error {
	err := error(nil)
	known := run == events.Catalogue || events.ValidRun(run)
	if known {
		_, err = p.log.Incarnation(ctx, run)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		_, err = p.log.RecordedConfig(ctx, run) // of its archive
	}
	if !known || errors.Is(err, eventlog.ErrNotFound) {
		return fmt.Errorf("there is no run %q: `rondo run list` lists the runs", run)
	}
	return err
}

// connectRun connects to a plane that has a run.
func connectRun(ctx context.Context, g *global, run string) (*plane, error) {
	p, err := connect(ctx, g)
	if err != nil {
		return nil, err
	}
	if err := p.mustRun(ctx, run); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// dial uses a server and a store that run elsewhere.
func dial(ctx context.Context, g *global, natsURL, storeURL string) (*plane, error) {
	options, err := g.access.options()
	if err != nil {
		return nil, err
	}
	store, err := open.Open(ctx, storeURL)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	conn, err := nats.Connect(natsURL, append(options, nats.Name("rondo"), nats.MaxReconnects(-1), nats.Timeout(5*time.Second), nats.ErrorHandler(tellRefusal))...)
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", redacted(natsURL), withoutSecrets(natsURL, err))
	}
	p := &plane{dir: g.dir, conn: conn, store: store, url: natsURL, waits: g.awaitStreams}
	if err := p.openLog(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// errHeld: another process holds the directory.
var errHeld = errors.New("the directory is in use")

// holdOptions say how a directory is held.
type holdOptions struct {
	mustExist  bool
	storeURL   string // "" = DIR/objects
	listen     bool
	durability time.Duration // 0 = every append is synced
}

// hold opens the embedded plane of a directory for this process alone.
func hold(ctx context.Context, dir string, o holdOptions) (*plane, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "nats")); o.mustExist && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no plane: run `rondo demo` or `rondo up` first, or name one by --dir or --nats", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &plane{dir: dir}
	if p.lock, err = lockDir(ctx, dir, o.listen); err != nil {
		return nil, err
	}
	storeURL := o.storeURL
	if storeURL == "" {
		storeURL = filepath.Join(dir, "objects")
	} else if !strings.Contains(storeURL, "://") {
		if storeURL, err = filepath.Abs(storeURL); err != nil { // others read it in folders of their own
			p.close()
			return nil, err
		}
	}
	if err := p.start(ctx, storeURL, o); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *plane) start(ctx context.Context, storeURL string, o holdOptions) (err error) {
	if p.store, err = open.Open(ctx, storeURL); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	opts := embedded.Options{Dir: filepath.Join(p.dir, "nats"), SyncInterval: o.durability}
	if o.listen {
		opts.Listen = "127.0.0.1:0"
	}
	if p.server, err = embedded.Start(opts); err != nil {
		return fmt.Errorf("start the embedded log: %w", err)
	}
	if p.conn, err = p.server.Connect(); err != nil {
		return fmt.Errorf("connect to the embedded log: %w", err)
	}
	p.url = p.server.URL()
	if o.listen {
		if err := p.announce(endpoint{NATS: p.url, Store: storeURL, PID: os.Getpid()}); err != nil {
			return err
		}
	}
	return p.openLog(ctx)
}

func (p *plane) openLog(ctx context.Context) (err error) {
	if p.log, err = eventlog.New(p.conn, p.store); err != nil {
		return err
	}
	if p.waits {
		return p.log.AwaitStreams(ctx)
	}
	return p.log.EnsureStreams(ctx)
}

func (p *plane) announce(e endpoint) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return os.WriteFile(endpointFile(p.dir), data, 0o600)
}

func readEndpoint(dir string) (endpoint, error) {
	var e endpoint
	data, err := os.ReadFile(endpointFile(dir))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		return e, fmt.Errorf("%s is in use by a process that cannot be reached: %w", dir, err)
	}
	return e, nil
}

// lockPatience is how long a plane that starts waits for a short command that looks into its directory.
const lockPatience = 15 * time.Second

// lockDir takes the directory for this process; the kernel gives it back however the process ends. A patient
// caller waits for a holder that is no plane itself.
func lockDir(ctx context.Context, dir string, patient bool) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockPatience); ; {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			return f, nil
		}
		if !patient || planeRuns(dir) || time.Now().After(deadline) || ctx.Err() != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", dir, errHeld)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// planeRuns reports whether the process that announced itself in a directory is alive.
func planeRuns(dir string) bool {
	e, err := readEndpoint(dir)
	return err == nil && e.PID != os.Getpid() && unix.Kill(e.PID, 0) == nil
}

// close gives everything back, the log last.
func (p *plane) close() {
	if p.conn != nil {
		p.conn.Close()
	}
	if p.server != nil {
		os.Remove(endpointFile(p.dir))
		p.server.Shutdown()
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.lock != nil {
		// Closing alone would leave it to a process that is being started, and has not closed what it inherited.
		_ = unix.Flock(int(p.lock.Fd()), unix.LOCK_UN)
		p.lock.Close()
	}
}

// logger writes to standard error: warnings only for commands that show progress of their own.
func logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}
