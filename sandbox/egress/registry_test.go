package egress

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/storage/dir"
)

// mirror is a scripted registry of each kind, and a place where files are.
type mirror struct {
	*httptest.Server
	asked   atomic.Int64
	version atomic.Int64 // of the pages
}

func newMirror(t *testing.T) *mirror {
	m := &mirror{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		switch r.URL.EscapedPath() {
		case "/simple/demo/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w,
				`<a class="x" href="../../files/demo-%d.whl#sha256=ab&amp;x=1">demo</a> <a href='https://elsewhere.example.org/demo.whl'>other</a>`, m.version.Load())
		case "/simple/json/":
			w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
			fmt.Fprintf(w, `{"files":[{"url":"%s/files/a.whl","size":12345678901234567890}]}`, m.URL)
		case "/npm/@scope%2fpkg":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"versions":{"1.0.0":{"dist":{"tarball":"%s/npm/@scope/pkg/-/pkg-1.0.0.tgz"}}}}`, m.URL)
		case "/npm/moved":
			http.Redirect(w, r, "http://127.0.0.1:1/secret", http.StatusFound)
		case "/go/example.org/m/@v/list":
			fmt.Fprint(w, "v1.0.0\n")
		case "/files/demo-0.whl", "/npm/@scope/pkg/-/pkg-1.0.0.tgz":
			fmt.Fprint(w, "the file")
		case "/simple/broken/":
			http.Error(w, "not now", http.StatusInternalServerError)
		case "/private/secret":
			fmt.Fprint(w, "secret")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *mirror) options() Options {
	return Options{Allow: []string{"pypi", "npm", "go"}, Registries: map[string][]string{
		"pypi": {m.URL + "/simple/", m.URL + "/files"}, "npm": {m.URL + "/npm"}, "go": {m.URL + "/go"},
	}}
}

// TestRegistries asks each registry for a page and follows its links to files.
func TestRegistries(t *testing.T) {
	m := newMirror(t)
	p, _ := proxied(t, &world{}, m.options(), Session{Network: allow("pypi", "npm", "go")})
	direct, base := &http.Client{}, "http://"+p.address
	for name, c := range map[string]struct {
		path   string
		status int
		want   string
	}{
		"page":         {"/pypi/simple/demo/", 200, `href="` + base + `/pypi/_files/1/demo-0.whl#sha256=ab&amp;x=1"`},
		"link outside": {"/pypi/simple/demo/", 200, `href="https://elsewhere.example.org/demo.whl"`},
		"JSON page": {"/pypi/simple/json/", 200, `{"files":[{"size":12345678901234567890,"url":"` + base +
			`/pypi/_files/1/a.whl"}]}`},
		"file":          {"/pypi/_files/1/demo-0.whl", 200, "the file"},
		"scoped":        {"/npm/@scope%2fpkg", 200, `"tarball":"` + base + `/npm/_files/0/@scope/pkg/-/pkg-1.0.0.tgz"`},
		"tarball":       {"/npm/_files/0/@scope/pkg/-/pkg-1.0.0.tgz", 200, "the file"},
		"module":        {"/go/example.org/m/@v/list", 200, "v1.0.0\n"},
		"unknown":       {"/pypi/simple/nothing/", 404, "not found"},
		"error":         {"/pypi/simple/broken/", 502, "the registry answered 500"},
		"redirect":      {"/npm/moved", 403, "elsewhere"},
		"out of it":     {"/pypi/_files/1/%2e%2e/private/secret", 403, "leads out"},
		"out of it too": {"/npm/a%2f..%2f..%2fprivate%2fsecret", 403, "leads out"},
		"no such files": {"/pypi/_files/2/private/secret", 403, "no such files"},
		"negative":      {"/pypi/_files/-1/private/secret", 403, "no such files"},
		"query":         {"/npm/demo?write=true", 403, "query"},
		"unknown name":  {"/cargo/demo", 403, `no registry "cargo"`},
	} {
		t.Run(name, func(t *testing.T) {
			if status, body := get(t, direct, base+c.path); status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("answers %d %q", status, body)
			}
		})
	}
	response, err := direct.Post(base+"/npm/demo", "application/json", strings.NewReader("{}"))
	if err != nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("a package can be published: %v %v", response, err)
	}
}

// TestRegistriesThatAreNotAllowed asks for one that the run, and one that
// the operator does not name.
func TestRegistriesThatAreNotAllowed(t *testing.T) {
	m := newMirror(t)
	opts := m.options()
	opts.Allow = []string{"pypi"}
	p, _ := proxied(t, &world{}, opts, Session{Network: allow("pypi", "npm"), Task: allow("npm")})
	for path, want := range map[string]string{"/go/x": "network.allow of the run", "/npm/x": "--allow-network",
		"/pypi/simple/demo/": "the task asks for less"} {
		if status, body := get(t, http.DefaultClient, "http://"+p.address+path); status != 403 ||
			!strings.Contains(body, want) {
			t.Errorf("%s answers %d %q", path, status, body)
		}
	}
	if m.asked.Load() != 0 {
		t.Error("a mirror was asked")
	}
}

// TestKeptAnswers sees pages as they stood when the run first fetched them, in other sandboxes too;
// and a replay fetches nothing.
func TestKeptAnswers(t *testing.T) {
	m := newMirror(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ask := func(session Session, opts Options, path string) (*Proxy, int, string) {
		session.Network = allow("pypi", "a.example.org")
		p, client := proxiedWith(t, store, &world{names: map[string][]string{"a.example.org": {"93.184.216.34"}}}, opts,
			session)
		if !strings.HasPrefix(path, "http") {
			path, client = "http://"+p.address+path, http.DefaultClient
		}
		status, body := get(t, client, path)
		return p, status, body
	}
	p, status, first := ask(Session{}, m.options(), "/pypi/simple/demo/")
	use := taken(t, p)
	sum := sha256.Sum256([]byte(first))
	if status != 200 || !strings.Contains(first, "demo-0.whl") ||
		use.Fetches[0].SHA256 != hex.EncodeToString(sum[:]) || use.Fetches[0].Kept {
		t.Errorf("first %d %q, listed as %+v", status, first, use)
	}
	_, _, missing := ask(Session{}, m.options(), "/pypi/simple/nothing/")
	m.version.Add(1)
	p, _, second := ask(Session{}, m.options(), "/pypi/simple/demo/")
	if use := taken(t, p); second != first || !use.Fetches[0].Kept || m.asked.Load() != 2 {
		t.Errorf("then %q, listed as %+v, asked %d times", second, use, m.asked.Load())
	}
	m.Close()
	// The replay's operator names no mirror and allows nothing: what the run
	// has kept is all there is.
	if p, status, body := ask(Session{Replay: true}, Options{}, "/pypi/simple/demo/"); status != 200 ||
		body != first || len(p.Missing()) != 0 {
		t.Errorf("a replay answers %d %q", status, body)
	}
	if _, status, body := ask(Session{Replay: true}, Options{}, "/pypi/simple/nothing/"); status != 404 ||
		body != missing {
		t.Errorf("a replay answers %d %q", status, body)
	}
	for _, path := range []string{"/pypi/simple/new/", "http://a.example.org/"} {
		if p, status, body := ask(Session{Replay: true}, Options{}, path); status != 403 ||
			!strings.Contains(body, "a replay fetches nothing") || len(p.Missing()) != 1 {
			t.Errorf("a replay answers %s with %d %q", path, status, body)
		}
	}
}

// TestChangedAnswer does not give out what is not what was kept.
func TestChangedAnswer(t *testing.T) {
	m := newMirror(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p, _ := proxiedWith(t, store, &world{}, m.options(), Session{Network: allow("go")})
	at := "http://" + p.address + "/go/example.org/m/@v/list"
	if status, _ := get(t, http.DefaultClient, at); status != 200 {
		t.Fatalf("answers %d", status)
	}
	for info, err := range store.List(t.Context(), "runs/r/tools/fetched/sha256/") {
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), info.Key, []byte("v6.6.6\n")); err != nil {
			t.Fatal(err)
		}
	}
	response, err := http.Get(at)
	if err == nil {
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	if err == nil {
		t.Error("a changed answer comes as a whole")
	}
}
