package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/storage"
)

// Proxy serves one sandbox.
type Proxy struct {
	gateway *Gateway
	session Session
	address string // as the sandbox knows it
	server  *http.Server
	cancel  context.CancelFunc
	serving sync.WaitGroup
	fetched atomic.Int64 // bytes that registries were asked for on its behalf

	mu      sync.Mutex
	used    int64 // bytes of the rollout, received and sent
	use     netaccess.Use
	all     []netaccess.Fetch
	missing []string // what a replay was asked for and the run has not kept
}

// Serve answers a sandbox's connections until the proxy is closed.
func (g *Gateway) Serve(listener net.Listener, session Session) *Proxy {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{gateway: g, session: session, address: listener.Addr().String(), cancel: cancel, used: session.Used}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	p.serving.Go(func() { _ = p.server.Serve(netutil.LimitListener(listener, connections)) })
	return p
}

// Close ends all connections. Of nil there are none.
func (p *Proxy) Close() {
	if p == nil {
		return
	}
	p.cancel()
	_ = p.server.Close()
	p.serving.Wait()
}

// Take gives what was asked for since it was last called, nil for nothing, its URLs as mask leaves
// them, where there is one. A long list goes to the store.
func (p *Proxy) Take(ctx context.Context, mask func(string) string) (*netaccess.Use, error) {
	p.mu.Lock()
	use, all := p.use, p.all
	p.use, p.all = netaccess.Use{}, nil
	p.mu.Unlock()
	if use.Requests == 0 && use.Received == 0 && use.Sent == 0 {
		return nil, nil
	}
	if mask != nil {
		for i := range all {
			all[i].URL, all[i].Refused = mask(all[i].URL), mask(all[i].Refused)
		}
	}
	use.Fetches = all[:min(len(all), netaccess.MaxFetches)]
	if len(all) <= netaccess.MaxFetches {
		return &use, nil
	}
	var lines bytes.Buffer
	for _, fetch := range all {
		if err := json.NewEncoder(&lines).Encode(fetch); err != nil {
			return nil, err
		}
	}
	ref, err := storage.PutBlob(ctx, p.gateway.store, lines.Bytes())
	use.All = &ref
	return &use, err
}

// Missing are the requests that a replay could not answer, since the last call.
func (p *Proxy) Missing() []string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	missing := p.missing
	p.missing = nil
	return missing
}

// note lists a request.
func (p *Proxy) note(f netaccess.Fetch) {
	f.URL, f.Refused = shorten(f.URL, maxURL), shorten(f.Refused, maxReason)
	f.Method = shorten(f.Method, 16)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.Requests++
	if f.Refused != "" {
		p.use.Refused++
	}
	if len(p.all) < maxListed {
		p.all = append(p.all, f)
	}
}

func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// spend counts bytes and reports whether the rollout may still have more.
func (p *Proxy) spend(received, sent int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use.Received += int64(received)
	p.use.Sent += int64(sent)
	p.used += int64(received + sent)
	return p.used <= p.session.Network.Limit()
}

// isSpent reports whether the rollout has had all its bytes.
func (p *Proxy) isSpent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used >= p.session.Network.Limit()
}

// ServeHTTP answers one request of the sandbox.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	whole := r // an answer of the model may take longer
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	r = r.WithContext(ctx)
	w.Header()["Date"] = nil // what is answered again is the same
	own := r.Method != http.MethodConnect && (r.URL.Host == "" || r.URL.Host == p.address)
	if model := p.session.Model; model != nil && own &&
		!slices.ContainsFunc(netaccess.Registries, func(name string) bool {
			return strings.HasPrefix(r.URL.Path,
				"/"+name+"/")
		}) {
		model.ServeHTTP(w, whole)
		return
	}
	switch {
	case p.isSpent():
		p.refuse(w, r, fmt.Sprintf("the rollout has used its %d bytes of network (network.bytes)",
			p.session.Network.Limit()))
	case p.session.Refused[shorten(recordedURL(r), maxURL)] != "":
		p.refuse(w, r, p.session.Refused[shorten(recordedURL(r), maxURL)])
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case own:
		p.registry(w, r)
	default:
		p.forward(w, r)
	}
}

// refuse answers why a request is not allowed. A tunnel's client shows the status line at most.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, why string) {
	p.fail(w, r, http.StatusForbidden, why, why)
}

// fail answers a request that came to nothing; refused is why, where it was not allowed.
func (p *Proxy) fail(w http.ResponseWriter, r *http.Request, status int, why, refused string) {
	p.note(netaccess.Fetch{Method: r.Method, URL: recordedURL(r), Status: status, Refused: refused})
	text := "rondo: " + plain(why)
	if r.Method == http.MethodConnect {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.SetDeadline(time.Now().Add(headerTime))
			fmt.Fprintf(conn,
				"HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
				status, text, len(text)+1, text)
			conn.Close()
		}
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Connection", "close") // a body that nobody reads ends with it
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// plain makes a text fit for a status line.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, shorten(text, 2*maxReason))
}

// recordedURL is a request's URL as it is recorded: a query may hold a secret, and so may a user.
func recordedURL(r *http.Request) string {
	if r.Method == http.MethodConnect {
		return r.Host
	}
	u := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path, RawPath: r.URL.RawPath}
	return u.String()
}

// hopByHop are headers that are for the next server alone.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// passed are the headers that go on.
func passed(from http.Header) http.Header {
	to := from.Clone()
	for _, list := range from.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			to.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		to.Del(name)
	}
	return to
}

// methods are those of plain requests to hosts.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodOptions}

// forward sends a plain HTTP request to an allowed host.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request) {
	host, port, why := p.target(r.URL.Host, 80)
	switch {
	case why != "":
	case r.URL.Scheme != "http":
		why = "only http:// URLs are passed on; for https:// use CONNECT"
	case !slices.Contains(methods, r.Method):
		why = "the method is not passed on"
	}
	if why != "" {
		p.refuse(w, r, why)
		return
	}
	out := &http.Request{
		Method: r.Method, URL: &url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port)),
			Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery},
		Host: r.URL.Host, Header: passed(r.Header), ContentLength: r.ContentLength,
	}
	if r.ContentLength != 0 {
		out.Body = &counted{ReadCloser: r.Body, spend: func(n int) bool { return p.spend(0, n) }}
	}
	response, err := p.gateway.hosts.RoundTrip(out.WithContext(r.Context()))
	if err != nil {
		p.unreached(w, r, err)
		return
	}
	defer response.Body.Close()
	for name, values := range passed(response.Header) {
		w.Header()[name] = values
	}
	w.WriteHeader(response.StatusCode)
	n, err := p.send(w, response.Body)
	p.note(netaccess.Fetch{Method: r.Method, URL: recordedURL(r), Status: response.StatusCode, Bytes: n})
	if err != nil {
		panic(http.ErrAbortHandler) // so that the client does not take what came for all
	}
}

// target gives the host and the port of an authority, and why they may not be reached.
func (p *Proxy) target(authority string, otherwise int) (host string, port int, why string) {
	port = otherwise
	text := authority
	if before, after, found := strings.Cut(authority, ":"); found {
		n, err := strconv.Atoi(after)
		if err != nil || n < 1 || n > 65535 {
			return "", 0, "it names no port, or an address: name a host"
		}
		text, port = before, n
	}
	host, err := nameOf(text)
	if err != nil {
		return "", 0, "hosts are reached by name: " + err.Error()
	}
	if p.session.Replay {
		return "", 0, p.missed("a replay fetches nothing, and what " + host + " answered is not kept")
	}
	return host, port, p.gateway.refusesHost(p.session, host, port)
}

// missed remembers why a replay differs.
func (p *Proxy) missed(why string) string {
	const most = 100
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.missing) < most {
		p.missing = append(p.missing, why)
	}
	return why
}

// send copies a body to the sandbox, as long as the rollout may have it.
func (p *Proxy) send(w http.ResponseWriter, body io.Reader) (n int64, err error) {
	deadline, buffer := http.NewResponseController(w), make([]byte, 64<<10)
	for {
		read, readErr := body.Read(buffer)
		if read > 0 {
			if !p.spend(read, 0) {
				return n, errSpent
			}
			_ = deadline.SetWriteDeadline(time.Now().Add(idleTime))
			written, err := w.Write(buffer[:read])
			n += int64(written)
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// counted is a body that is counted as it is read.
type counted struct {
	io.ReadCloser
	spend func(int) bool
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	if n > 0 && !c.spend(n) {
		return 0, errSpent
	}
	return n, err
}
