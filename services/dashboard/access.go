package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// Access says who may use a dashboard.
type Access struct {
	// Token lets programs read and act, and people act. The link that follows from it lets people
	// read. With an empty one nobody may.
	Token string
	// Open lets everybody read who reaches the address.
	Open bool
}

// LinkPath is the path of the link by which a browser may read what the dashboard with a token
// shows. The key in it follows from the token, and the token not from the key: who has the link
// cannot act.
func LinkPath(token string) string { return "/login?token=" + readingKey(token) }

func readingKey(token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("rondo dashboard: read"))
	return hex.EncodeToString(mac.Sum(nil))
}

// keys are digests of secrets, which are compared in a time that does not depend on them.
type keys struct {
	token, reading [sha256.Size]byte
	cookie         string // its name: browsers send cookies to all ports of a host, so each plane has its own
	open           bool
}

func newKeys(a Access) keys {
	if a.Token == "" {
		a.Token = rand.Text()
	}
	k := keys{token: sha256.Sum256([]byte(a.Token)), reading: sha256.Sum256([]byte(readingKey(a.Token))), open: a.Open}
	k.cookie = "rondo-" + hex.EncodeToString(k.reading[:4])
	return k
}

func matches(secret string, want [sha256.Size]byte) bool {
	sum := sha256.Sum256([]byte(strings.TrimSpace(secret)))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// mayRead reports whether a request comes from a browser that used the link, or from a program with
// the token.
func (k *keys) mayRead(r *http.Request) bool {
	return k.open || matches(bearer(r), k.token) ||
		slices.ContainsFunc(r.CookiesNamed(k.cookie), func(c *http.Cookie) bool { return matches(c.Value, k.reading) })
}

// mayAct reports whether a request shows the token, in a header or a form. No browser sends these
// by itself, so a page of elsewhere cannot act for whoever has this one open.
func (k *keys) mayAct(r *http.Request) bool {
	return matches(bearer(r), k.token) || matches(r.PostForm.Get("token"), k.token)
}

// bearer is the token in a request's header.
func bearer(r *http.Request) string {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}
	return ""
}

// public are the patterns that everybody may ask for: they show nothing of any run.
var public = []string{"GET /assets/", "GET /healthz", "GET /login"}

var errReader = &refusal{http.StatusUnauthorized,
	"Open this dashboard by its link: `rondo dashboard --dir DIR` prints it for the owner of DIR, the plane's folder. " +
		"Programs send the token in DIR/dashboard.token as a header, Authorization: Bearer TOKEN."}

// login gives a browser that follows the link a cookie, and leads it to the runs. It does so by a
// page: a redirect of a navigation that began elsewhere would not have the cookie.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) error {
	key := r.URL.Query().Get("token")
	if !matches(key, d.keys.reading) {
		return errReader
	}
	http.SetCookie(w, &http.Cookie{
		Name: d.keys.cookie, Value: key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.Header.Get("X-Forwarded-Proto") == "https",
	})
	w.Header().Set("Refresh", "0; url=/") // which takes the place of the link in the browser's history
	return d.page(w, http.StatusOK, "problem", map[string]any{"Title": "Welcome", "Here": "",
		"Text": "You may read this dashboard."})
}
