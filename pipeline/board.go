package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Board is where the processes of a service agree on something: short texts beside the leases, in the server's memory. A text that nobody writes for as long as a lease
// holds is gone. Nothing that is on the log follows from one.
type Board struct {
	leases *leases
	prefix string

	mu     sync.Mutex
	bucket jetstream.KeyValue // nil: to be made
}

// NewBoard is a service's board for a subject. The bucket is made when it is first used.
func NewBoard(env Env, service, subject string) *Board {
	return &Board{leases: &leases{log: env.Log}, prefix: subject + "." + service + "."}
}

func (b *Board) open(ctx context.Context) (jetstream.KeyValue, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bucket != nil {
		return b.bucket, nil
	}
	bucket, err := b.leases.make(ctx)
	if err == nil {
		b.bucket = bucket
	}
	return bucket, err
}

// lost lets the bucket be made again that is not there any more.
func (b *Board) lost(err error) {
	if bucketLost(err) {
		b.mu.Lock()
		b.bucket = nil
		b.mu.Unlock()
	}
}

// Read gives the text under a name and its version; nil and 0 where there is none.
func (b *Board) Read(ctx context.Context, name string) (text []byte, version uint64, err error) {
	bucket, err := b.open(ctx)
	if err != nil {
		return nil, 0, err
	}
	entry, err := bucket.Get(ctx, b.prefix+name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		b.lost(err)
		return nil, 0, fmt.Errorf("read %s of the leases: %w", b.prefix+name, err)
	}
	return entry.Value(), entry.Revision(), nil
}

// Write puts a text in place of a version, and reports whether that was still there.
func (b *Board) Write(ctx context.Context, name string, text []byte, version uint64) (written bool, err error) {
	bucket, err := b.open(ctx)
	if err != nil {
		return false, err
	}
	if version == 0 {
		_, err = bucket.Create(ctx, b.prefix+name, text)
	} else {
		_, err = bucket.Update(ctx, b.prefix+name, text, version)
	}
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return false, nil
	case err != nil:
		b.lost(err)
		return false, fmt.Errorf("write %s of the leases: %w", b.prefix+name, err)
	}
	return true, nil
}
