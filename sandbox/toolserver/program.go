package toolserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// program is a server in the sandbox.
type program struct {
	name  string
	pipes *sandbox.Pipes
	hang  func() // hangs up, once

	ready []byte // messages that are not read yet
	line  []byte // the beginning of the next one

	mu    sync.Mutex // of what follows
	noise string     // the last line that it wrote and that is no message
	bytes int        // that it may write until the next call
	lines int
	why   error // the first failure of reading or writing
}

var errLongLine = fmt.Errorf("it wrote a line of more than %d MiB", maxMessage>>20)

var errSentTooMuch = fmt.Errorf("it wrote more than %d MiB or %d messages for one call", maxSent>>20, maxLines)

// start starts a server in the sandbox.
func (s *Sessions) start(ctx context.Context, server toolset.Server) (*link, mcp.Transport, error) {
	pipes, err := s.sb.Pipes(ctx, sandbox.Command{Argv: server.Command})
	if errors.Is(err, sandbox.ErrInvalid) {
		return nil, nil, &fault{fmt.Sprintf("the server %s cannot be started: %v", server.Name, err)}
	}
	if err != nil {
		return nil, nil, err
	}
	// the sandbox ends it otherwise
	p := &program{name: server.Name, pipes: pipes, bytes: maxSent, lines: maxLines,
		hang: sync.OnceFunc(func() { _ = pipes.Close() })}
	return &link{under: p}, &mcp.IOTransport{Reader: p, Writer: p, MaxLineLength: maxMessage}, nil
}

// Read gives the messages that the server writes, each on a line.
func (p *program) Read(into []byte) (int, error) {
	for len(p.ready) == 0 {
		buffer := make([]byte, 32<<10)
		n, err := p.pipes.Read(buffer)
		if err == nil {
			err = p.take(buffer[:n])
		} else if p.take([]byte("\n")) == nil && len(p.ready) > 0 { // the last line has no end
			break
		}
		if err != nil {
			return 0, p.note(err)
		}
	}
	n := copy(into, p.ready)
	p.ready = p.ready[n:]
	return n, nil
}

// take takes what the server wrote. Lines that are no messages are passed over.
func (p *program) take(written []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes -= len(written)
	for line := range bytes.Lines(written) {
		p.line = append(p.line, line...)
		if len(p.line) > maxMessage {
			return errLongLine
		}
		if line[len(line)-1] != '\n' {
			break
		}
		if found := messagesIn(p.line); len(found) > 0 {
			p.ready = append(p.ready, found...)
		} else if text := readableLine(p.line); text != "" {
			p.noise = text
		}
		p.line = p.line[:0]
		p.lines--
	}
	if p.bytes < 0 || p.lines < 0 {
		return errSentTooMuch
	}
	return nil
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
		return &fault{fmt.Sprintf("the server %s has ended with exit code %d%s%s", p.name,
			p.pipes.ExitCode(), p.complaint(), again)}
	case p.why != nil:
		err = p.why
	}
	return &fault{fmt.Sprintf("the server %s is of no use: %v%s%s", p.name, err, p.complaint(), again)}
}

// complaint is what the server said last and nobody has read, "" for nothing: on its standard error
// once it has ended, else between its messages.
func (p *program) complaint() string {
	said := p.noise
	if text := readableLine(p.pipes.Complaint()); text != "" {
		said = text
	}
	if said == "" {
		return ""
	}
	return fmt.Sprintf("; the last that it said is %q", said)
}
