package weights

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
	"github.com/rondo-rl/rondo/weights/fetch"
	"github.com/rondo-rl/rondo/weights/mirror"
)

// mirrorOptions are the flags of `rondo weights mirror`.
type mirrorOptions struct {
	to, metrics, region string
	versions            int
	follow              bool
}

func newMirror(g *app.Global) *cobra.Command {
	var o mirrorOptions
	cmd := &cobra.Command{
		Use: "mirror POLICY", Short: "Copy versions into the store of another region", Args: cobra.ExactArgs(1),
		Long: `Mirror copies the current version of a policy, or the --versions newest, into another store, under the same keys. Files are verified while they are copied; the
manifest and the pointer come last, so a reader there never sees a version of which a file is missing. What is there is not copied again: a
mirror that was killed goes on at the file that it was at, and mirroring again adds what is missing. Several mirrors may work on one store.

With --follow it goes on with each version that is published, and through every failure, until it is interrupted. Each line says how far the
other store is behind; --metrics-listen serves that as rondo_mirror_lag_versions and rondo_mirror_lag_seconds, and the dashboard's page of the fleet
shows it by --region.

Side-cars read a mirror by ` + "`rondo weights fetch --from`" + `. S3 credentials are those of the environment, for both stores.`,
		Example: `  rondo weights mirror my-model --to /mnt/london/rondo
  rondo weights mirror my-model --to 's3://rondo-london?region=eu-west-2' --region london --follow --versions 4 --metrics-listen :9101`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.versions < 1 {
				return fmt.Errorf("--versions %d: must be at least 1", o.versions)
			}
			g.Follows, g.Outsider = o.follow, true
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			to, err := open.Open(cmd.Context(), o.to)
			if err != nil {
				return err
			}
			defer to.Close()
			m := &mirroring{mirrorOptions: o, plane: p, show: app.NewProgress(g), json: g.JSON, out: cmd.OutOrStdout()}
			m.Mirror = mirror.Mirror{From: p.Store, To: to, Policy: args[0], Told: m.noteProgress}
			if !o.follow {
				return m.pass(cmd.Context())
			}
			if err := m.serveMetrics(cmd.Context()); err != nil {
				return err
			}
			if m.region == "" {
				m.region = nameOf(o.to)
			}
			tellWait(cmd.Context(), p, args[0], m.show)
			go presence.Speak(cmd.Context(), p.Log.Conn(), presence.MirrorService,
				presence.MirrorName(m.Policy, m.region), m.report)
			m.keep(cmd.Context())
			return plane.LostOr(cmd.Context(), nil)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "the other store: a directory or s3://bucket/prefix?endpoint=URL")
	f.IntVar(&o.versions, "versions", 1, "so many of the newest versions")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with each version that is published")
	f.StringVar(&o.metrics, "metrics-listen", "", "with --follow, address for /metrics, for example :9101")
	f.StringVar(&o.region, "region", "",
		"what the dashboard calls the other store (default: the name of its bucket or directory)")
	_ = cmd.MarkFlagRequired("to")
	cmd.ValidArgsFunction = completePolicies(g)
	return cmd
}

// mirroring is a mirror at work.
type mirroring struct {
	mirrorOptions
	mirror.Mirror
	plane *plane.Plane
	done  []int64 // versions that this process has copied

	mu    sync.Mutex // of what follows
	lag   mirror.Lag
	since time.Time // when the lag was as it says
	show  *app.Progress
	json  bool
	out   io.Writer
}

// mirrored is a line that says what has happened.
type mirrored struct {
	Event  string `json:"event"` // mirrored, failed
	Policy string `json:"policy"`
	*mirror.Copied
	Seconds float64     `json:"seconds,omitempty"`
	Lag     *mirror.Lag `json:"lag,omitempty"`
	Error   string      `json:"error,omitempty"`
	RetryIn float64     `json:"retry_in,omitempty"` // seconds
}

func (m *mirroring) noteProgress(version, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show.Show("version %d  %s  %.1f of %.1f MiB", version, bar(done, total),
		float64(done)/(1<<20), float64(total)/(1<<20))
}

// pass copies the newest versions that this process has not copied.
func (m *mirroring) pass(ctx context.Context) error {
	if _, err := current(ctx, m.plane, m.Policy); err != nil { // says how to find the policies
		return err
	}
	versions, err := m.Newest(ctx, m.versions)
	if err != nil {
		return err
	}
	for _, version := range versions {
		if slices.Contains(m.done, version) {
			continue
		}
		began := time.Now()
		copied, err := m.Version(ctx, version)
		if err != nil {
			return err
		}
		lag, err := m.measure(ctx)
		if err != nil {
			return err
		}
		m.print(mirrored{Event: "mirrored", Copied: &copied, Seconds: time.Since(began).Seconds(), Lag: &lag})
	}
	m.done = versions
	return nil
}

// measure asks both stores how far the mirror is behind.
func (m *mirroring) measure(ctx context.Context) (mirror.Lag, error) {
	now := time.Now()
	lag, err := mirror.LagOf(ctx, m.From, m.To, m.Policy, now)
	if err == nil {
		m.mu.Lock()
		m.lag, m.since = lag, now
		m.mu.Unlock()
	}
	return lag, err
}

// keep mirrors each version that is published until the context ends.
func (m *mirroring) keep(ctx context.Context) {
	failed := func(err error, wait time.Duration) {
		m.print(mirrored{Event: "failed", Error: err.Error(), RetryIn: wait.Seconds()})
	}
	published := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		_ = followPolicy(ctx, m.plane.Conn, m.plane.Log.Reader, m.Policy, chooseNewest, func(int64) {
			select {
			case published <- struct{}{}:
			default:
			}
		}, failed)
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-published:
		}
		_ = fetchAgain.Keep(ctx, func() (bool, error) {
			if _, err := m.measure(ctx); err != nil {
				return false, err
			}
			err := m.pass(ctx)
			return err == nil, err
		}, failed)
	}
}

func (m *mirroring) print(line mirrored) {
	line.Policy = m.Policy
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show.Clear()
	switch {
	case m.json:
		_ = app.PrintJSON(m.out, line)
	case line.Event == "failed":
		fmt.Fprintf(m.out, "%s  failed: %s (again in %.0f s)\n", time.Now().UTC().Format(time.TimeOnly),
			line.Error, line.RetryIn)
	default:
		fmt.Fprintf(m.out, "%s  mirrored version %d, %d of %d bytes copied, %.1f s; %s\n",
			time.Now().UTC().Format(time.TimeOnly), line.Version, line.Copied.Copied, line.Bytes,
			line.Seconds, lagText(*line.Lag))
	}
}

// lagText says how far a mirror is behind.
func lagText(lag mirror.Lag) string {
	switch {
	case lag.Versions == 0:
		return "not behind"
	case lag.Current < 0:
		return fmt.Sprintf("no version there, %d published", lag.Versions)
	}
	return fmt.Sprintf("at version %d, %d versions and %.0f s behind", lag.Current, lag.Versions, lag.Seconds)
}

// serveMetrics serves the lag as it was measured last: its seconds go on while a copy hangs.
func (m *mirroring) serveMetrics(ctx context.Context) error {
	if m.metrics == "" {
		return nil
	}
	registry := plane.NewMetrics()
	m.register(registry, prometheus.Labels{"policy": m.Policy})
	settings := service.DefaultSettings()
	listener, err := net.Listen("tcp", m.metrics)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	go settings.ServeOpen(ctx, listener, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return nil
}

func (m *mirroring) register(registry prometheus.Registerer, labels prometheus.Labels) {
	gauge := func(opts prometheus.GaugeOpts, value func() float64) {
		opts.ConstLabels = labels
		registry.MustRegister(prometheus.NewGaugeFunc(opts, func() float64 {
			m.mu.Lock()
			defer m.mu.Unlock()
			return value()
		}))
	}
	gauge(prometheus.GaugeOpts{Name: "rondo_mirror_lag_versions",
		Help: "Versions of a policy that were published and are not in the mirror (rondo weights mirror)."},
		func() float64 { return float64(m.lag.Versions) })
	gauge(prometheus.GaugeOpts{Name: "rondo_mirror_lag_seconds", Help: "Time since the first of them was published."},
		m.seconds)
}

// seconds is how long the mirror has been behind. The caller holds the lock.
func (m *mirroring) seconds() float64 {
	if m.lag.Versions == 0 {
		return 0
	}
	return m.lag.Seconds + time.Since(m.since).Seconds()
}

// report is what the dashboard hears, as soon as the lag is known.
func (m *mirroring) report() presence.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return presence.Report{}
	}
	return presence.Report{Mirror: &presence.Mirror{Policy: m.Policy, Region: m.region, Current: m.lag.Current,
		Versions: m.lag.Versions, Seconds: m.seconds()}}
}

// nameOf is the name of the bucket or directory that a store's URL names.
func nameOf(location string) string {
	bucket, ok := strings.CutPrefix(location, "s3://")
	if !ok {
		return filepath.Base(location)
	}
	bucket, _, _ = strings.Cut(bucket, "?")
	bucket, _, _ = strings.Cut(bucket, "/")
	return bucket
}

// openNear opens the stores of --from.
func openNear(ctx context.Context, urls []string) (near []fetch.NearStore, closing func(), err error) {
	closing = func() {
		for _, n := range near {
			n.Close()
		}
	}
	for _, url := range urls {
		var s storage.Store
		if s, err = openThere(ctx, url); err != nil {
			closing()
			return nil, func() {}, fmt.Errorf("--from: %w", err)
		}
		near = append(near, fetch.NearStore{Name: url, Store: s})
	}
	return near, closing, nil
}

// openThere opens a store that is read. A directory that is not there would be made, and be empty.
func openThere(ctx context.Context, url string) (storage.Store, error) {
	if !strings.Contains(url, "://") {
		if _, err := os.Stat(url); err != nil {
			return nil, fmt.Errorf("there is no store %q: %w", url, err)
		}
	}
	return open.Open(ctx, url)
}
