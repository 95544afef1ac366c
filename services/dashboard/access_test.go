package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// closed is a dashboard that takes a token for reading, over a run.
func closed(t *testing.T) *Dashboard {
	t.Helper()
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "live", servicetest.Config("fix"))
	d, err := New(t.Context(), servicetest.Env(t, log), Access{Token: secret}, tokenText)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ask asks a dashboard with some header.
func ask(t *testing.T, d *Dashboard, method, path string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result()
}

// login follows a link, and gives the cookie with which the browser comes back.
func login(t *testing.T, d *Dashboard, link string) *http.Cookie {
	t.Helper()
	answer := ask(t, d, http.MethodGet, link, nil)
	if answer.StatusCode != http.StatusOK || len(answer.Cookies()) != 1 {
		t.Fatalf("the link is answered by %s with %d cookies", answer.Status, len(answer.Cookies()))
	}
	return answer.Cookies()[0]
}

// TestReadingTakesTheLink walks over all pages, JSON and streams: each one is for those who
// followed the link or show the token, and for nobody else. So is what is no page. What needs no
// token shows nothing of a run.
func TestReadingTakesTheLink(t *testing.T) {
	d := closed(t)
	cookie := login(t, d, LinkPath(secret))
	wildcard := regexp.MustCompile(`\{[a-z]+\}`)
	paths := map[string]string{"/none": http.MethodGet, "/healthz/x": http.MethodGet, "/runs//live": http.MethodGet}
	for pattern := range d.routes() {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok {
			method, path = http.MethodGet, pattern
		}
		path = strings.NewReplacer("{run}", "live", "{$}", "").Replace(path)
		if path != "/login" {
			paths[wildcard.ReplaceAllString(path, "1")] = method
		}
	}
	if len(paths) < 17 {
		t.Fatalf("%d paths", len(paths))
	}
	for path, method := range paths {
		for name, header := range map[string]map[string]string{
			"nothing":               nil,
			"another token":         {"Authorization": "Bearer " + secret + "x"},
			"an empty token":        {"Authorization": "Bearer "},
			"a token by itself":     {"Authorization": secret},
			"the link's key":        {"Authorization": "Bearer " + cookie.Value},
			"another cookie":        {"Cookie": cookie.Name + "=" + strings.Repeat("0", len(cookie.Value))},
			"the token as a cookie": {"Cookie": cookie.Name + "=" + secret},
			"an empty cookie":       {"Cookie": cookie.Name + "="},
			"another cookie's name": {"Cookie": "token=" + cookie.Value},
		} {
			for _, method := range []string{method, http.MethodHead, http.MethodPost, http.MethodOptions} {
				answer := ask(t, d, method, path, header)
				if answer.StatusCode != http.StatusUnauthorized || answer.Header.Get("Cache-Control") != "no-store" ||
					len(answer.Cookies()) > 0 {
					t.Errorf("%s %s with %s: %s", method, path, name, answer.Status)
				}
			}
		}
		for name, header := range map[string]map[string]string{"the cookie": {"Cookie": cookie.Name + "=" +
			cookie.Value}, "the token": {"Authorization": "Bearer " + secret}} {
			if answer := ask(t, d, method, path, header); answer.StatusCode == http.StatusUnauthorized {
				t.Errorf("%s %s with %s: %s", method, path, name, answer.Status)
			}
		}
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/runs/live/curves", nil))
	if text := w.Body.String(); !strings.Contains(text, "rondo dashboard --dir DIR") || strings.Contains(text, secret) {
		t.Errorf("a reader without the link is told %s", text)
	}
	for _, path := range []string{"/healthz", "/assets/app.js"} {
		if answer := ask(t, d, http.MethodGet, path, nil); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// TestLink: the link gives a cookie that no program of a page and no page of elsewhere gets, and
// leads away from its own address. It may read and not act. It is the same after a restart, and
// another one for another token.
func TestLink(t *testing.T) {
	d := closed(t)
	for _, wrong := range []string{"/login", "/login?token=", "/login?token=" + secret,
		LinkPath(secret + "x"), LinkPath("")} {
		if answer := ask(t, d, http.MethodGet, wrong, nil); answer.StatusCode != http.StatusUnauthorized ||
			len(answer.Cookies()) > 0 {
			t.Errorf("%s: %s, %d cookies", wrong, answer.Status, len(answer.Cookies()))
		}
	}
	answer := ask(t, d, http.MethodGet, LinkPath(secret), nil)
	if answer.Header.Get("Refresh") != "0; url=/" || answer.Header.Get("Referrer-Policy") != "no-referrer" ||
		answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the link is answered with %v", answer.Header)
	}
	cookie := login(t, d, LinkPath(secret))
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure ||
		strings.Contains(cookie.Value, secret) {
		t.Errorf("the cookie is %s", cookie)
	}
	proxied := ask(t, d, http.MethodGet, LinkPath(secret), map[string]string{"X-Forwarded-Proto": "https"})
	if c := proxied.Cookies(); len(c) != 1 || !c[0].Secure {
		t.Errorf("behind a proxy with TLS the cookies are %v", c)
	}
	with := map[string]string{"Cookie": cookie.Name + "=" + cookie.Value}
	if answer := ask(t, d, http.MethodPost, "/runs/live/state", with); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the link acts: %s", answer.Status)
	}
	if answer := ask(t, closed(t), http.MethodGet, "/runs/live", with); answer.StatusCode != http.StatusOK {
		t.Errorf("after a restart the cookie is answered by %s", answer.Status)
	}
	other, err := New(t.Context(), servicetest.Env(t, natstest.Log(t)), Access{}, tokenText)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []map[string]string{with, {"Authorization": "Bearer "}} {
		if answer := ask(t, other, http.MethodGet, "/", header); answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("another plane answers %s", answer.Status)
		}
	}
}
