package sandbox

import (
	"context"
	"fmt"
	"io"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// attached is a program inside whose input and output are here. Read gives what it writes, and
// io.EOF when it has ended; Write is its input.
type attached struct {
	sandbox *Sandbox
	id      uint64
	rest    []byte // read from inside and not yet from here
	ended   bool
	code    int
	last    []byte // the end of its standard error
}

// Terminal is a program that runs at a terminal of its own inside. Read gives what it shows, and
// io.EOF when it has ended; Write types.
type Terminal struct{ attached }

// Terminal starts a program at a terminal, without a limit on its time. Stdin, Wall and Background
// of the command mean nothing. It ends with its sandbox.
func (s *Sandbox) Terminal(ctx context.Context, c Command, rows, columns int) (*Terminal, error) {
	t, err := s.attach(ctx, c, wire.Request{Op: wire.OpTerminal, Rows: cells(rows), Columns: cells(columns)})
	if err != nil {
		return nil, fmt.Errorf("at a terminal: %w", err)
	}
	return &Terminal{t}, nil
}

// attach starts a program whose input and output will be here.
func (s *Sandbox) attach(ctx context.Context, c Command, how wire.Request) (attached, error) {
	request, _, err := s.request(c)
	if err != nil {
		return attached{}, err
	}
	request.Op, request.Rows, request.Columns = how.Op, how.Rows, how.Columns
	ctx, cancel := context.WithTimeout(ctx, operationTime)
	defer cancel()
	kills := s.group.oomKills()
	response, _, err := s.conn.call(ctx, request, 0, nil)
	if err != nil {
		return attached{}, s.failed("run "+c.Argv[0], err, kills)
	}
	return attached{sandbox: s, id: response.ID}, nil
}

// cells is a size that a terminal can have.
func cells(n int) uint16 { return uint16(max(1, min(n, 4096))) }

// Read waits for output.
func (t *attached) Read(into []byte) (int, error) {
	for len(t.rest) == 0 && !t.ended {
		response, shown, err := t.call(wire.Request{Op: wire.OpScreen, Max: wire.MaxTerminalRead}, nil)
		if err != nil {
			return 0, err
		}
		if response.Exec != nil {
			t.ended, t.code, t.last = true, response.Exec.ExitCode, shown
		} else {
			t.rest = shown
		}
	}
	if len(t.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(into, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// Write gives the program input, as a person would at a terminal.
func (t *attached) Write(keys []byte) (int, error) {
	if _, _, err := t.call(wire.Request{Op: wire.OpType}, keys); err != nil {
		return 0, err
	}
	return len(keys), nil
}

// Resize tells the program another size.
func (t *Terminal) Resize(rows, columns int) error {
	_, _, err := t.call(wire.Request{Op: wire.OpResize, Rows: cells(rows), Columns: cells(columns)}, nil)
	return err
}

// ExitCode is that of Result, once Read has answered io.EOF.
func (t *attached) ExitCode() int { return t.code }

// Complaint is the end of what a program at pipes wrote to its standard error, once
// Read has answered io.EOF.
func (p *Pipes) Complaint() []byte { return p.last }

func (t *attached) call(request wire.Request, keys []byte) (wire.Response, []byte, error) {
	request.Target = t.id
	// closing the sandbox ends it
	response, shown, err := t.sandbox.conn.call(context.Background(), request, wire.MaxTerminalRead, keys)
	if err != nil {
		err = fmt.Errorf("program of sandbox %s: %w", t.sandbox.spec.Name, err)
	}
	return response, shown, err
}
