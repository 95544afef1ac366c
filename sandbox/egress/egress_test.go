package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// world is where names lead in a test, and what is behind public addresses.
type world struct {
	mu     sync.Mutex
	names  map[string][]string // what a name resolves to; each look-up takes the first while there are more
	behind string              // the server that every public address stands for
	dialed []string
}

func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.names[host]
	if len(all) == 0 {
		return nil, errors.New("no such host")
	}
	if len(all) > 1 {
		w.names[host] = all[1:]
	}
	var found []netip.Addr
	for text := range strings.SplitSeq(all[0], " ") {
		found = append(found, netip.MustParseAddr(text))
	}
	return found, nil
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	behind := w.behind
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, behind)
}

func (w *world) connections() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dialed)
}

// proxied serves a session, and gives a client that asks through it.
func proxied(t *testing.T, w *world, opts Options, session Session) (*Proxy, *http.Client) {
	t.Helper()
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return proxiedWith(t, store, w, opts, session)
}

func proxiedWith(t *testing.T, store storage.Store, w *world, opts Options, session Session) (*Proxy, *http.Client) {
	t.Helper()
	g, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	g.resolve, g.dial = w.resolve, w.dial
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	session.Run = "r"
	p := g.Serve(listener, session)
	t.Cleanup(p.Close)
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: p.address}),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test's server has no name's certificate
	}
	t.Cleanup(transport.CloseIdleConnections)
	return p, &http.Client{Transport: transport}
}

func allow(entries ...string) *netaccess.Network { return &netaccess.Network{Allow: entries} }

// get asks for a URL and gives the status and the body.
func get(t *testing.T, client *http.Client, at string) (int, string) {
	t.Helper()
	response, err := client.Get(at)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func taken(t *testing.T, p *Proxy) netaccess.Use {
	t.Helper()
	use, err := p.Take(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if use == nil {
		return netaccess.Use{}
	}
	return *use
}

// TestHostsThatAllAllow reaches a host over plain HTTP and through a tunnel, where run,
// task and operator name it.
func TestHostsThatAllAllow(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "hello from "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	w := &world{names: map[string][]string{"files.example.org": {"93.184.216.34"}},
		behind: plain.Listener.Addr().String()}
	p, client := proxied(t, w, Options{Allow: []string{"*.example.org"}},
		Session{Network: allow("files.example.org", "pypi")})
	if status, body := get(t, client, "http://files.example.org/a?token=secret"); status != 200 ||
		body != "hello from files.example.org " {
		t.Errorf("plain HTTP answers %d %q", status, body)
	}
	w.behind = secure.Listener.Addr().String()
	if status, body := get(t, client, "https://files.example.org/a"); status != 200 ||
		body != "hello from files.example.org " {
		t.Errorf("a tunnel answers %d %q", status, body)
	}
	client.CloseIdleConnections()
	if dialed := w.connections(); !slices.Equal(dialed, []string{"93.184.216.34:80", "93.184.216.34:443"}) {
		t.Errorf("connected to %q", dialed)
	}
	p.Close()
	use := taken(t, p)
	if len(use.Fetches) == 0 || use.Fetches[0].URL != "http://files.example.org/a" || use.Fetches[0].Status != 200 ||
		use.Refused != 0 || use.Received == 0 {
		t.Errorf("the list is %+v", use)
	}
}

// TestRefusals tries what one of run, task and operator does not allow, and what nobody can allow.
func TestRefusals(t *testing.T) {
	w := &world{names: map[string][]string{
		"ok.example.org": {"93.184.216.34"}, "other.example.org": {"93.184.216.34"}, "localhost": {"127.0.0.1"},
		"private.example.org": {"10.0.0.1"}, "loop.example.org": {"127.0.0.1"},
		"metadata.example.org": {"169.254.169.254"}, "six.example.org": {"::1"},
		"mapped.example.org": {"::ffff:10.0.0.1"}, "mixed.example.org": {"93.184.216.34 192.168.0.1"},
		"nat.example.org": {"64:ff9b::a00:1"}, "shared.example.org": {"100.100.100.200"},
		"ula.example.org": {"fd00:ec2::254"}, "wire.example.org": {"168.63.129.16"}, "zero.example.org": {"0.0.0.0"},
		"multicast.example.org": {"224.0.0.1"},
	}, behind: "127.0.0.1:1"}
	const address = "not public"
	for name, c := range map[string]struct {
		network, task, bound *netaccess.Network
		url, want            string
	}{
		"run": {allow("ok.example.org"), nil, allow("*.example.org"), "http://other.example.org/",
			"network.allow of the run does not name other.example.org port 80"},
		"task": {allow("*.example.org"), allow("ok.example.org"), allow("*.example.org"),
			"http://other.example.org/", "the task asks for less"},
		"operator": {allow("*.example.org"), nil, allow("ok.example.org"),
			"http://other.example.org/", "--allow-network"},
		"operator nothing": {allow("ok.example.org"), nil, allow(), "https://ok.example.org/", "--allow-network"},
		"port": {allow("ok.example.org"), nil, allow("ok.example.org"), "http://ok.example.org:8080/",
			"does not name ok.example.org port 8080"},
		"tunnel port": {allow("ok.example.org"), nil, allow("ok.example.org"), "https://ok.example.org:22/",
			"does not name ok.example.org port 22"},
		"address": {allow("*.example.org"), nil, allow("*.example.org"), "http://93.184.216.34/",
			"hosts are reached by name"},
		"number": {allow("*.example.org"), nil, allow("*.example.org"), "http://2130706433/",
			"hosts are reached by name"},
		"short address": {allow("*.example.org"), nil, allow("*.example.org"), "http://127.1/",
			"hosts are reached by name"},
		"hexadecimal": {allow("*.example.org"), nil, allow("*.example.org"), "http://0x7f.0x1/",
			"hosts are reached by name"},
		"six literal": {allow("*.example.org"), nil, allow("*.example.org"), "http://[::1]:80/",
			"names no port, or an address"},
		"metadata literal": {allow("*.example.org"), nil, allow("*.example.org"), "http://169.254.169.254/latest/",
			"hosts are reached by name"},
		"localhost": {allow("*.example.org"), nil, allow("*.example.org"), "http://localhost:4222/",
			"does not name localhost"},
		"suffix": {allow("*.example.org"), nil, allow("*.example.org"), "http://badexample.org/",
			"does not name badexample.org"},
		"private": {allow("*.example.org"), nil, allow("*.example.org"),
			"http://private.example.org/", address},
		"private tunnel": {allow("*.example.org"), nil, allow("*.example.org"),
			"https://private.example.org/", address},
		"loopback": {allow("*.example.org"), nil, allow("*.example.org"), "http://loop.example.org/", address},
		"metadata": {allow("*.example.org"), nil, allow("*.example.org"),
			"http://metadata.example.org/", address},
		"loopback six": {allow("*.example.org"), nil, allow("*.example.org"), "http://six.example.org/", address},
		"mapped": {allow("*.example.org"), nil, allow("*.example.org"),
			"http://mapped.example.org/", address},
		"mixed":      {allow("*.example.org"), nil, allow("*.example.org"), "http://mixed.example.org/", address},
		"translated": {allow("*.example.org"), nil, allow("*.example.org"), "http://nat.example.org/", address},
		"shared": {allow("*.example.org"), nil, allow("*.example.org"),
			"http://shared.example.org/", address},
		"unique local": {allow("*.example.org"), nil, allow("*.example.org"), "http://ula.example.org/", address},
		"wire server":  {allow("*.example.org"), nil, allow("*.example.org"), "http://wire.example.org/", address},
		"zero":         {allow("*.example.org"), nil, allow("*.example.org"), "http://zero.example.org/", address},
		"multicast": {allow("*.example.org"), nil, allow("*.example.org"),
			"http://multicast.example.org/", address},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := proxied(t, w, Options{Allow: c.bound.Allow}, Session{Network: c.network, Task: c.task})
			status, body := get(t, client, c.url)
			if tunnel := strings.HasPrefix(c.url, "https"); !tunnel && status != http.StatusForbidden ||
				!strings.Contains(body, c.want) {
				t.Errorf("answers %d %q", status, body)
			}
			if use := taken(t, p); use.Refused != 1 || len(use.Fetches) != 1 ||
				!strings.Contains(use.Fetches[0].Refused, c.want) {
				t.Errorf("the list is %+v", use)
			}
		})
	}
	if dialed := w.connections(); len(dialed) != 0 {
		t.Errorf("connected to %q", dialed)
	}
}

// TestRebinding changes where a name leads between two look-ups. The proxy connects to the address
// that it looked at, and looks at each.
func TestRebinding(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	defer server.Close()
	w := &world{names: map[string][]string{"a.example.org": {"93.184.216.34", "127.0.0.1"}},
		behind: server.Listener.Addr().String()}
	_, client := proxied(t, w, Options{Allow: []string{"a.example.org"}}, Session{Network: allow("a.example.org")})
	first, _ := get(t, client, "http://a.example.org/")
	second, body := get(t, client, "http://a.example.org/")
	if first != 200 || second != 403 || !strings.Contains(body, "not public") ||
		!slices.Equal(w.connections(), []string{"93.184.216.34:80"}) {
		t.Errorf("answers %d, then %d %q, connected to %q", first, second, body, w.connections())
	}
}

// TestOwnAddress does not let a name lead to this machine's own public address.
func TestOwnAddress(t *testing.T) {
	g := &Gateway{own: func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("93.184.216.34"), Mask: net.CIDRMask(24, 32)}}, nil
	}}
	if g.reachable(netip.MustParseAddr("93.184.216.34")) || !g.reachable(netip.MustParseAddr("93.184.216.35")) {
		t.Error("the machine's own address can be reached, or its neighbour's cannot")
	}
}

// raw sends bytes to the proxy and gives what comes back until it closes.
func raw(t *testing.T, p *Proxy, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return err.Error()
	}
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// TestHostileBytes sends what no client would.
func TestHostileBytes(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, fmt.Sprintf("%s %s%s %q", r.Method, r.Host, r.URL, body))
	}))
	defer server.Close()
	w := &world{names: map[string][]string{"a.example.org": {"93.184.216.34"}}, behind: server.Listener.Addr().String()}
	p, _ := proxied(t, w, Options{Allow: []string{"a.example.org"}}, Session{Network: allow("a.example.org")})
	for name, c := range map[string]struct{ sent, want string }{
		"other host header":    {"GET http://a.example.org/1 HTTP/1.1\r\nHost: evil.example.com\r\nConnection: close\r\n\r\n", "HTTP/1.1 200"},
		"two lengths":          {"POST http://a.example.org/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 60\r\n\r\nxGET http://b/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		"length in a tunnel":   {"CONNECT b.example.org:443 HTTP/1.1\r\nHost: b.example.org:443\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 403"},
		"bad chunk":            {"POST http://a.example.org/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 501"},
		"line feed in a name":  {"CONNECT a.example.org%0d%0ax:443 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 4"},
		"zero byte in a name":  {"CONNECT a.example.org\x00.b:443 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 4"},
		"user in the name":     {"CONNECT a.example.org:443@b:443 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 4"},
		"file":                 {"GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 4"},
		"https without tunnel": {"GET https://a.example.org/ HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 403"},
		"huge header": {"GET http://a.example.org/ HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) +
			"\r\n\r\n", "HTTP/1.1 431"},
		"tunnel without TLS": {"CONNECT a.example.org:443 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\n",
			"HTTP/1.1 200 Connection established\r\n\r\n"},
		"own ports": {"CONNECT 127.0.0.1:4222 HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 403"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := raw(t, p, c.sent); !strings.HasPrefix(got, c.want) &&
				!(name == "huge header" && strings.Contains(got, "reset")) {
				t.Errorf("answers %.300q", got)
			}
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(seen, []string{`GET a.example.org/1 ""`}) {
		t.Errorf("the host was asked %q", seen)
	}
}

// TestTunnelIsForItsHost greets another server through a tunnel than the
// one that it was opened for.
func TestTunnelIsForItsHost(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	w := &world{names: map[string][]string{"a.example.org": {"93.184.216.34"}}, behind: server.Listener.Addr().String()}
	p, _ := proxied(t, w, Options{Allow: []string{"a.example.org"}}, Session{Network: allow("a.example.org")})
	for name, works := range map[string]bool{"a.example.org": true, "evil.example.com": false, "": false} {
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "CONNECT a.example.org:443 HTTP/1.1\r\nHost: a\r\n\r\n")
		reader := bufio.NewReader(conn)
		if status, _ := reader.ReadString('\n'); !strings.Contains(status, "200") {
			t.Fatalf("the tunnel answers %q", status)
		}
		_, _ = reader.ReadString('\n')
		err = tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(t.Context())
		if (err == nil) != works {
			t.Errorf("to greet %q: %v", name, err)
		}
		conn.Close()
	}
	p.Close()
}

// TestBytesOfARollout ends what a rollout may have: what it had before counts.
func TestBytesOfARollout(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, io.LimitReader(zeros{}, 1<<20)); err != nil {
			return
		}
	}))
	defer server.Close()
	w := &world{names: map[string][]string{"a.example.org": {"93.184.216.34"}}, behind: server.Listener.Addr().String()}
	network := allow("a.example.org")
	network.Bytes = 1 << 20
	p, client := proxied(t, w, Options{Allow: network.Allow}, Session{Network: network, Used: 1 << 19})
	response, err := client.Get("http://a.example.org/")
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	if err == nil {
		t.Error("the whole answer came")
	}
	if status, body := get(t, client, "http://a.example.org/"); status != 403 ||
		!strings.Contains(body, "1048576 bytes") {
		t.Errorf("answers %d %q", status, body)
	}
	if use := taken(t, p); use.Received > 1<<20 {
		t.Errorf("received %d bytes", use.Received)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { clear(into); return len(into), nil }
