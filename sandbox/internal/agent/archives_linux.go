package agent

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// inputs are the archives that come in pieces, by the request that wants them.
type inputs struct {
	waiting sync.Map // id -> *arriving
}

type arriving struct {
	reader *io.PipeReader
	writer *io.PipeWriter
}

var errBroken = errors.New("the archive's source failed")

// open makes room for a request's archive, before its first piece comes.
func (in *inputs) open(id uint64) {
	reader, writer := io.Pipe()
	in.waiting.Store(id, &arriving{reader, writer})
}

// archive is the archive that a request brings, or that comes after it. Who has read
// it, or will not, is done.
func (in *inputs) archive(request wire.Request, body []byte) (from io.Reader, done func()) {
	found, streamed := in.waiting.Load(request.ID)
	if !streamed {
		return bytes.NewReader(body), func() {}
	}
	reader := found.(*arriving).reader
	return reader, func() {
		in.waiting.Delete(request.ID)
		reader.Close() // whoever sends pieces still does not wait
	}
}

// piece hands a piece over, and waits until it is read: nothing else is received meanwhile, so that
// no more of an archive than this is held.
func (in *inputs) piece(request wire.Request, body []byte) {
	found, wanted := in.waiting.Load(request.Target)
	if !wanted {
		return // the request has failed
	}
	writer := found.(*arriving).writer
	switch {
	case request.Broken:
		writer.CloseWithError(errBroken)
	case len(body) == 0:
		writer.Close()
	default:
		_, _ = writer.Write(body) // where it is read no further
	}
}

// outputs sends an archive in answers to a request.
type outputs struct {
	agent *agent
	id    uint64
}

func (o outputs) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), wire.MaxChunk)
		if err := o.agent.respond(wire.Response{ID: o.id, Stream: 1}, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(data), nil
}
