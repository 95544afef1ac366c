// Package dir is the storage.Store in a directory: for one machine, for tests, and for a file
// system that several machines share if it has working locks.
//
// An object is a file at its key. A write goes to a temporary file, is synced, renamed into place,
// and the directory is synced. Small objects of PutPacked lie together in files of the folder
// .packs beside their keys. Conditional writes hold a lock file while they compare and rename, so
// that they are atomic between processes too. The folder .rondo at the root is the store's own.
package dir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/durable"
)

const (
	own   = ".rondo"
	temps = own + "/tmp"
	locks = own + "/locks"
)

// Store is a storage.Store in a directory.
type Store struct {
	path  string
	root  *os.Root // no key, and no symbolic link inside, leads out of it
	alive *os.File // shared lock while open: temporary files of a dead process are recognised by nobody holding it
	locks [stripes]keyLock
	// named are folders whose names, and those of all above them, are on the disk.
	named sync.Map

	packing bool // small objects go into packs
	packsMu sync.Mutex
	packs   map[string]*packs // by folder
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in a directory, which it creates if need be. When no other process has it
// open, temporary files that a crash left behind are removed.
func Open(path string) (*Store, error) {
	s, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open directory store %s: %w", path, err)
	}
	return s, nil
}

func open(path string) (*Store, error) {
	if err := durable.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, root: root, packs: map[string]*packs{}}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) prepare() error {
	for _, dir := range []string{temps, locks} {
		if err := s.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := s.openLocks(); err != nil {
		return err
	}
	var err error
	if s.alive, err = s.root.OpenFile(own+"/alive", os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return err
	}
	alone, err := tryLock(s.alive)
	if err != nil {
		return err
	}
	if alone {
		if _, err := s.removeTemps(time.Now().Add(24 * time.Hour)); err != nil {
			return err
		}
		if err := s.allowPacks(); err != nil {
			return err
		}
	}
	if s.packing, err = s.arePacksAllowed(); err != nil {
		return err
	}
	return lockShared(s.alive)
}

// RemoveUnfinished implements storage.Store.
func (s *Store) RemoveUnfinished(ctx context.Context, before time.Time) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	removed, err := s.removeTemps(before)
	return removed, s.failed(ctx, "remove unfinished objects", temps, err)
}

// removeTemps removes the temporary files to which nothing was written since a moment.
func (s *Store) removeTemps(before time.Time) (removed int, err error) {
	entries, err := fs.ReadDir(s.root.FS(), temps)
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().After(before) {
			continue
		}
		if err == nil {
			err = s.root.Remove(temps + "/" + entry.Name())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// Close gives the directory back. Calls after it fail with os.ErrClosed.
func (s *Store) Close() error {
	err := errors.Join(s.closePacks(), s.root.Close())
	if s.alive != nil {
		err = errors.Join(err, s.alive.Close())
	}
	return errors.Join(err, s.closeLocks())
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	data, err := s.read(ctx, key, storage.MaxObject)
	return data, s.failed(ctx, "get", key, err)
}

// Load implements storage.Store.
func (s *Store) Load(ctx context.Context, key string) ([]byte, string, error) {
	data, err := s.read(ctx, key, storage.MaxPointer)
	if err != nil {
		return nil, "", s.failed(ctx, "load", key, err)
	}
	return data, etag(data), nil
}

func (s *Store) read(ctx context.Context, key string, limit int64) ([]byte, error) {
	o, err := s.openObject(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if o.size > limit {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, o.size, limit)
	}
	return o.read(0, o.size)
}

// GetRange implements storage.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	data, err := s.readRange(ctx, key, offset, length)
	return data, s.failed(ctx, "get range of", key, err)
}

func (s *Store) readRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	o, err := s.openObject(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if offset < 0 || length < 0 || offset > o.size || length > o.size-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", storage.ErrRange, length, offset, o.size)
	}
	if length > storage.MaxObject {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, length, storage.MaxObject)
	}
	return o.read(offset, length)
}

// object is an open one. Its content stays as it is: who replaces an object renames another file
// into its place, and a pack only grows.
type object struct {
	content  io.ReaderAt
	file     *os.File // of its own, or its pack
	size     int64
	modified time.Time
	// unsynced is an object in the pack of another process, which may not have synced it yet.
	unsynced bool
}

func (o object) ReadAt(p []byte, offset int64) (int, error) { return o.content.ReadAt(p, offset) }

func (o object) Size() int64 { return o.size }

func (o object) Close() error { return o.file.Close() }

// read reads a range that is there.
func (o object) read(offset, length int64) ([]byte, error) {
	data := make([]byte, length)
	n, err := o.content.ReadAt(data, offset)
	if n == len(data) {
		err = nil
	}
	return data, err
}

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, key string) (storage.Object, error) {
	o, err := s.openObject(ctx, key)
	if err != nil {
		return nil, s.failed(ctx, "open", key, err)
	}
	return o, nil
}

// Stat implements storage.Store.
func (s *Store) Stat(ctx context.Context, key string) (storage.Info, error) {
	info, err := s.stat(ctx, key)
	return info, s.failed(ctx, "stat", key, err)
}

func (s *Store) stat(ctx context.Context, key string) (storage.Info, error) {
	o, err := s.openObject(ctx, key)
	if err != nil {
		return storage.Info{}, err
	}
	defer o.Close()
	if err := s.keepObject(key, o); err != nil {
		return storage.Info{}, err
	}
	info := storage.Info{Key: key, Size: o.size, Modified: o.modified}
	if o.size > storage.MaxPointer {
		return info, nil
	}
	data, err := o.read(0, o.size)
	if err != nil {
		return storage.Info{}, err
	}
	info.ETag = etag(data)
	return info, nil
}

// openObject opens what is at a key; what is no regular file is not found.
func (s *Store) openObject(ctx context.Context, key string) (object, error) {
	if err := storage.ValidateKey(key); err != nil {
		return object{}, err
	}
	if err := ctx.Err(); err != nil {
		return object{}, err
	}
	file, err := s.root.Open(key)
	if missing(err) {
		return s.findPacked(key)
	}
	if err != nil {
		return object{}, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = storage.ErrNotFound
	}
	if err != nil {
		return object{}, errors.Join(err, file.Close())
	}
	return object{content: file, file: file, size: info.Size(), modified: info.ModTime()}, nil
}

// keepObject returns when an object is on the disk. A caller that learns of an object may
// name it in a fact without storing it again. Its writer may not have synced it: it was
// killed, or is still at work.
func (s *Store) keepObject(key string, o object) error {
	switch {
	case o.content == io.ReaderAt(o.file):
		return s.keep(path.Dir(key))
	case o.unsynced:
		return errors.Join(o.file.Sync(), s.keep(path.Join(path.Dir(key), packFolder)))
	}
	return nil
}

// etag is a digest of the content, as in S3: the same bytes have the same ETag.
func etag(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func (s *Store) failed(ctx context.Context, operation, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s in %s: %w", operation, key, s.path, storage.Unavailable(ctx, err))
}
