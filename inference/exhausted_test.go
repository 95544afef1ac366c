package inference

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestExhausted is the line between this machine, which cannot send a request, and a
// server that cannot answer it.
func TestExhausted(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}, &net.TCPAddr{IP: net.IPv6loopback, Port: 8000}
	request := func(err error) error { return &url.Error{Op: "Post", URL: "http://s/v1/completions", Err: err} }
	call := func(op, name string, to net.Addr, errno syscall.Errno) error {
		return request(&net.OpError{Op: op, Net: "tcp", Addr: to, Err: os.NewSyscallError(name, errno)})
	}
	lookup := func(text string) error {
		return request(&net.OpError{Op: "dial", Net: "tcp",
			Err: &net.DNSError{Err: text, Name: "s", Server: "10.0.0.2:53"}})
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"descriptors":                 {call("dial", "socket", here, syscall.EMFILE), true},
		"descriptors of the machine":  {call("dial", "socket", here, syscall.ENFILE), true},
		"memory":                      {call("dial", "socket", here, syscall.ENOMEM), true},
		"memory of a connection":      {call("write", "write", here, syscall.ENOBUFS), true},
		"ports":                       {call("dial", "connect", here, syscall.EADDRNOTAVAIL), true},
		"a machine without IPv6":      {call("dial", "connect", there, syscall.EADDRNOTAVAIL), false},
		"descriptors of a lookup":     {lookup("dial udp 10.0.0.2:53: socket: too many open files"), true},
		"descriptors of libc":         {lookup("Too many open files in system"), true},
		"no such name":                {lookup("no such host"), false},
		"name servers that are away":  {lookup("server misbehaving"), false},
		"nobody there":                {call("dial", "connect", here, syscall.ECONNREFUSED), false},
		"a connection that is reset":  {call("read", "read", here, syscall.ECONNRESET), false},
		"a network without a way":     {call("dial", "connect", here, syscall.ENETUNREACH), false},
		"a server that says the same": {errors.New("500 Internal Server Error: too many open files"), false},
	} {
		f := &Failure{Class: events.ClassEndpoint, Err: fmt.Errorf("ask: %w", c.err)}
		if got := f.Exhausted(); got != c.want {
			t.Errorf("%s: %v is exhausted: %t, want %t", name, c.err, got, c.want)
		}
	}
}
