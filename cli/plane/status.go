package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/health"
)

// Watch has log and store watched until the context ends. metrics may be nil.
func (p *Plane) Watch(ctx context.Context, l *slog.Logger, metrics prometheus.Registerer) (*health.Monitor, error) {
	o := health.Options{
		Log: p.Log.Streams, Conn: p.Conn, Logger: l, Metrics: metrics, Server: p.server, NATSMonitor: p.natsMonitor,
		Disks: []string{p.Dir},
	}
	if p.server != nil {
		o.LogDir = p.Dir
	}
	if !strings.Contains(p.storeURL, "://") {
		o.StoreDir, o.Disks = p.storeURL, append(o.Disks, p.storeURL)
	}
	m, err := health.New(o)
	if err != nil {
		return nil, err
	}
	go m.Run(ctx)
	return m, nil
}

// StatusHandler serves what a process says of itself: its metrics, its profiles, and whether it can
// do its work. /healthz answers at once by what is known, /readyz asks log and store first. Neither
// is a reason to restart the process, which goes on by itself.
func StatusHandler(metrics prometheus.Gatherer, m *health.Monitor) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tellOutages(w, m.Outages()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		outages := m.Ready(r.Context())
		if r.URL.Query().Get("format") == "json" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(outages)
			return
		}
		tellOutages(w, outages)
	})
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		mux.Handle("GET /debug/pprof/"+name, pprof.Handler(name))
	}
	return mux
}

// NewMetrics is a registry that has the metrics of Go and of the process: its memory,
// file descriptors and time.
func NewMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// tellOutages answers ok, or 503 where the process cannot do its work, with a line for each outage.
func tellOutages(w http.ResponseWriter, outages []health.Outage) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if slices.ContainsFunc(outages, health.Outage.Stops) {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		fmt.Fprintln(w, "ok")
	}
	for _, o := range outages {
		fmt.Fprintln(w, o)
	}
}

// AnnounceStatus tells other processes where this one says how it is.
func (p *Plane) AnnounceStatus(address string) error {
	if p.server == nil {
		return nil // its log is elsewhere, and no command finds it by the directory
	}
	e, err := ReadEndpoint(p.Dir)
	if err != nil {
		return err
	}
	e.HTTP = "http://" + address
	return p.announce(e)
}

// maxOutages bounds what is read of a plane's outages.
const maxOutages = 1 << 20

// AskPlane asks the plane that runs at a status address which outages it sees.
func AskPlane(ctx context.Context, base string) ([]health.Outage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*health.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz?format=json", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the plane how it is: %w", err)
	}
	defer answer.Body.Close()
	var outages []health.Outage
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxOutages)).Decode(&outages); err != nil {
		return nil, fmt.Errorf("ask the plane how it is: %w", err)
	}
	return outages, nil
}

// OutagesOf are those of the plane that a command is connected to, as far as they can
// be learnt: from the process that runs it, from its server's monitoring port, or from
// the server in this process.
func OutagesOf(ctx context.Context, p *Plane) ([]health.Outage, error) {
	switch {
	case p.server != nil:
		return health.Refused(p.server.Refusing(), true), nil
	case p.natsMonitor != "":
		refusing, err := health.AskMonitor(ctx, p.natsMonitor)
		return health.Refused(refusing, false), err
	}
	if e, err := ReadEndpoint(p.Dir); err == nil && e.HTTP != "" && app.RedactedURL(e.NATS) == app.RedactedURL(p.URL) {
		return AskPlane(ctx, e.HTTP)
	}
	return nil, nil
}
