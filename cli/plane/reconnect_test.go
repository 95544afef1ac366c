package plane

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events/embedded"
)

// TestLostConnection: a command that ends by itself does not wait for ever for a server that is
// gone, and one that follows does.
func TestLostConnection(t *testing.T) {
	before := lostPatience
	lostPatience = 50 * time.Millisecond
	t.Cleanup(func() { lostPatience = before })
	for name, follows := range map[string]bool{"one look": false, "follows": true} {
		t.Run(name, func(t *testing.T) {
			server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: newToken()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			ctx, cancel := context.WithCancelCause(t.Context())
			g := &app.Global{Follows: follows, Cancel: cancel}
			conn, err := nats.Connect(server.URL(), append(watchConnection(g, "the server"), nats.MaxReconnects(-1))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			lost := conn.StatusChanged(nats.RECONNECTING)
			server.Shutdown()
			if !follows {
				<-ctx.Done()
				if err := LostOr(ctx, ctx.Err()); !errors.Is(err, errLost) {
					t.Errorf("the command ends with %v", err)
				}
				return
			}
			<-lost
			select {
			case <-ctx.Done():
				t.Errorf("the command ends with %v", context.Cause(ctx))
			case <-time.After(10 * lostPatience):
			}
		})
	}
}

// late is a server that refuses the first connections.
type late struct{ refuses atomic.Int32 }

func (l *late) Dial(network, address string) (net.Conn, error) {
	if l.refuses.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return net.Dial(network, address)
}

// TestLogThatComesLater: a service waits for a log that does not answer yet, until it is asked to
// end; another command does not wait. One that is refused does not either.
func TestLogThatComesLater(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: newToken()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	waits, alone := &app.Global{AwaitLog: true}, &app.Global{}
	away := func(times int32) nats.Option {
		l := &late{}
		l.refuses.Store(times)
		return nats.SetCustomDialer(l)
	}
	if _, err := reach(t.Context(), alone, server.URL(), away(1)); err == nil {
		t.Error("a command that does not wait is connected to a server that refused it")
	}
	conn, err := reach(t.Context(), waits, server.URL(), away(1))
	if err != nil {
		t.Fatalf("a service does not wait: %v", err)
	}
	conn.Close()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := reach(ended, waits, server.URL(), away(1000)); !errors.Is(err, context.Canceled) {
		t.Errorf("a service that was asked to end waits on: %v", err)
	}
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reach(t.Context(), waits, "nats://"+at.Host,
		nats.Token("another")); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a service whose keys are refused gets %v", err)
	}
}

// TestSilentLog: a command that waits for a server which takes the connection and answers
// nothing says what it waits for.
func TestSilentLog(t *testing.T) {
	before, stderr := silence, os.Stderr
	silence = time.Millisecond
	t.Cleanup(func() { silence, os.Stderr = before, stderr })
	mute, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT,
		NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	mute.Start()
	t.Cleanup(mute.Shutdown)
	from, err := nats.Connect(mute.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	asked, err := from.SubscribeSync("$JS.API.>") // and nobody answers
	if err = errors.Join(err, from.Flush()); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = write
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := dial(ctx, &app.Global{}, mute.ClientURL(), t.TempDir(), nil)
		write.Close()
		ended <- err
	}()
	if _, err := asked.NextMsgWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || !strings.Contains(line, "log not answered yet") || !strings.Contains(line, mute.ClientURL()) {
		t.Errorf("%q, %v", line, err)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("it is connected to a log that has not answered")
	}
}
