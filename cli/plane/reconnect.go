package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/retry"
)

// lostPatience is how long a command that ends by itself waits for a lost connection. One that
// follows a run waits for ever.
var lostPatience = 30 * time.Second

// silence is after what time a command says that a server has taken its
// connection and answers nothing.
var silence = 2 * time.Second

// A server that answers no ping within twice this interval is taken for lost: a stopped
// process keeps its connections.
const pingInterval = 10 * time.Second

// planeDialer dials the plane of a directory wherever it listens now: one that was restarted has
// another port and another token.
type planeDialer struct {
	dir string

	mu    sync.Mutex
	token string
}

// Dial implements [nats.CustomDialer]. The address is the one that the connection
// began with, and is not used.
func (d *planeDialer) Dial(network, _ string) (net.Conn, error) {
	e, err := ReadEndpoint(d.dir)
	if err == nil && unix.Kill(e.PID, 0) != nil {
		err = fmt.Errorf("no plane runs in %s", d.dir) // and another program may have its port by now
	}
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(e.NATS)
	if err != nil {
		return nil, fmt.Errorf("%s: the server's URL cannot be read", EndpointFile(d.dir)) // the URL holds the token
	}
	d.mu.Lock()
	d.token = at.User.Username()
	d.mu.Unlock()
	return net.DialTimeout(network, at.Host, 5*time.Second)
}

// lastToken is the one of the plane that was dialled last.
func (d *planeDialer) lastToken() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.token
}

// Options make a connection that finds the plane again after each restart.
func (d *planeDialer) Options() []nats.Option {
	return []nats.Option{
		nats.SetCustomDialer(d), nats.TokenHandler(d.lastToken), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500 * time.Millisecond),
	}
}

// errLost: the connection to the log was lost and did not come back.
var errLost = errors.New("the connection to the log is lost")

// watchConnection are the options of a connection whose loss is said, and ends the command
// unless it follows a run.
func watchConnection(g *app.Global, where string) []nats.Option {
	var mu sync.Mutex
	var giveUp *time.Timer
	lost := func(_ *nats.Conn, err error) {
		if err == nil { // the command closed it
			return
		}
		mu.Lock()
		defer mu.Unlock()
		app.Logger(slog.LevelWarn).Warn("log connection lost", "server", where, "error", err)
		if g.Follows || g.Cancel == nil || giveUp != nil {
			return
		}
		giveUp = time.AfterFunc(lostPatience, func() {
			g.Cancel(fmt.Errorf("%w: %s has not answered for %s: see that it runs, and start the command again",
				errLost, where, lostPatience))
		})
	}
	back := func(*nats.Conn) {
		mu.Lock()
		defer mu.Unlock()
		app.Logger(slog.LevelWarn).Warn("log connection restored", "server", where)
		if giveUp != nil {
			giveUp.Stop()
			giveUp = nil
		}
	}
	return []nats.Option{
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(lost), nats.ReconnectHandler(back),
	}
}

// Between the tries of a command that waits for its first connection. It tells of the
// first try and of each minute.
const (
	reachAgain = 2 * time.Second
	reachTold  = 30 // tries
)

// reach connects to a server. A service is often started beside its log, so it waits for one that
// does not answer yet; one that refuses it is an error.
func reach(ctx context.Context, g *app.Global, natsURL string, options ...nats.Option) (*nats.Conn, error) {
	for tries := 0; ; tries++ {
		conn, err := nats.Connect(natsURL, options...)
		if err == nil || !g.AwaitLog || !unreached(err) {
			return conn, err
		}
		if tries%reachTold == 0 {
			app.Logger(slog.LevelWarn).Warn("log not reached", "server", app.Redacted(natsURL), "retry_in", reachAgain,
				"error", app.WithoutSecrets(natsURL, err))
		}
		if !retry.Sleep(ctx, reachAgain) {
			return nil, ctx.Err()
		}
	}
}

// unreached reports whether a connection failed because nobody answered.
func unreached(err error) bool {
	var network net.Error // also of looking the name up
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF) ||
		errors.As(err, &network)
}

// LostOr is why a command ended early where it lost its connection, and else
// the command's own error.
func LostOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errLost) {
		return cause
	}
	return err
}
