package toolrunner

import (
	"context"
	"errors"
	"io"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// changeOf is a recorded change, nil for none. The cache of parts may be nil.
func changeOf(ctx context.Context, store storage.Store, cache *parts.Cache, ref *storage.Ref) sandbox.Source {
	if ref == nil {
		return nil
	}
	return func() (io.ReadCloser, error) {
		from, _, err := parts.Open(ctx, store, *ref, cache)
		return from, err
	}
}

// contentsNow describes the change that a sandbox's workspace has now, as sandbox.Contents
// does, and holds none of it.
func contentsNow(ctx context.Context, box *sandbox.Sandbox) (map[string]string, error) {
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := box.ChangesTo(ctx, in)
		in.CloseWithError(err)
		done <- err
	}()
	// which closes it, whatever comes
	contents, err := sandbox.Contents(func() (io.ReadCloser, error) { return out, nil })
	if failed := <-done; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return nil, failed
	}
	return contents, err
}

// storing remembers an error of the store that a change is written to, which
// is not the agent's doing.
type storing struct {
	writer io.Writer
	err    error
}

func (s *storing) Write(data []byte) (n int, err error) {
	n, s.err = s.writer.Write(data)
	return n, s.err
}
