package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/rondo-rl/rondo/storage"
)

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	data, _, err := s.read(ctx, key, minio.GetObjectOptions{}, storage.MaxObject)
	return data, s.failed(ctx, "get", key, err)
}

// Load implements storage.Store.
func (s *Store) Load(ctx context.Context, key string) ([]byte, string, error) {
	data, etag, err := s.read(ctx, key, minio.GetObjectOptions{}, storage.MaxPointer)
	return data, etag, s.failed(ctx, "load", key, err)
}

// GetRange implements storage.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	data, err := s.readRange(ctx, key, offset, length)
	return data, s.failed(ctx, "get range of", key, err)
}

func (s *Store) readRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	outside := fmt.Errorf("%w: %d bytes at %d", storage.ErrRange, length, offset)
	if length <= 0 || offset < 0 || offset > math.MaxInt64-length {
		// HTTP has no empty ranges, and no negative ones.
		info, err := s.stat(ctx, key)
		if err == nil && (length != 0 || offset < 0 || offset > info.Size) {
			err = outside
		}
		return nil, err
	}
	if length > storage.MaxObject {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, length, storage.MaxObject)
	}
	var options minio.GetObjectOptions
	if err := options.SetRange(offset, offset+length-1); err != nil {
		return nil, err
	}
	data, _, err := s.read(ctx, key, options, length)
	if errors.Is(err, storage.ErrRange) || err == nil && int64(len(data)) != length {
		return nil, outside
	}
	return data, err
}

// read reads an object or a range of it in one request, so that data and ETag belong together. A
// connection that breaks in the middle of the data is tried again; the client itself repeats only
// up to the answer's header.
func (s *Store) read(ctx context.Context, key string, options minio.GetObjectOptions,
	limit int64) (data []byte, etag string, err error) {
	if err := storage.ValidateKey(key); err != nil {
		return nil, "", err
	}
	for attempt := range tryAgain.Tries {
		if !tryAgain.Wait(ctx, attempt) {
			return nil, "", ctx.Err()
		}
		body, info, _, openErr := s.retrying.GetObject(ctx, s.bucket, s.prefix+key, options)
		if openErr != nil {
			return nil, "", kind(ctx, openErr)
		}
		data, err = readBody(body, info.Size, limit)
		if err == nil || errors.Is(err, storage.ErrTooLarge) {
			return data, info.ETag, err
		}
	}
	return nil, "", kind(ctx, err)
}

// readBody reads size bytes, or until the end if the server did not say how many there are (-1).
func readBody(body io.ReadCloser, size, limit int64) ([]byte, error) {
	// Nothing depends on the close of a body that was read.
	defer func() { _ = body.Close() }()
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, size, limit)
	}
	if size >= 0 {
		data := make([]byte, size)
		_, err := io.ReadFull(body, data)
		return data, err
	}
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", storage.ErrTooLarge, limit)
	}
	return data, err
}

// List implements storage.Store. Objects whose keys Rondo would not write are passed over.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[storage.Info, error] {
	return func(yield func(storage.Info, error) bool) {
		if err := storage.ValidatePrefix(prefix); err != nil {
			yield(storage.Info{}, s.failed(ctx, "list", prefix, err))
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for object := range s.retrying.ListObjectsIter(ctx, s.bucket,
			minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
			if object.Err != nil {
				yield(storage.Info{}, s.failed(ctx, "list", prefix, kind(ctx, object.Err)))
				return
			}
			key := strings.TrimPrefix(object.Key, s.prefix)
			if storage.ValidateKey(key) != nil {
				continue
			}
			if !yield(storage.Info{Key: key, Size: object.Size, ETag: strings.Trim(object.ETag, `"`),
				Modified: object.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(storage.Info{}, s.failed(ctx, "list", prefix, err))
		}
	}
}
