package dir

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/rondo-rl/rondo/storage"
)

// Put implements storage.Store.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	return s.failed(ctx, "put", key, s.write(ctx, key, bytes.NewReader(data), int64(len(data)), storage.MaxObject, nil))
}

// PutIfAbsent implements storage.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	condition := func() error { return s.mustBeAbsent(key) }
	return s.failed(ctx, "put if absent", key, s.write(ctx, key, bytes.NewReader(data), int64(len(data)),
		storage.MaxObject, condition))
}

// PutReader implements storage.Store.
func (s *Store) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.failed(ctx, "put", key, s.write(ctx, key, r, size, storage.MaxStream, nil))
}

// PutReaderIfAbsent implements storage.Store.
func (s *Store) PutReaderIfAbsent(ctx context.Context, key string, r io.Reader, size int64) error {
	condition := func() error { return s.mustBeAbsent(key) }
	err := storage.ValidateKey(key)
	if err == nil {
		err = condition() // before r is read
	}
	if err == nil {
		err = s.write(ctx, key, r, size, storage.MaxStream, condition)
	}
	return s.failed(ctx, "put if absent", key, err)
}

func (s *Store) mustBeAbsent(key string) error {
	switch _, err := s.root.Lstat(key); {
	case err == nil:
		return errors.Join(storage.ErrExists, s.keep(path.Dir(key)))
	case missing(err):
		return s.mustNotBePacked(key)
	default:
		return err
	}
}

func (s *Store) mustNotBePacked(key string) error {
	o, err := s.findPacked(key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(storage.ErrExists, s.keepObject(key, o), o.Close())
}

// CompareAndSwap implements storage.Store.
func (s *Store) CompareAndSwap(ctx context.Context, key, old string, data []byte) (string, error) {
	condition := func() error { return s.mustBe(ctx, key, old) }
	if err := s.write(ctx, key, bytes.NewReader(data), int64(len(data)), storage.MaxPointer, condition); err != nil {
		return "", s.failed(ctx, "compare and swap", key, err)
	}
	return etag(data), nil
}

func (s *Store) mustBe(ctx context.Context, key, old string) error {
	present, err := s.read(ctx, key, storage.MaxPointer)
	switch {
	case errors.Is(err, storage.ErrNotFound) && old == "":
		return nil
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		return storage.ErrConflict
	case err != nil:
		return err
	case old != etag(present):
		return storage.ErrConflict
	}
	return nil
}

// Delete implements storage.Store. Folders stay: removing them would race with writers.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.failed(ctx, "delete", key, s.remove(ctx, key))
}

func (s *Store) remove(ctx context.Context, key string) error {
	if err := storage.ValidateKey(key); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	packs, err := s.packsIn(path.Dir(key))
	if err == nil && packs != nil {
		err = packs.remove(path.Base(key))
	}
	if err != nil {
		return err
	}
	info, err := s.root.Lstat(key)
	if missing(err) || err == nil && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.root.Remove(key); err != nil {
		return err
	}
	return s.sync(path.Dir(key))
}

// write puts what r gives, size bytes or with size -1 any number, at a key, under the key's lock
// and if the condition holds there.
func (s *Store) write(ctx context.Context, key string, r io.Reader, size, limit int64, condition func() error) error {
	if err := storage.ValidateKey(key); err != nil {
		return err
	}
	if size > limit {
		return fmt.Errorf("%w: %d bytes (limit %d)", storage.ErrTooLarge, size, limit)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	temp, err := s.writeTemp(ctx, r, size, limit)
	if err != nil {
		return err
	}
	if err := s.commit(ctx, key, temp, condition); err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	return nil
}

func (s *Store) commit(ctx context.Context, key, temp string, condition func() error) error {
	if err := s.makeFolder(path.Dir(key)); err != nil {
		return err
	}
	unlock, err := s.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	if condition != nil {
		if err := condition(); err != nil {
			return err
		}
	}
	if err := s.root.Rename(temp, key); err != nil {
		return err
	}
	return s.sync(path.Dir(key))
}

func (s *Store) writeTemp(ctx context.Context, r io.Reader, size, limit int64) (name string, err error) {
	name = temps + "/" + rand.Text()
	file, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, storage.Exactly(ctx, r, size, limit), make([]byte, copied(size)))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, s.root.Remove(name))
	}
	return name, nil
}

// copied is the size of the pieces in which size bytes are copied.
func copied(size int64) int64 {
	const most = 1 << 20
	if size < 0 {
		return most
	}
	return min(size+1, most)
}

// makeFolder makes a folder and its parents, each durable before the next: a synced file in a lost
// folder is lost. One that is there already may be so new that its name is not on the disk.
func (s *Store) makeFolder(folder string) error {
	if folder == "." {
		return nil
	}
	if _, named := s.named.Load(folder); named {
		if info, err := s.root.Stat(folder); err == nil && info.IsDir() {
			return nil
		}
	}
	parent := path.Dir(folder)
	if err := s.makeFolder(parent); err != nil {
		return err
	}
	if err := s.root.Mkdir(folder, 0o755); err != nil {
		info, statErr := s.root.Stat(folder)
		if !errors.Is(err, fs.ErrExist) || statErr != nil || !info.IsDir() {
			return err
		}
	}
	if err := s.sync(parent); err != nil {
		return err
	}
	s.named.Store(folder, true)
	return nil
}

// keep returns when the names in a folder are on the disk, and those that lead to it.
func (s *Store) keep(folder string) error {
	return errors.Join(s.makeFolder(folder), s.sync(folder))
}

func (s *Store) sync(folder string) error {
	file, err := s.root.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// missing says that there is no file at a path: the last element is absent, or an
// earlier one is itself a file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
