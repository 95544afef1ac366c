// Package dir is the storage.Store in a directory: for one machine, for tests, and for a file system that several machines share
// if it has working locks.
//
// Every object is a file at its key. A write goes to a temporary file, is synced, renamed into place, and the directory is synced.
// Conditional writes hold a lock file while they compare and rename, so that they are atomic between processes too.
// The folder .rondo at the root is the store's own.
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
}

var _ storage.Store = (*Store)(nil)

// Open opens the store in a directory, which it creates if need be. When no other process has it open,
// temporary files that a crash left behind are removed.
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
	s := &Store{path: path, root: root}
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
	}
	return lockShared(s.alive)
}

// RemoveUnfinished implements storage.Store.
func (s *Store) RemoveUnfinished(ctx context.Context, before time.Time) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	removed, err := s.removeTemps(before)
	if err != nil {
		return removed, s.failed("remove unfinished objects", temps, err)
	}
	return removed, nil
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
	err := s.root.Close()
	if s.alive != nil {
		err = errors.Join(err, s.alive.Close())
	}
	return errors.Join(err, s.closeLocks())
}

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	data, err := s.read(ctx, key, storage.MaxObject)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	return data, nil
}

// Load implements storage.Store.
func (s *Store) Load(ctx context.Context, key string) ([]byte, string, error) {
	data, err := s.read(ctx, key, storage.MaxPointer)
	if err != nil {
		return nil, "", s.failed("load", key, err)
	}
	return data, etag(data), nil
}

func (s *Store) read(ctx context.Context, key string, limit int64) ([]byte, error) {
	file, size, err := s.openObject(ctx, key)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, size, limit)
	}
	data := make([]byte, size)
	_, err = io.ReadFull(file, data)
	return data, err
}

// GetRange implements storage.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	data, err := s.readRange(ctx, key, offset, length)
	if err != nil {
		return nil, s.failed("get range of", key, err)
	}
	return data, nil
}

func (s *Store) readRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	file, size, err := s.openObject(ctx, key)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if offset < 0 || length < 0 || offset > size || length > size-offset {
		return nil, fmt.Errorf("%w: %d bytes at %d of %d", storage.ErrRange, length, offset, size)
	}
	if length > storage.MaxObject {
		return nil, fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, length, storage.MaxObject)
	}
	data := make([]byte, length)
	_, err = file.ReadAt(data, offset)
	return data, err
}

// object is an open file. Its content stays as it is: who replaces an object renames another file into its place.
type object struct {
	*os.File
	size int64
}

func (o object) Size() int64 { return o.size }

// Open implements storage.Store.
func (s *Store) Open(ctx context.Context, key string) (storage.Object, error) {
	file, size, err := s.openObject(ctx, key)
	if err != nil {
		return nil, s.failed("open", key, err)
	}
	return object{file, size}, nil
}

// Stat implements storage.Store.
func (s *Store) Stat(ctx context.Context, key string) (storage.Info, error) {
	info, err := s.stat(ctx, key)
	if err != nil {
		return storage.Info{}, s.failed("stat", key, err)
	}
	return info, nil
}

func (s *Store) stat(ctx context.Context, key string) (storage.Info, error) {
	file, size, err := s.openObject(ctx, key)
	if err != nil {
		return storage.Info{}, err
	}
	defer file.Close()
	held, err := file.Stat()
	if err != nil {
		return storage.Info{}, err
	}
	// Who is told of an object may name it in a fact instead of storing it again: a writer that was killed, or is still at it, may not
	// have synced its name.
	if err := s.keep(path.Dir(key)); err != nil {
		return storage.Info{}, err
	}
	info := storage.Info{Key: key, Size: size, Modified: held.ModTime()}
	if size > storage.MaxPointer {
		return info, nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(file, data); err != nil {
		return storage.Info{}, err
	}
	info.ETag = etag(data)
	return info, nil
}

// openObject opens the file of a key and tells its size; what is no regular file is not found.
func (s *Store) openObject(ctx context.Context, key string) (*os.File, int64, error) {
	if err := storage.ValidateKey(key); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	file, err := s.root.Open(key)
	if missing(err) {
		return nil, 0, storage.ErrNotFound
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = storage.ErrNotFound
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// etag is a digest of the content, as in S3: the same bytes have the same ETag.
func etag(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func (s *Store) failed(operation, key string, err error) error {
	return fmt.Errorf("%s %s in %s: %w", operation, key, s.path, err)
}
