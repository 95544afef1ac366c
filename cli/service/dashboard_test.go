package service

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// status asks for a page as somebody who is not the owner of the plane's folder.
func status(t *testing.T, client *http.Client, url, host string, header map[string]string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestDashboardPort: the dashboard's port is open before anything runs, and answers to this
// machine's names and pages alone, and to who has the link. The link follows from a file that
// nobody else can read, and is the same after a restart.
func TestDashboardPort(t *testing.T) {
	var s Settings
	env := servicetest.Env(t, natstest.Log(t))
	if url, err := s.Dashboard.Listen(env.Dir); url != "" || err != nil {
		t.Errorf("without an address it listens at %q, %v", url, err)
	}
	if link, err := DashboardLink(env.Dir); err == nil || !strings.Contains(err.Error(), "no dashboard runs there") {
		t.Errorf("without a dashboard the link is %q, %v", link, err)
	}
	s.Dashboard.listen = "127.0.0.1:0"
	url, err := s.Dashboard.Listen(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	stop := servicetest.Start(t, func(ctx context.Context) error { return serveDashboard(ctx, env, s) })
	link, err := DashboardLink(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	owner := &http.Client{Jar: jar}
	elsewhere := map[string]string{"Origin": "http://evil.example"}
	for _, c := range []struct {
		what      string
		client    *http.Client
		url, host string
		header    map[string]string
		want      int
	}{
		{"another user", http.DefaultClient, url, "", nil, http.StatusUnauthorized},
		{"a page of elsewhere with the link", owner, link, "", elsewhere, http.StatusForbidden},
		{"a name of elsewhere with the link", owner, link, "evil.example", nil, http.StatusForbidden},
		{"who was refused", owner, url, "", nil, http.StatusUnauthorized},
		{"the owner", owner, link, "", nil, http.StatusOK},
		{"the owner without the link", owner, url, "", nil, http.StatusOK},
		{"a page of elsewhere with the owner's cookie", owner, url, "", elsewhere, http.StatusForbidden},
		{"a name of elsewhere with the owner's cookie", owner, url, "evil.example", nil, http.StatusForbidden},
	} {
		if got := status(t, c.client, c.url, c.host, c.header); got != c.want {
			t.Errorf("%s is answered by %d, want %d", c.what, got, c.want)
		}
	}
	if shown := s.Dashboard.Welcome(true); shown != link {
		t.Errorf("a terminal shows %s, and the command %s", shown, link)
	}
	if piped := s.Dashboard.Welcome(false); strings.Contains(piped, "token=") ||
		!strings.Contains(piped, "rondo dashboard --dir "+env.Dir) {
		t.Errorf("a pipe gets %s", piped)
	}
	info, err := os.Stat(filepath.Join(env.Dir, DashboardTokenFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	stop()
	if link, err := DashboardLink(env.Dir); err == nil {
		t.Errorf("a dashboard that has ended has the link %s", link)
	}
	s.Dashboard.listen, s.Dashboard.listener = strings.Trim(url, "htp:/"), nil
	servicetest.Start(t, func(ctx context.Context) error { return serveDashboard(ctx, env, s) })
	natstest.Eventually(t, "the dashboard has begun again",
		func() bool { _, err := DashboardLink(env.Dir); return err == nil })
	if again, err := DashboardLink(env.Dir); again != link || err != nil {
		t.Errorf("after a restart the link is %s, %v, and was %s", again, err, link)
	}
	if got := status(t, owner, url, "", nil); got != http.StatusOK {
		t.Errorf("after a restart the owner's cookie is answered by %d", got)
	}
}

// TestDashboardOpen: who is told to let everybody read does, and says so.
func TestDashboardOpen(t *testing.T) {
	var s Settings
	env := servicetest.Env(t, natstest.Log(t))
	s.Dashboard.listen, s.Dashboard.open = "127.0.0.1:0", true
	url, err := s.Dashboard.Listen(env.Dir)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Start(t, func(ctx context.Context) error { return serveDashboard(ctx, env, s) })
	if got := status(t, http.DefaultClient, url, "", nil); got != http.StatusOK {
		t.Errorf("an open dashboard answers %d", got)
	}
	if shown := s.Dashboard.Welcome(true); !strings.Contains(shown, "everybody") {
		t.Errorf("a terminal shows %s", shown)
	}
}

// TestShortDashboardToken: a token that could be guessed from the link is refused, without a word
// of what it is, and space around one does not count.
func TestShortDashboardToken(t *testing.T) {
	var s Settings
	dir := t.TempDir()
	s.Dashboard.listen = "127.0.0.1:0"
	for token, short := range map[string]bool{"hunter2": true, " hunter2" + strings.Repeat(" ", 40): true,
		strings.Repeat("0123456789abcdef", 2) + "\n": false} {
		t.Setenv(dashboardToken, token)
		_, err := s.Dashboard.Listen(dir)
		if short != (err != nil) || short &&
			(!strings.Contains(err.Error(), "at least 32") || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%q: %v", token, err)
		}
		if err == nil && strings.TrimSpace(s.Dashboard.token) != s.Dashboard.token {
			t.Errorf("the token is %q", s.Dashboard.token)
		}
	}
	s.Dashboard.Close()
}

// TestDashboardKeepsOthersOut: the directory that gets the token and the address is closed to other
// users before a port is open.
func TestDashboardKeepsOthersOut(t *testing.T) {
	var s Settings
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s.Dashboard.listen = "127.0.0.1:0"
	if _, err := s.Dashboard.Listen(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Dashboard.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory's mode: %v, %v", info.Mode(), err)
	}
	// A second dashboard of the directory says that the command prints another one's link.
	var second Settings
	second.Dashboard.listen = s.Dashboard.listen
	if _, err := second.Dashboard.Listen(dir); err != nil {
		t.Fatal(err)
	}
	defer second.Dashboard.Close()
	if shown := second.Dashboard.Welcome(false); !strings.Contains(shown, "another dashboard") {
		t.Errorf("a second dashboard shows %s", shown)
	}
}
