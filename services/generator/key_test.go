package generator

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// buffer is a log that a test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// TestTheKeyStaysHere lets a server repeat the key in every error that it can give.
func TestTheKeyStaysHere(t *testing.T) {
	log := natstest.Log(t)
	const key = "sk-very-secret-0123"
	logged := &buffer{}
	env := servicetest.Env(t, log)
	env.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	// as a file holds it
	servers := servicetest.Fleet(t, env, func(o *fleet.Options) { o.Keys = fleet.Everywhere(key + "\n") })
	servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, servers, DefaultOptions()) })
	echo := func(code int) answer {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "you sent "+r.Header.Get("Authorization"), code)
		}
	}
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
			http.StatusTemporaryRedirect)
	}
	for name, a := range map[string]answer{
		"401": echo(401), "400": echo(400), "500": echo(500), "redirect": elsewhere,
		"choices": text(`{"choices":["` + key + `"]}`), "no-json": text(key),
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, a)
			open(t, log, "r"+name, e.URL, func(c *runfile.RunConfig) { c.Limits.Tries = 2 })
			servicetest.Wait(t, log, "r"+name, events.RolloutFailedType, rollout, 1)
			if got := e.seen()[0].key; got != "Bearer "+key {
				t.Errorf("%s: the server was shown %q", name, got)
			}
			for _, fact := range servicetest.All(t, log, "r"+name) {
				if bytes.Contains(fact.Data, []byte(key)) {
					t.Errorf("%s: %s tells the key: %s", name, fact.ID, fact.Data)
				}
			}
		})
	}
	logged.mu.Lock()
	defer logged.mu.Unlock()
	if strings.Contains(logged.b.String(), key) {
		t.Errorf("the log tells the key:\n%s", &logged.b)
	}
}
