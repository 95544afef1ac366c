package sandbox

import (
	"context"
	"fmt"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// Pipes is a program inside whose standard input and output are pipes to here. Of its standard
// error the end is kept. Read gives what it writes, and io.EOF when it has ended; Write is its
// standard input, and waits while the program takes none.
type Pipes struct{ attached }

// Pipes starts a program at pipes, without a limit on its time. Stdin, Wall and Background of
// the command mean nothing. It ends when it is closed, or with its sandbox. A program that
// cannot be started is ErrInvalid.
func (s *Sandbox) Pipes(ctx context.Context, c Command) (*Pipes, error) {
	p, err := s.attach(ctx, c, wire.Request{Op: wire.OpPipes})
	if err != nil {
		return nil, err
	}
	return &Pipes{p}, nil
}

// Close kills the program with its process group, and lets Read and Write return.
func (p *Pipes) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), operationTime)
	defer cancel()
	if _, _, err := p.sandbox.conn.call(ctx, wire.Request{Op: wire.OpHangUp, Target: p.id}, 0, nil); err != nil {
		return fmt.Errorf("end a program of sandbox %s: %w", p.sandbox.spec.Name, err)
	}
	return nil
}
