package sandbox

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// impostor is what answers instead of an init process: code that took it over.
func impostor(t *testing.T, behave func(peer *os.File, request wire.Request)) *connection {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := os.NewFile(uintptr(pair[1]), "peer")
	c := newConnection(os.NewFile(uintptr(pair[0]), "control"))
	go c.receive()
	go func() {
		var request wire.Request
		if _, err := wire.Read(peer, &request, func() (int64, error) { return 1 << 20, nil }); err == nil {
			behave(peer, request)
		}
	}()
	t.Cleanup(func() {
		c.close(ErrClosed)
		peer.Close()
	})
	return c
}

func TestImpostors(t *testing.T) {
	for name, behave := range map[string]func(*os.File, wire.Request){
		"longer answer than asked for": func(peer *os.File, r wire.Request) {
			_ = wire.Write(peer, wire.Response{ID: r.ID}, make([]byte, 101))
		},
		"answer to another request": func(peer *os.File,
			r wire.Request) {
			_ = wire.Write(peer, wire.Response{ID: r.ID + 7})
		},
		"no frame": func(peer *os.File, _ wire.Request) {
			_,
				_ = peer.WriteString("HTTP/1.1 200 OK\r\n\r\n")
		},
		"hang-up": func(peer *os.File, _ wire.Request) { _ = peer.Close() },
		"half an answer": func(peer *os.File, r wire.Request) {
			_, _ = peer.Write([]byte{0, 0, 0, 100, 0, 0, 0, 0, '{'})
			_ = peer.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := impostor(t, behave)
			_, _, err := c.call(t.Context(), wire.Request{Op: wire.OpRead}, 100, nil)
			if !errors.Is(err, ErrClosed) {
				t.Errorf("call: %v, want ErrClosed", err)
			}
			if _, _, err := c.call(t.Context(), wire.Request{Op: wire.OpRead}, 100, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("call afterwards: %v, want ErrClosed", err)
			}
		})
	}
}

func TestSilentSandboxIsGivenUp(t *testing.T) {
	cancelGrace = 50 * time.Millisecond
	t.Cleanup(func() { cancelGrace = defaultCancelGrace })
	ctx, cancel := context.WithCancelCause(t.Context())
	// it has the request, and is silent
	c := impostor(t, func(*os.File, wire.Request) { cancel(context.DeadlineExceeded) })
	if _, _, err := c.call(ctx, wire.Request{Op: wire.OpRead}, 100, nil); !errors.Is(err, ErrClosed) ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call: %v, want ErrClosed and the deadline", err)
	}
}
