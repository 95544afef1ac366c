// Package storage says where bytes live: an object store with a directory and an S3 implementation,
// content-addressed blobs, and the Arrow files that carry trajectories and batches.
//
// Objects are written once under keys of their own and never changed. What has to change (the
// pointer to the current policy version) is a small object that moves by CompareAndSwap.
package storage

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

const (
	// MaxObject is the largest object in bytes that a Store writes or reads whole:
	// data passes through memory.
	MaxObject = 1 << 30
	// MaxStream is the largest object in bytes that passes through PutReader and Open, in pieces.
	MaxStream = 1 << 40
	// MaxPointer is the largest object in bytes that Load and CompareAndSwap accept: a pointer
	// or a manifest, not data.
	MaxPointer = 1 << 20
)

// The kinds of failure a caller can act on; test with errors.Is. All but ErrConflict are permanent:
// the same call fails again.
var (
	ErrNotFound = errors.New("object not found")
	ErrExists   = errors.New("object exists already")
	ErrConflict = errors.New("object was changed by another writer")
	ErrKey      = errors.New("invalid key")
	ErrRange    = errors.New("range outside of the object")
	ErrTooLarge = errors.New("too large")
	ErrCorrupt  = errors.New("corrupt data")
)

// IsUnusable reports whether an error is in an object or in the reference to it, and not
// in the store: the object is missing, damaged or too large, or its key is invalid.
// Reading it again fails again.
func IsUnusable(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrKey) ||
		errors.Is(err, ErrTooLarge)
}

// ErrUnavailable means that the store did not do what it was asked for, and that neither the object
// nor the request is to blame: the server is away, overloaded or refuses everybody, or the disk is
// full or broken. The same call may succeed later.
var ErrUnavailable = errors.New("the object store is unavailable")

// kinds are the failures that are in the object or in the request.
var kinds = []error{ErrNotFound, ErrExists, ErrConflict, ErrKey, ErrRange, ErrTooLarge, ErrCorrupt, ErrSource}

// Unavailable marks an error of an implementation as ErrUnavailable, unless it is of one of the
// other kinds, the caller's context has ended, or the reader failed that the implementation was
// given. The text stays the same. It is for those who implement Store.
func Unavailable(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			return err
		}
	}
	var source *sourceError
	if errors.As(err, &source) {
		return err
	}
	return unavailable{err}
}

type unavailable struct{ error }

func (u unavailable) Unwrap() error        { return u.error }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

// Info describes one object.
type Info struct {
	Key  string
	Size int64
	// ETag names the content for CompareAndSwap. Stat and Load fill it in for objects up to
	// MaxPointer; List may leave it empty.
	ETag string
	// Modified is when the object was last written, by the store's clock, in whole seconds at
	// worst. Stat and List fill it in.
	Modified time.Time
}

// Object is an object that is open for reading, as it was when it was opened. It is
// safe for concurrent use.
type Object interface {
	// ReadAt reads a range; io.EOF at the end. A broken connection is made again where it broke.
	// ErrConflict when the object was replaced and the store does not hold the old one any more.
	io.ReaderAt
	Size() int64 // bytes
	Close() error
}

// Store holds objects by key. See ValidateKey for the form of a key; a key is never also the folder
// of another one ("a" and "a/b" exclude each other), since a directory could not hold both.
//
// Who retries: the implementation retries what is safe to retry (network failures, throttling) a
// few times within ctx. Any error that comes out is either one of the kinds above or an
// infrastructure failure that the caller may retry later.
//
// What is idempotent: Put, PutIfAbsent (the second call answers ErrExists), Get, GetRange, Open,
// Stat, Load, List, Delete and RemoveUnfinished. CompareAndSwap is not: after an error other than
// ErrConflict the write may or may not have happened.
//
// A Store is safe for concurrent use, also by several processes on the same data. A reader sees the
// old object or the new one, never a mixture. A write that returned nil has been made as durable as
// the implementation can make it.
type Store interface {
	// Put writes an object, replacing what was there. ErrTooLarge above MaxObject.
	Put(ctx context.Context, key string, data []byte) error

	// PutIfAbsent writes an object unless the key is taken: ErrExists. Of several concurrent
	// calls exactly one succeeds.
	PutIfAbsent(ctx context.Context, key string, data []byte) error

	// PutReader is Put of what r gives until its end: size bytes, or with size -1 as many as come.
	// When r fails, or gives another number of bytes, nothing is written. It holds a few pieces in
	// memory, whatever the size: no more than 64 MiB up to 160 GB, and one piece of a
	// ten-thousandth beyond. ErrTooLarge above MaxStream.
	PutReader(ctx context.Context, key string, r io.Reader, size int64) error

	// PutReaderIfAbsent is the same with the condition of PutIfAbsent. It may find
	// out only when r was read.
	PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error

	// Open opens an object for reading in ranges, of any size. ErrNotFound. The
	// context holds for all reads.
	Open(ctx context.Context, key string) (Object, error)

	// Get reads a whole object. ErrNotFound; ErrTooLarge above MaxObject.
	Get(ctx context.Context, key string) ([]byte, error)

	// GetRange reads length bytes from offset on. ErrNotFound; ErrRange unless all
	// of these bytes are there.
	GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error)

	// Stat describes an object without reading it. ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)

	// Load reads a small object together with the ETag of just these bytes, the one to hand to
	// CompareAndSwap. ErrNotFound; ErrTooLarge above MaxPointer.
	Load(ctx context.Context, key string) (data []byte, etag string, err error)

	// CompareAndSwap writes a small object if the ETag of the present one is etag, or, with etag
	// "", if there is none. It returns the new ETag. ErrConflict when the object is another one,
	// absent, or (etag "") present; ErrTooLarge above MaxPointer.
	CompareAndSwap(ctx context.Context, key, etag string, data []byte) (newETag string, err error)

	// List yields the objects whose key begins with prefix, in the order of their keys' bytes. An
	// error ends the sequence. Objects written or deleted meanwhile may be seen or not.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes an object. It is no error when there is none.
	Delete(ctx context.Context, key string) error

	// RemoveUnfinished removes what writers that were killed left of objects that they never
	// finished, where nothing was added since a moment, and counts it. A writer that is still at
	// one of them fails, or writes it whole.
	RemoveUnfinished(ctx context.Context, before time.Time) (removed int, err error)

	// Close releases what the Store holds. The data stays.
	Close() error
}

// Packer is a Store that can keep small objects together, so that many that are put at once need
// one sync. Each is an object of its own to all other calls.
type Packer interface {
	// PutPacked is Put of an object whose key follows from its content: what is put at a key is
	// always the same. Repeating it soon may write nothing.
	PutPacked(ctx context.Context, key string, data []byte) error
}
