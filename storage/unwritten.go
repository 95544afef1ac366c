package storage

import (
	"context"
	"errors"
)

// Unwritten reads a Store and never writes it: what is put is accepted and forgotten. It is for who makes again what
// others have written, and wants its Ref alone.
type Unwritten struct{ Store }

// Put implements Store.
func (Unwritten) Put(context.Context, string, []byte) error { return nil }

// PutIfAbsent implements Store.
func (Unwritten) PutIfAbsent(context.Context, string, []byte) error { return nil }

// CompareAndSwap implements Store. It fails: who swaps counts on what is there.
func (Unwritten) CompareAndSwap(context.Context, string, string, []byte) (string, error) {
	return "", errors.New("this store is read only")
}

// Delete implements Store.
func (Unwritten) Delete(context.Context, string) error { return nil }
