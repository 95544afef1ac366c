package toolserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// Bounds of talking to servers outside, beside those of calls.
const (
	dialTime  = 10 * time.Second
	leaveTime = time.Second // to tell a server that a session is over
	maxHeader = 64 << 10
)

// network is shared by all sessions.
var network = &http.Transport{
	Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
	TLSHandshakeTimeout: dialTime,
	ForceAttemptHTTP2:   true, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader,
}

// remoteServer is a server that is asked over HTTP.
type remoteServer struct {
	name string
	key  string
	much atomic.Bool // an answer was too large
	torn atomic.Bool // an answer broke off
}

// dial makes what a session with a server outside runs over.
func (s *Sessions) dial(_ context.Context, server toolset.Server) (*link, mcp.Transport, error) {
	o := &remoteServer{name: server.Name, key: s.keyOf(server)}
	return &link{under: o}, &mcp.StreamableClientTransport{
		Endpoint: server.URL, HTTPClient: &http.Client{Transport: o}, MaxRetries: -1, DisableStandaloneSSE: true,
		MaxEventSize: maxMessage,
	}, nil
}

// RoundTrip sends one request with the key, and bounds the answer. What says that the server cannot
// be asked now is an error, and so is a redirect: a server that sends its clients elsewhere would
// get them to show the key there.
func (o *remoteServer) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := request.Context(), context.CancelFunc(func() {})
	if request.Method == http.MethodDelete {
		ctx, cancel = context.WithTimeout(ctx, leaveTime)
	}
	defer cancel() // the answer to DELETE has no body that anybody reads
	request = request.Clone(ctx)
	if o.key != "" {
		request.Header.Set("Authorization", "Bearer "+o.key)
	}
	response, err := network.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	code := response.StatusCode
	if code >= 500 || code >= 300 && code < 400 || code == http.StatusUnauthorized || code == http.StatusForbidden ||
		code == http.StatusTooManyRequests {
		response.Body.Close()
		return nil, fmt.Errorf("%w: it answered %s", ErrUnreachable, http.StatusText(code))
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); code == http.StatusOK &&
		kind != "application/json" && kind != "text/event-stream" {
		response.Body.Close()
		return nil, fmt.Errorf("%w: it answered with %.80q, which is not an answer of a tool server", ErrUnreachable,
			kind)
	}
	response.Body = &bounded{ReadCloser: response.Body, left: maxMessage, of: o}
	return response, nil
}

func (o *remoteServer) renew() {
	o.much.Store(false)
	o.torn.Store(false)
}

func (o *remoteServer) judge(err error) error {
	switch {
	case o.much.Load():
		return &fault{fmt.Sprintf("the server %s answered more than %d MiB", o.name, maxMessage>>20)}
	case errors.Is(err, ErrUnreachable):
		return err
	case o.torn.Load(), errors.Is(err, mcp.ErrSessionMissing), errors.Is(err, mcp.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return &fault{fmt.Sprintf("the server %s answers what cannot be understood: %v", o.name, err)}
}

// close has nothing to do: requests end with the calls that they are for.
func (o *remoteServer) close() {}

// bounded is a body of a bounded length.
type bounded struct {
	io.ReadCloser
	left int
	of   *remoteServer
}

func (b *bounded) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.left -= n; b.left < 0 {
		b.of.much.Store(true)
		return 0, errors.New("the answer is too large")
	}
	if err != nil && err != io.EOF {
		b.of.torn.Store(true)
	}
	return n, err
}
