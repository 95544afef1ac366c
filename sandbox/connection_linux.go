package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// defaultCancelGrace is how long a sandbox has to confirm that it gave a command up.
const defaultCancelGrace = 10 * time.Second

var cancelGrace = defaultCancelGrace

// connection multiplexes calls to the init process over its socket.
type connection struct {
	file    *os.File
	reader  *bufio.Reader
	writing sync.Mutex

	mu      sync.Mutex
	broken  error
	last    uint64
	waiting map[uint64]*call
}

type call struct {
	limit int64 // bytes that the answer may have
	sink  sink  // nil where no stream was asked for
	done  chan answer
}

// sink takes output as it comes, 1 of standard output and 2 of standard error. Until it returns
// nothing else is received.
type sink func(stream int, data []byte)

type answer struct {
	response wire.Response
	body     []byte
	err      error
}

func newConnection(file *os.File) *connection {
	return &connection{file: file, reader: bufio.NewReaderSize(file, 32<<10), waiting: map[uint64]*call{}}
}

// boot sends files and the description of the sandbox, and waits until it stands.
func (c *connection) boot(ctx context.Context, files []*os.File, boot wire.Boot,
	archives [][]byte) (wire.Response, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.file.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	// Where the process refused and went away before it read everything, its reason is worth
	// more than the broken pipe.
	sent := wire.SendFiles(c.file, files)
	if sent == nil {
		sent = wire.Write(c.file, boot, archives...)
	}
	var response wire.Response
	_, err := wire.Read(c.reader, &response, func() (int64, error) { return 0, nil })
	switch {
	case ctx.Err() != nil:
		return response, context.Cause(ctx)
	case err != nil:
		return response, errors.Join(fmt.Errorf("its first process ended: %w", err), sent)
	case response.Error != nil:
		return response, response.Error
	case sent != nil:
		return response, sent
	}
	if !stop() {
		return response, context.Cause(ctx)
	}
	_ = c.file.SetDeadline(time.Time{})
	go c.receive()
	return response, nil
}

// receive hands answers to those who wait for them. An answer that nobody asked for, or a longer
// one, breaks the connection: the process on the other side is not what was started.
func (c *connection) receive() {
	for {
		var response wire.Response
		var waiting *call
		body, err := wire.Read(c.reader, &response, func() (int64, error) {
			if waiting = c.take(response.ID, response.Stream != 0); waiting == nil {
				return 0, fmt.Errorf("%w: answer to unknown request %d", wire.ErrProtocol, response.ID)
			}
			if response.Stream != 0 {
				return wire.MaxChunk, nil
			}
			return waiting.limit, nil
		})
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
			if waiting != nil && response.Stream == 0 {
				waiting.done <- answer{err: err}
			}
			c.close(err)
			return
		}
		if response.Stream != 0 {
			waiting.sink(response.Stream, body)
			continue
		}
		answered := answer{response: response, body: body}
		if response.Error != nil {
			answered.err = response.Error
		}
		waiting.done <- answered
	}
}

// take finds who waits for an answer, for the last time unless it is one of a stream, which
// must have been asked for.
func (c *connection) take(id uint64, stream bool) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.waiting[id]
	if !stream {
		delete(c.waiting, id)
	} else if waiting != nil && waiting.sink == nil {
		return nil
	}
	return waiting
}

// call sends a request and waits for its answer, whose body has at most limit bytes. When ctx ends
// first the sandbox is asked to give up; one that does not confirm that is broken.
func (c *connection) call(ctx context.Context, request wire.Request, limit int64,
	body []byte) (wire.Response, []byte, error) {
	return c.follow(ctx, request, limit, body, nil)
}

// follow is a call whose output goes to sink as it comes.
func (c *connection) follow(ctx context.Context, request wire.Request, limit int64, body []byte,
	sink sink) (wire.Response, []byte, error) {
	if err := context.Cause(ctx); err != nil {
		return wire.Response{}, nil, err
	}
	waiting := &call{limit: limit, sink: sink, done: make(chan answer, 1)}
	id, err := c.enqueue(waiting)
	if err != nil {
		return wire.Response{}, nil, err
	}
	request.ID = id
	if err := c.send(request, body); err != nil {
		return wire.Response{}, nil, err
	}
	select {
	case a := <-waiting.done:
		return a.response, a.body, a.err
	case <-ctx.Done():
	}
	return c.giveUp(ctx, id, request.Op, waiting)
}

// feed is a call with an archive, which it sends in pieces and does not hold. What makes it end
// before the archive does is in the error.
func (c *connection) feed(ctx context.Context, request wire.Request, from io.Reader) (wire.Response, error) {
	waiting := &call{done: make(chan answer, 1)}
	id, err := c.enqueue(waiting)
	if err != nil {
		return wire.Response{}, err
	}
	request.ID, request.Stream = id, true
	if err := c.send(request, nil); err != nil {
		return wire.Response{}, err
	}
	answered, broken, err := c.sendPieces(ctx, id, from, waiting)
	if err != nil {
		return wire.Response{}, err
	}
	if answered == nil {
		select {
		case a := <-waiting.done:
			answered = &a
		case <-ctx.Done():
			response, _, err := c.giveUp(ctx, id, request.Op, waiting)
			return response, errors.Join(broken, err)
		}
	}
	if broken != nil {
		return wire.Response{}, broken // and not what the sandbox makes of half an archive
	}
	return answered.response, answered.err
}

// sendPieces sends an archive until its end, or until it was answered. broken says why it
// cannot be read any further.
func (c *connection) sendPieces(ctx context.Context, id uint64, from io.Reader,
	waiting *call) (answered *answer, broken, err error) {
	piece := make([]byte, wire.MaxPiece)
	for {
		select {
		case a := <-waiting.done:
			return &a, nil, nil
		default:
		}
		n, read := io.ReadFull(from, piece)
		if read == nil {
			read = context.Cause(ctx)
		}
		if n > 0 {
			if err := c.send(wire.Request{Op: wire.OpPiece, Target: id}, piece[:n]); err != nil {
				return nil, nil, err
			}
		}
		if read == nil {
			continue
		}
		if !errors.Is(read, io.EOF) && !errors.Is(read, io.ErrUnexpectedEOF) {
			broken = fmt.Errorf("read the archive: %w: %w", ErrSource, read)
		}
		return nil, broken, c.send(wire.Request{Op: wire.OpPiece, Target: id, Broken: broken != nil}, nil)
	}
}

func (c *connection) giveUp(ctx context.Context, id uint64, op wire.Op, waiting *call) (wire.Response, []byte, error) {
	if err := c.send(wire.Request{Op: wire.OpCancel, Target: id}, nil); err != nil {
		return wire.Response{}, nil, err
	}
	select {
	case a := <-waiting.done:
		return a.response, a.body, errors.Join(context.Cause(ctx), a.err)
	case <-time.After(cancelGrace):
		err := fmt.Errorf("%w: no answer to %s", ErrClosed, op)
		c.close(err)
		return wire.Response{}, nil, errors.Join(err, context.Cause(ctx))
	}
}

func (c *connection) enqueue(waiting *call) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	c.last++
	c.waiting[c.last] = waiting
	return c.last, nil
}

func (c *connection) send(request wire.Request, body []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	err := wire.Write(c.file, request, body)
	if err != nil && !errors.Is(err, wire.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
		c.close(err)
	}
	if err != nil {
		c.take(request.ID, false)
	}
	return err
}

// close fails all calls, now and later.
func (c *connection) close(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return
	}
	c.broken = why
	c.file.Close()
	for id, waiting := range c.waiting {
		delete(c.waiting, id)
		waiting.done <- answer{err: why}
	}
}
