// Package dashboard shows the plane on pages in a browser: runs with their curves and books,
// rollouts turn by turn, and what outlives runs. It folds the log with the folds that the
// command line uses, and states nothing but what an operator asks for with the token. Reading
// takes a link, or the token.
package dashboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/nats-io/nats.go"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// Bounds of what open pages may take.
const (
	maxStreams = 256 // pages that are told of changes
	maxReads   = 4   // trajectories that are read at once
)

// Dashboard is an http.Handler. It keeps folds of the log, which may be lost at any moment.
type Dashboard struct {
	ctx       context.Context
	log       eventlog.Reader
	intake    eventlog.Submitter
	nc        *nats.Conn
	logger    *slog.Logger
	keys      keys
	shelf     *shelf[runState]
	catalogue *shelf[catalogue]
	evals     *shelf[evaluation.Recorded]
	figures   *lru.Cache[string, *measured]
	comparing sync.Mutex // guards the comparisons of figures
	fleet     *presence.Roster
	streams   chan struct{}
	reads     chan struct{}
	mux       *http.ServeMux
	pages     *template.Template
	patience  time.Duration
	// searchTime bounds how long a search may take.
	searchTime time.Duration
	// cardTime is how long the first page waits for the figures of runs.
	cardTime  time.Duration
	outages   func() []health.Outage // of the process's plane, as far as it knows them
	warming   sync.Mutex             // guards warm
	warm      map[string]bool        // runs that are folded behind a page
	tokenText func(id int32) string
	etag      string // of the assets
}

//go:embed assets templates
var files embed.FS

// New makes a dashboard that ends with the context. It shows the tokens of the built-in policy
// as tokenText writes them.
func New(ctx context.Context, env pipeline.Env, access Access, tokenText func(id int32) string) (*Dashboard, error) {
	pages, err := template.New("").Funcs(functions).ParseFS(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	figures, err := lru.New[string, *measured](maxMeasured)
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d := &Dashboard{
		ctx: ctx, log: env.Log.Reader, intake: env.Log.Submitter, nc: env.Log.Conn(), logger: env.Logger,
		keys: newKeys(access), shelf: newShelf(ctx, env.Log.Reader, newRunState, (*runState).apply),
		catalogue: newShelf(ctx, env.Log.Reader, newCatalogue, (*catalogue).apply), fleet: hear(ctx, env),
		evals: newShelf(ctx, env.Log.Reader, evaluation.NewRecorded, (*evaluation.Recorded).Take), figures: figures,
		streams: make(chan struct{}, maxStreams), reads: make(chan struct{}, maxReads),
		mux: http.NewServeMux(), pages: pages,
		patience: patience, searchTime: searchTime, cardTime: cardTime, outages: env.Health.Outages,
		warm: map[string]bool{}, tokenText: tokenText, etag: `"` + rand.Text() + `"`,
	}
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	d.mux.Handle("GET /assets/", http.StripPrefix("/assets/", d.asset(http.FileServerFS(assets))))
	d.mux.HandleFunc("GET /healthz", d.health)
	for pattern, show := range d.routes() {
		d.mux.HandleFunc(pattern, d.handle(show))
	}
	return d, nil
}

// routes are the pages by their patterns.
func (d *Dashboard) routes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":                           d.runs,
		"GET /login":                         d.login,
		"GET /compare":                       d.compareRuns,
		"GET /compare/curves":                d.comparedCurves,
		"GET /fleet":                         d.fleetPage,
		"POST /letters":                      d.redrive,
		"GET /plane":                         d.plane,
		"GET /runs/{run}":                    d.run,
		"GET /runs/{run}/curves":             d.curves,
		"GET /runs/{run}/rollouts.csv":       d.exported,
		"GET /runs/{run}/search":             d.search,
		"GET /runs/{run}/evaluation":         d.evaluation,
		"GET /runs/{run}/tasks":              d.tasks,
		"GET /runs/{run}/file":               d.runFile,
		"GET /runs/{run}/live":               d.live,
		"GET /runs/{run}/groups/{group}":     d.group,
		"GET /runs/{run}/rollouts/{rollout}": d.rollout,
		"GET /runs/{run}/rollouts/{rollout}/messages/{index}":        d.message,
		"GET /runs/{run}/rollouts/{rollout}/messages/{index}/tokens": d.tokens,
		"GET /runs/{run}/rollouts/{rollout}/siblings":                d.siblings,
		"GET /runs/{run}/rollouts/{rollout}/images/{digest}":         d.image,
		"GET /runs/{run}/rollouts/{rollout}/changes":                 d.changes,
		"GET /runs/{run}/rollouts/{rollout}/turns/{turn}/changes":    d.changes,
		"POST /runs/{run}/rollouts/{rollout}/mark":                   d.comment,
		"POST /runs/{run}/state":                                     d.act,
		"/": func(http.ResponseWriter,
			*http.Request) error {
			return errNone
		},
	}
}

// policyHeader lets a page use what comes from here, and nothing that is written into it.
const policyHeader = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policyHeader)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if _, pattern := d.mux.Handler(r); !slices.Contains(public, pattern) && !d.keys.mayRead(r) {
		d.refuse(w, errReader)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// asset serves what is embedded; a browser asks whether it is still the same.
func (d *Dashboard) asset(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", d.etag)
		next.ServeHTTP(w, r)
	})
}

func (d *Dashboard) health(w http.ResponseWriter, _ *http.Request) {
	if !d.nc.IsConnected() {
		http.Error(w, "not connected to NATS", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// refusal is an answer that is no page.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

var errNone = &refusal{http.StatusNotFound, "There is no such page."}

// answerTime bounds how long a page may take.
const answerTime = 30 * time.Second

// handle serves a page, and says what is wrong where there is none.
func (d *Dashboard) handle(show func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		err := show(w, r)
		if err == nil || r.Context().Err() != nil {
			return
		}
		var no *refusal
		switch {
		case errors.As(err, &no):
		case errors.Is(err, errBusy):
			no = &refusal{http.StatusServiceUnavailable, "Too many pages are open: close some."}
		case errors.Is(err, eventlog.ErrNotFound):
			no = errNone
		default:
			d.logger.Error("page failed", "path", r.URL.Path, "error", err)
			no = &refusal{http.StatusServiceUnavailable,
				"The log or the store cannot be read now. The dashboard's own log says why."}
		}
		d.refuse(w, no)
	}
}

// refuse says on a page why there is no other.
func (d *Dashboard) refuse(w http.ResponseWriter, no *refusal) {
	w.Header().Set("Cache-Control", "no-store")
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	data := map[string]any{"Title": http.StatusText(no.status), "Here": "", "Text": no.text,
		"Again": no.status == http.StatusUnauthorized}
	if err := d.page(w, no.status, "problem", data); err != nil {
		http.Error(w, no.text, no.status)
	}
}

// page writes a page whole, or nothing of it.
func (d *Dashboard) page(w http.ResponseWriter, status int, name string, data any) error {
	var b bytes.Buffer
	if err := d.pages.ExecuteTemplate(&b, name+".html", data); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // nobody listens where it fails
	return nil
}

// json writes a value for the page's own program.
func (d *Dashboard) json(w http.ResponseWriter, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data)
	return nil
}

// patience is how long a page waits for a run to be folded: people take no notice of so short a
// time. What is not folded by then is told by the page, which fills itself.
const patience = 50 * time.Millisecond

// open holds the book that a request is about, folded as far as patience allows.
func (d *Dashboard) open(r *http.Request) (b *book[runState], release func(), err error) {
	b, in, target, release, err := d.hold(r)
	if err == nil && !b.has(in, target) {
		d.shelf.follow(b)
		ctx, cancel := context.WithTimeout(r.Context(), d.patience)
		defer cancel()
		b.await(ctx, target)
	}
	return b, release, err
}

// hold holds the book that a request is about as it is, and gives the sequence of the run's stream
// to which it should be folded.
func (d *Dashboard) hold(r *http.Request) (b *book[runState], in eventlog.Incarnation, target uint64,
	release func(), err error) {
	return holdOf(r, d.shelf, r.PathValue("run"))
}

// holdOf is hold of a book on some shelf.
func holdOf[S any](r *http.Request, of *shelf[S], run string) (b *book[S], in eventlog.Incarnation, target uint64,
	release func(), err error) {
	if !events.ValidRun(run) {
		return nil, in, 0, nil, errNone
	}
	at, err := whole(r, "at", 0)
	if err != nil {
		return nil, in, 0, nil, err
	}
	target = uint64(at)
	in, err = of.log.Incarnation(r.Context(), run)
	if err == nil && (at == 0 || target > in.LastSeq) {
		target = in.LastSeq
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		_, err = of.log.RecordedConfig(r.Context(), run) // of its archive
		target = 1 << 62
	}
	if err == nil {
		b, release, err = of.hold(run, uint64(at))
	}
	return b, in, target, release, err
}

// whole reads a parameter that is a whole number of at least 0.
func whole(r *http.Request, name string, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &refusal{http.StatusBadRequest, "The address is not well formed."}
	}
	return n, nil
}
