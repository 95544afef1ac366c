package storagetest

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"

	"github.com/rondo-rl/rondo/storage"
)

// Outages is a store that answers nothing but errors while it is down.
type Outages struct {
	storage.Store
	// Down begins and ends an outage.
	Down atomic.Bool
	// Refused counts the calls that failed.
	Refused atomic.Int64
}

var errDown = errors.New("503 Slow Down")

func (s *Outages) fails(ctx context.Context) error {
	if !s.Down.Load() {
		return nil
	}
	s.Refused.Add(1)
	return storage.Unavailable(ctx, errDown)
}

// Put implements storage.Store.
func (s *Outages) Put(ctx context.Context, key string, data []byte) error {
	if err := s.fails(ctx); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, data)
}

// PutIfAbsent implements storage.Store.
func (s *Outages) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := s.fails(ctx); err != nil {
		return err
	}
	return s.Store.PutIfAbsent(ctx, key, data)
}

// PutReader implements storage.Store.
func (s *Outages) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := s.fails(ctx); err != nil {
		return err
	}
	return s.Store.PutReader(ctx, key, r, size)
}

// PutReaderIfAbsent implements storage.Store.
func (s *Outages) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := s.fails(ctx); err != nil {
		return err
	}
	return s.Store.PutReaderIfAbsent(ctx, key, r, size)
}

// Open implements storage.Store.
func (s *Outages) Open(ctx context.Context, key string) (storage.Object, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, key)
}

// Get implements storage.Store.
func (s *Outages) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key)
}

// GetRange implements storage.Store.
func (s *Outages) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if err := s.fails(ctx); err != nil {
		return nil, err
	}
	return s.Store.GetRange(ctx, key, offset, length)
}

// Stat implements storage.Store.
func (s *Outages) Stat(ctx context.Context, key string) (storage.Info, error) {
	if err := s.fails(ctx); err != nil {
		return storage.Info{}, err
	}
	return s.Store.Stat(ctx, key)
}

// Load implements storage.Store.
func (s *Outages) Load(ctx context.Context, key string) ([]byte, string, error) {
	if err := s.fails(ctx); err != nil {
		return nil, "", err
	}
	return s.Store.Load(ctx, key)
}

// CompareAndSwap implements storage.Store.
func (s *Outages) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (string, error) {
	if err := s.fails(ctx); err != nil {
		return "", err
	}
	return s.Store.CompareAndSwap(ctx, key, etag, data)
}

// List implements storage.Store.
func (s *Outages) List(ctx context.Context, prefix string) iter.Seq2[storage.Info, error] {
	if err := s.fails(ctx); err != nil {
		return func(yield func(storage.Info, error) bool) { yield(storage.Info{}, err) }
	}
	return s.Store.List(ctx, prefix)
}
