package storage

import (
	"context"
	"errors"
	"io"
	"time"
)

// Unwritten reads a Store and never writes it: what is put is accepted and forgotten. It is for who
// makes again what others have written, and wants its Ref alone.
type Unwritten struct{ Store }

// Put implements Store.
func (Unwritten) Put(context.Context, string, []byte) error { return nil }

// PutIfAbsent implements Store.
func (Unwritten) PutIfAbsent(context.Context, string, []byte) error { return nil }

// PutReader implements Store.
func (Unwritten) PutReader(context.Context, string, io.Reader, int64) error { return nil }

// PutReaderIfAbsent implements Store.
func (Unwritten) PutReaderIfAbsent(context.Context, string, io.Reader, int64) error { return nil }

// RemoveUnfinished implements Store.
func (Unwritten) RemoveUnfinished(context.Context, time.Time) (int, error) { return 0, nil }

// CompareAndSwap implements Store. It fails: who swaps counts on what is there.
func (Unwritten) CompareAndSwap(context.Context, string, string, []byte) (string, error) {
	return "", errors.New("this store is read only")
}

// Delete implements Store.
func (Unwritten) Delete(context.Context, string) error { return nil }
