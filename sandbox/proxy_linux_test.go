package sandbox_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	actors["proxied"] = func() {
		tryNetwork()
		tryPrivileges()
		tryBeside()
	}
}

// tryBeside tries to get past a sandbox's proxy, and to take its place.
func tryBeside() {
	for network, addresses := range map[string][]string{
		"tcp": {"169.254.169.254:80", os.Getenv("NEIGHBOUR"), "127.0.0.1:4222", "localhost:22", "[::1]:888"},
		"udp": {"169.254.169.254:53", "1.1.1.1:53"},
	} {
		for _, address := range addresses {
			conn, err := net.DialTimeout(network, address, time.Second)
			if err == nil {
				escaped("connected to %s %s", network, address)
				conn.Close()
			}
		}
	}
	if names, err := net.LookupHost("example.org"); err == nil {
		escaped("a name was resolved: %v", names)
	}
	for name, protocol := range map[string]int{"raw": unix.IPPROTO_RAW, "icmp": unix.IPPROTO_ICMP} {
		if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, protocol); err == nil {
			escaped("a raw socket, %s", name)
			unix.Close(fd)
		}
	}
	for _, address := range []string{sandbox.ProxyAddress, "0.0.0.0:888", "127.0.0.1:887"} {
		if listener, err := net.Listen("tcp", address); err == nil {
			escaped("listens at %s", address)
			listener.Close()
		}
	}
	conn, err := net.Dial("tcp", sandbox.ProxyAddress)
	if err != nil {
		escaped("cannot reach the proxy: %v", err)
		return
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); err != nil || string(said) != os.Getenv("EXPECTED") {
		escaped("the proxy says %q, %v", said, err)
	}
}

// says answers each connection to a sandbox's proxy with a word.
func says(sb *sandbox.Sandbox, word string) {
	listener := sb.ProxyListener()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, word)
			conn.Close()
		}
	}()
}

// TestProxyIsTheOnlyWayOut has two sandboxes with a proxy each: their programs reach their own
// owner's answer and nothing else.
func TestProxyIsTheOnlyWayOut(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	mount := []sandbox.Mount{{Source: program, Target: "/opt/program"}}
	for _, word := range []string{"first", "second"} {
		sb := sandboxtest.New(t, sandbox.Spec{Name: word, Proxy: true, Mounts: mount})
		says(sb, word)
		result := run(t, sb, sandbox.Command{Argv: []string{"/opt/program"}, Env: map[string]string{
			"RONDO_TEST_ACTOR": "proxied", "LISTENER": listener.Addr().String(),
			"NEIGHBOUR": listener.Addr().String(), "EXPECTED": word,
		}})
		if result.ExitCode != 0 || len(result.Stdout) != 0 || len(result.Stderr) != 0 {
			t.Errorf("%s: exit code %d\n%s%s", word, result.ExitCode, result.Stdout, result.Stderr)
		}
	}
	// From here nothing listens at that address: the sockets are in the sandboxes' networks.
	if conn, err := net.Dial("tcp", sandbox.ProxyAddress); err == nil {
		conn.Close()
		t.Error("the proxy's address is the host's, too")
	}
}

// TestNoProxyUnlessAsked finds nothing at the address in an ordinary sandbox.
func TestNoProxyUnlessAsked(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	if sb.ProxyListener() != nil {
		t.Error("it has a proxy")
	}
	result := run(t, sb, sandbox.Command{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/888"}})
	if result.ExitCode == 0 || !strings.Contains(string(result.Stderr), "refused") {
		t.Errorf("connected: %d %s", result.ExitCode, result.Stderr)
	}
}

// TestProxyEndsWithItsSandbox closes a sandbox whose owner waits for connections.
func TestProxyEndsWithItsSandbox(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{Proxy: true})
	ended := make(chan error)
	go func() {
		_, err := sb.ProxyListener().Accept()
		ended <- err
	}()
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("its owner waits, or is told %v", err)
	}
}

// TestProxyNeedsNamespaces gives no way to the network where the sandbox would share the host's.
func TestProxyNeedsNamespaces(t *testing.T) {
	for _, level := range []string{sandbox.IsolationLandlock, sandbox.IsolationNone} {
		sb, err := sandbox.NewAt(t.Context(), level, sandbox.Spec{Proxy: true})
		if err == nil {
			sb.Close()
		}
		if !errors.Is(err, sandbox.ErrProxy) {
			t.Errorf("%s: %v", level, err)
		}
	}
	link, err := sandbox.NewLink()
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if sb, err := sandbox.New(t.Context(), sandbox.Spec{Proxy: true, Calls: link}); err == nil {
		sb.Close()
		t.Error("a sandbox has a link and a proxy")
	}
}
