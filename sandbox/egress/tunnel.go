package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/sandbox/netaccess"
)

// errSpent ends what a rollout may not have any more.
var errSpent = errors.New("the rollout has used its bytes of network")

func nameOf(text string) (string, error) { return netaccess.HostName(text) }

// unreached answers that a host cannot be reached, or may not be where its name leads.
func (p *Proxy) unreached(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errAddress) {
		p.refuse(w, r, "refused: "+errAddress.Error())
		return
	}
	if errors.Is(err, errSpent) {
		p.refuse(w, r, errSpent.Error())
		return
	}
	p.fail(w, r, http.StatusBadGateway, "the host cannot be reached", "")
}

// tunnel joins the sandbox with an allowed host. What goes through it must
// begin as TLS for that host.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	host, port, why := p.target(r.Host, 443)
	if why != "" {
		p.refuse(w, r, why)
		return
	}
	upstream, err := p.gateway.connect(r.Context(), net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		p.unreached(w, r, err)
		return
	}
	defer upstream.Close()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(r.Context(), func() { conn.Close(); upstream.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(headerTime))
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	begun, named, err := firstWords(conn, early)
	if err == nil && !strings.EqualFold(named, host) {
		err = fmt.Errorf("the tunnel to %s asks for the server %.100q", host, named)
	}
	if err != nil {
		p.note(netaccess.Fetch{Method: r.Method, URL: recordedURL(r), Status: http.StatusOK,
			Refused: plain("what goes through a tunnel must be TLS for its host: " + err.Error())})
		return
	}
	received := p.join(conn, upstream, begun)
	p.note(netaccess.Fetch{Method: r.Method, URL: recordedURL(r), Status: http.StatusOK, Bytes: received})
}

// firstWords reads the greeting of a TLS client, of which the beginning may have come early, and
// gives it with the name of the server that it is for.
func firstWords(conn net.Conn, early []byte) (read []byte, name string, err error) {
	var kept bytes.Buffer
	before, found := bytes.NewReader(early), errors.New("found")
	greeting := &overheard{Conn: conn, from: io.TeeReader(io.LimitReader(io.MultiReader(before, conn), maxHeader),
		&kept)}
	err = tls.Server(greeting, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = hello.ServerName
		return nil, found
	}}).Handshake()
	if !errors.Is(err, found) {
		return nil, "", errors.New("it does not begin with a TLS greeting")
	}
	_, err = kept.ReadFrom(before)
	return kept.Bytes(), name, err
}

// overheard is a connection that is read and never answered.
type overheard struct {
	net.Conn
	from io.Reader
}

func (o *overheard) Read(into []byte) (int, error)  { return o.from.Read(into) }
func (o *overheard) Write(data []byte) (int, error) { return len(data), nil }

// join passes bytes between both until one ends, nothing moves, or the rollout has had its bytes.
func (p *Proxy) join(sandbox, host net.Conn, begun []byte) (received int64) {
	if !p.spend(0, len(begun)) {
		return 0
	}
	_ = host.SetWriteDeadline(time.Now().Add(idleTime))
	if _, err := host.Write(begun); err != nil {
		return 0
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn, spend func(int) bool) (n int64) {
		buffer := make([]byte, 32<<10)
		for {
			_ = from.SetReadDeadline(time.Now().Add(idleTime))
			read, err := from.Read(buffer)
			if read > 0 && spend(read) {
				_ = to.SetWriteDeadline(time.Now().Add(idleTime))
				if _, wrong := to.Write(buffer[:read]); wrong != nil {
					err = wrong
				}
				n += int64(read)
			} else if read > 0 {
				err = errSpent
			}
			if errors.Is(err, io.EOF) {
				if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
					return n
				}
			}
			if err != nil {
				sandbox.Close()
				host.Close()
				return n
			}
		}
	}
	both.Go(func() { pass(host, sandbox, func(n int) bool { return p.spend(0, n) }) })
	both.Go(func() { received = pass(sandbox, host, func(n int) bool { return p.spend(n, 0) }) })
	both.Wait()
	return received
}
