package parts

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/rondo-rl/rondo/storage"
)

// Cache keeps parts in a folder, for streams that share them. What it holds is verified when it is
// read, so it may be deleted at any time, and whoever cannot write there reads from the store.
type Cache struct {
	dir  string
	most int64

	mu   sync.Mutex
	held int64 // bytes, about: others may use the folder, too
}

// OpenCache uses a folder, which it makes, for at most so many bytes.
func OpenCache(dir string, most int64) (*Cache, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	c := &Cache{dir: dir, most: most}
	return c, c.evict()
}

// get reads a part, from the store where the folder does not have it. Without a cache
// it reads from the store.
func (c *Cache) get(ctx context.Context, store storage.Store, ref storage.Ref) ([]byte, error) {
	if c == nil {
		return storage.GetBlob(ctx, store, ref)
	}
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	if data, err := c.read(ref); err == nil {
		return data, nil
	}
	data, err := storage.GetBlob(ctx, store, ref)
	if err == nil {
		c.keep(ref, data)
	}
	return data, err
}

func (c *Cache) read(ref storage.Ref) ([]byte, error) {
	name := filepath.Join(c.dir, ref.SHA256)
	if info, err := os.Stat(name); err != nil || info.Size() != ref.Size {
		return nil, cmp.Or(err, storage.ErrCorrupt)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return data, ref.Check(data)
}

// keep writes a part to the folder; one that cannot be written is not kept.
func (c *Cache) keep(ref storage.Ref, data []byte) {
	file, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(c.dir, ref.SHA256))
	}
	if err != nil {
		os.Remove(file.Name())
		return
	}
	c.mu.Lock()
	c.held += ref.Size
	full := c.held > c.most
	c.mu.Unlock()
	if full {
		_ = c.evict() // the next one tries again
	}
}

// evict removes the oldest parts until what is left fits, with room for some more,
// and counts what is there.
func (c *Cache) evict() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var files []os.FileInfo
	c.held = 0
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
			c.held += info.Size()
		}
	}
	if c.held <= c.most {
		return nil
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, file := range files {
		if c.held <= c.most-c.most/8 {
			break
		}
		if err := os.Remove(filepath.Join(c.dir, file.Name())); err == nil || errors.Is(err, os.ErrNotExist) {
			c.held -= file.Size()
		}
	}
	return nil
}
