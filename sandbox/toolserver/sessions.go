// Package toolserver asks servers of the Model Context Protocol for their tools and calls them:
// programs that run in a rollout's sandbox, and endpoints outside of it. Neither is trusted: what
// they send is bounded in size and time.
package toolserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

const (
	// startTime bounds starting a server, or finding it, until it can be asked.
	startTime = 30 * time.Second
	// maxMessage bounds one message of a server, in bytes, maxSent what a program writes from one
	// call to the next, and maxLines the messages in it.
	maxMessage = 4 << 20
	maxSent    = 8 << 20
	maxLines   = 2000
)

var errNotReady = fmt.Errorf("it was not ready within %s", startTime)

// ErrUnreachable says that a server outside cannot be asked, which is not what the caller did.
var ErrUnreachable = errors.New("unreachable")

// fault is what a server did wrong: whoever called the tool is told.
type fault struct{ text string }

func (f *fault) Error() string { return f.text }

// Sessions are the connections to a run's servers on behalf of one sandbox. Each is opened by the
// first call, and again by the next one after it broke.
type Sessions struct {
	sb   *sandbox.Sandbox
	key  func(url string) string
	mu   sync.Mutex // of open, and while one is opened
	open map[string]*link
}

// New has no session open. key gives the key that the server at a URL is shown, ""
// for none; nil knows none.
func New(sb *sandbox.Sandbox, key func(url string) string) *Sessions {
	if key == nil {
		key = func(string) string { return "" }
	}
	return &Sessions{sb: sb, key: key, open: map[string]*link{}}
}

// link is a session, and what it runs over.
type link struct {
	session *mcp.ClientSession
	under   interface {
		// renew lets the server send as much again as it may for one call.
		renew()
		// judge says whose doing a failure of the session is: a fault is the server's.
		judge(error) error
		close()
	}
}

// Call asks a tool of a server. Its error is of the infrastructure; what a server does wrong is
// an answer that says so. A server in the sandbox is as much the agent's as everything there, so
// its end is an answer, too.
func (s *Sessions) Call(ctx context.Context, server toolset.Server, tool string,
	arguments json.RawMessage) (tools.Served, error) {
	began, asked := time.Now(), time.Time{}
	result, err := s.call(ctx, server, tool, arguments, &asked)
	if errors.Is(err, mcp.ErrSessionMissing) { // the server has forgotten the session, and not looked at the call
		result, err = s.call(ctx, server, tool, arguments, &asked)
	}
	if asked.IsZero() {
		asked = time.Now()
	}
	waited := asked.Sub(began)
	var wrong *fault
	switch {
	case errors.As(err, &wrong):
		return tools.Served{Content: "error: " + s.clean(server, wrong.text), Failed: true, Waited: waited}, nil
	case err != nil:
		return tools.Served{}, s.failed(server, err)
	}
	return tools.Served{Content: s.clean(server, text(result)), Failed: result.IsError, Waited: waited}, nil
}

// call notes in asked when the server was asked.
func (s *Sessions) call(ctx context.Context, server toolset.Server, tool string, arguments json.RawMessage,
	asked *time.Time) (result *mcp.CallToolResult, err error) {
	err = s.inSession(ctx, server, server.Wall(), func(ctx context.Context, session *mcp.ClientSession) error {
		*asked = time.Now()
		result, err = session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
		if err == nil && result.NeedsInput() {
			err = &fault{fmt.Sprintf("the server %s asks for something before it answers, which nobody here can give",
				server.Name)}
		}
		return err
	})
	return result, err
}

// inSession does something in the session of a server, which ends where time is over or the
// session is of no use any more.
func (s *Sessions) inSession(ctx context.Context, server toolset.Server, within time.Duration,
	do func(context.Context, *mcp.ClientSession) error) error {
	l, err := s.link(ctx, server)
	if err != nil {
		return err
	}
	l.under.renew()
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	stop := context.AfterFunc(limited, l.under.close) // whoever waits for the server to read or write is let go
	err = do(limited, l.session)
	late := !stop() || err != nil && limited.Err() != nil // the work can see the deadline before close is started
	var said *jsonrpc.Error
	switch {
	case err == nil && !late:
		return nil
	case ctx.Err() != nil:
		s.drop(server, l)
		return context.Cause(ctx)
	case late:
		s.drop(server, l)
		return &fault{fmt.Sprintf("the server %s did not answer within %s", server.Name, within)}
	case errors.Is(err, ErrUnreachable), !errors.As(err, &said):
		s.drop(server, l)
		return l.under.judge(err)
	}
	return &fault{fmt.Sprintf("the server %s answered: %s", server.Name, said.Message)}
}

// link is the server's session, opened where there is none.
func (s *Sessions) link(ctx context.Context, server toolset.Server) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.open[server.Name]; l != nil {
		return l, nil
	}
	connect := s.start
	if server.IsRemote() {
		connect = s.dial
	}
	l, transport, err := connect(ctx, server)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	stop := context.AfterFunc(limited, l.under.close)
	l.session, err = mcp.NewClient(&mcp.Implementation{Name: "rondo"}, clientOptions()).Connect(limited, transport, nil)
	late := !stop() || err != nil && limited.Err() != nil
	if err == nil && !late {
		s.open[server.Name] = l
		return l, nil
	}
	l.close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if late {
		err = errNotReady
	}
	if server.IsRemote() {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return nil, l.under.judge(err)
}

// clientOptions let a server ask for nothing.
func clientOptions() *mcp.ClientOptions {
	return &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}}
}

// drop ends a session, so that the next call opens a new one.
func (s *Sessions) drop(server toolset.Server, l *link) {
	s.mu.Lock()
	if s.open[server.Name] == l {
		delete(s.open, server.Name)
	}
	s.mu.Unlock()
	l.close()
}

func (l *link) close() {
	l.under.close()
	if l.session != nil {
		_ = l.session.Close() // what lies under it is closed
	}
}

// Close ends all sessions, and with them the programs in the sandbox.
func (s *Sessions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.open {
		delete(s.open, name)
		l.close()
	}
}

// clean takes the server's key out of what it said.
func (s *Sessions) clean(server toolset.Server, text string) string {
	if key := s.keyOf(server); key != "" {
		return strings.ReplaceAll(text, key, "[redacted]")
	}
	return text
}

func (s *Sessions) keyOf(server toolset.Server) string {
	if !server.IsRemote() {
		return ""
	}
	return s.key(server.URL)
}

// failed names the server in an error, which does not tell its key.
func (s *Sessions) failed(server toolset.Server, err error) error {
	var wrong *fault
	if errors.As(err, &wrong) {
		return errors.New(s.clean(server, wrong.text))
	}
	if text := err.Error(); s.clean(server, text) != text {
		unreachable := errors.Is(err, ErrUnreachable)
		if err = errors.New(s.clean(server, text)); unreachable {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	return fmt.Errorf("server %s: %w", server.Name, err)
}
