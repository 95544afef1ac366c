package toolserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
)

// program is a server in the sandbox.
type program struct {
	name  string
	pipes *sandbox.Pipes
	hang  func() // hangs up, once

	mu    sync.Mutex // of what follows
	bytes int        // that it may write until the next call
	lines int
	why   error // the first failure of reading or writing
}

var errSentTooMuch = fmt.Errorf("it wrote more than %d MiB or %d messages for one call", maxSent>>20, maxLines)

// start starts a server in the sandbox.
func (s *Sessions) start(ctx context.Context, server runfile.ToolServer) (*link, mcp.Transport, error) {
	pipes, err := s.sb.Pipes(ctx, sandbox.Command{Argv: server.Command})
	if errors.Is(err, sandbox.ErrInvalid) {
		return nil, nil, &fault{fmt.Sprintf("the server %s cannot be started: %v", server.Name, err)}
	}
	if err != nil {
		return nil, nil, err
	}
	p := &program{name: server.Name, pipes: pipes, bytes: maxSent, lines: maxLines, hang: sync.OnceFunc(func() { _ = pipes.Close() })} // the sandbox ends it otherwise
	return &link{under: p}, &mcp.IOTransport{Reader: p, Writer: p, MaxLineLength: maxMessage}, nil
}

// Read is what the server writes.
func (p *program) Read(into []byte) (int, error) {
	n, err := p.pipes.Read(into)
	p.mu.Lock()
	p.bytes -= n
	p.lines -= bytes.Count(into[:n], []byte("\n"))
	if err == nil && (p.bytes < 0 || p.lines < 0) {
		n, err = 0, errSentTooMuch
	}
	p.mu.Unlock()
	return n, p.note(err)
}

// Write is what it is sent.
func (p *program) Write(message []byte) (int, error) {
	n, err := p.pipes.Write(message)
	return n, p.note(err)
}

func (p *program) note(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
	return err
}

func (p *program) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes, p.lines = maxSent, maxLines
}

// Close is for the session, which closes what it reads and what it writes.
func (p *program) Close() error {
	p.hang()
	return nil
}

func (p *program) close() { p.hang() }

func (p *program) judge(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	const again = "; the next call starts it again"
	switch {
	case errors.Is(p.why, sandbox.ErrClosed):
		return p.why
	case errors.Is(err, errNotReady):
	case errors.Is(p.why, io.EOF):
		return &fault{fmt.Sprintf("the server %s has ended with exit code %d%s", p.name, p.pipes.ExitCode(), again)}
	case p.why != nil:
		err = p.why
	}
	return &fault{fmt.Sprintf("the server %s is of no use: %v%s", p.name, err, again)}
}
