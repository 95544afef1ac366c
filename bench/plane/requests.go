package plane

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/rondo-rl/rondo/storage"
)

// Requests counts what a store is asked for. An object in pieces counts once.
type Requests struct{ Writes, Reads int64 }

// counted is a store that counts its requests.
type counted struct {
	storage.Store
	writes, reads atomic.Int64
}

func (c *counted) Put(ctx context.Context, key string, data []byte) error {
	c.writes.Add(1)
	return c.Store.Put(ctx, key, data)
}

func (c *counted) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	c.writes.Add(1)
	return c.Store.PutIfAbsent(ctx, key, data)
}

func (c *counted) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	c.writes.Add(1)
	return c.Store.PutReader(ctx, key, r, size)
}

func (c *counted) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	c.writes.Add(1)
	return c.Store.PutReaderIfAbsent(ctx, key, r, size)
}

func (c *counted) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (string, error) {
	c.writes.Add(1)
	return c.Store.CompareAndSwap(ctx, key, etag, data)
}

func (c *counted) Open(ctx context.Context, key string) (storage.Object, error) {
	c.reads.Add(1)
	return c.Store.Open(ctx, key)
}

func (c *counted) Get(ctx context.Context, key string) ([]byte, error) {
	c.reads.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counted) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	c.reads.Add(1)
	return c.Store.GetRange(ctx, key, offset, length)
}

func (c *counted) Stat(ctx context.Context, key string) (storage.Info, error) {
	c.reads.Add(1)
	return c.Store.Stat(ctx, key)
}

func (c *counted) Load(ctx context.Context, key string) ([]byte, string, error) {
	c.reads.Add(1)
	return c.Store.Load(ctx, key)
}

// Requests are those that the plane's store has had.
func (p *Plane) Requests() Requests { return Requests{p.store.writes.Load(), p.store.reads.Load()} }
