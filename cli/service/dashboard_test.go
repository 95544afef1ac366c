package service

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestDashboardPort: the dashboard's port is open before anything runs, answers to this machine's names alone, and its token is a file that nobody else can read.
func TestDashboardPort(t *testing.T) {
	var s Settings
	if url, err := s.Dashboard.Listen(); url != "" || err != nil {
		t.Errorf("without an address it listens at %q, %v", url, err)
	}
	s.Dashboard.listen = "127.0.0.1:0"
	url, err := s.Dashboard.Listen()
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, natstest.Log(t))
	servicetest.Start(t, func(ctx context.Context) error { return serveDashboard(ctx, env, s) })
	for host, want := range map[string]int{"": http.StatusOK, "evil.example": http.StatusForbidden} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("host %q: %s, want %d", host, answer.Status, want)
		}
	}
	info, err := os.Stat(filepath.Join(env.Dir, DashboardTokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
}
