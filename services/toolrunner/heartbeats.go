package toolrunner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// Runners tell each other over core NATS that they live. What is routed to one that has
// been silent for goneAfter goes back to the others: they work on its route too,
// restoring sandboxes from the log.
const (
	aliveEvery = 2 * time.Second
	goneAfter  = 5 * aliveEvery
)

// heartbeats knows which runners live.
type heartbeats struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	self  string
	mu    sync.Mutex
	seen  map[string]time.Time
	since time.Time
}

func newHeartbeats(nc *nats.Conn, js jetstream.JetStream, self string) *heartbeats {
	return &heartbeats{nc: nc, js: js, self: self, seen: map[string]time.Time{}, since: time.Now()}
}

// run beats and listens until the context ends.
func (p *heartbeats) run(ctx context.Context) {
	sub, err := p.nc.Subscribe(topology.AliveSubject+"*", func(m *nats.Msg) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen[strings.TrimPrefix(m.Subject, topology.AliveSubject)] = time.Now()
	})
	if err == nil {
		defer sub.Unsubscribe()
	}
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		// A beat that is lost with the connection is followed by the next one.
		_ = p.nc.Publish(topology.AliveSubject+p.self, nil)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// orphans lists the routes of a run whose runner is gone and whose needs, by their keys, are met
// here. Two runners may take on the same route: its messages are shared between them, and each
// result is fenced by the rollout's chain.
func (p *heartbeats) orphans(ctx context.Context, run string, met map[string]bool) []string {
	if time.Since(p.since) < goneAfter {
		return nil // too early to know who is silent
	}
	stream, err := p.js.Stream(ctx, events.RunStream(run))
	if err != nil {
		return nil
	}
	prefix := topology.ConsumersOf(topology.ToolRunner)[0].For(run, "").Name
	var routes []string
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		route, _ := strings.CutPrefix(name, prefix)
		runner, key, ok := runfile.RunnerOf(route)
		if ok && met[key] && runner != p.self && !p.alive(runner) {
			routes = append(routes, route)
		}
	}
	return routes
}

func (p *heartbeats) alive(runner string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.seen[runner]) < goneAfter
}

// identity is the runner's name. It is kept in the service's directory, so that a runner that
// restarts finds the work that was routed to it.
func identity(dir string) (string, error) {
	path := filepath.Join(dir, "runner")
	if name, err := os.ReadFile(path); err == nil && runfile.ValidToken(string(name)) {
		return string(name), nil
	}
	var random [6]byte
	rand.Read(random[:])
	name := hex.EncodeToString(random[:])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("name the tool runner: %w", err)
	}
	if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
		return "", fmt.Errorf("name the tool runner: %w", err)
	}
	return name, nil
}
