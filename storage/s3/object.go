package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/rondo-rl/rondo/storage"
)

// object is an object as it was when it was opened: each request asks for this ETag.
type object struct {
	ctx   context.Context
	store *Store
	key   string
	etag  string
	size  int64
}

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, key string) (storage.Object, error) {
	info, err := s.stat(ctx, key)
	if err != nil {
		return nil, s.failed(ctx, "open", key, err)
	}
	return &object{ctx, s, key, info.ETag, info.Size}, nil
}

// Size implements storage.Object.
func (o *object) Size() int64 { return o.size }

// Close implements storage.Object.
func (o *object) Close() error { return nil }

// ReadAt implements storage.Object: in one request, and in another for the rest
// where the connection breaks.
func (o *object) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, o.store.failed(o.ctx, "read", o.key, storage.ErrRange)
	}
	wanted := int(min(int64(len(p)), max(0, o.size-offset)))
	for failed := 0; n < wanted; {
		if !tryAgain.Wait(o.ctx, failed) {
			return n, o.store.failed(o.ctx, "read", o.key, o.ctx.Err())
		}
		got, err := o.request(p[n:wanted], offset+int64(n))
		n += got
		if failed++; got > 0 {
			failed = 1
		}
		if err != nil && (tryAgain.GivesUp(failed) || !repeatable(err) || storage.IsUnusable(err) ||
			errors.Is(err, storage.ErrConflict)) {
			return n, o.store.failed(o.ctx, "read", o.key, kind(o.ctx, err))
		}
	}
	if wanted < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// request reads a range in one request, as far as it comes.
func (o *object) request(p []byte, offset int64) (int, error) {
	var options minio.GetObjectOptions
	if err := errors.Join(options.SetRange(offset, offset+int64(len(p))-1), options.SetMatchETag(o.etag)); err != nil {
		return 0, err
	}
	body, info, _, err := o.store.retrying.GetObject(o.ctx, o.store.bucket, o.store.prefix+o.key, options)
	switch {
	case response(err).StatusCode == http.StatusPreconditionFailed:
		return 0, storage.ErrConflict
	case err != nil:
		return 0, kind(o.ctx, err)
	}
	defer func() { _ = body.Close() }()
	if info.ETag != o.etag { // of a server that does not know the condition
		return 0, fmt.Errorf("%w: its ETag is another one", storage.ErrConflict)
	}
	return io.ReadFull(body, p)
}
