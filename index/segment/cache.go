package segment

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Cache keeps pages of segments: opened ones in memory, and sealed ones in a folder,
// where several processes may use them. It is safe for concurrent use, and may serve any
// number of indexes and spaces.
//
// In the folder a segment is a file with holes. A page in it counts only if it can be opened with
// the key, for its place: so what another process has half written, a hole, and damage are all the
// same as a page that is not there.
type Cache struct {
	dir      string // "" for none
	maxBytes int64

	mu     sync.Mutex
	memory *simplelru.LRU[pageKey, cached]
	held   int64 // bytes in memory
	limit  int64

	disk    sync.Mutex
	written int64 // since the folder was looked at last
}

type pageKey struct {
	digest  [32]byte
	section section
	page    int
}

type cached struct {
	page any
	size int64
}

// Memory is how many bytes of opened pages a cache keeps unless told otherwise.
const Memory = 256 << 20

// NewCache makes a cache that keeps up to memory bytes of opened pages and, where dir is not "", up
// to disk bytes of sealed ones in the folder, which it makes if need be, readable by its owner
// alone. The folder may grow over its limit by a sixteenth.
func NewCache(dir string, disk, memory int64) (*Cache, error) {
	if memory < 0 || dir != "" && disk < 1<<20 {
		return nil, fmt.Errorf("a cache of %d bytes in memory and %d in %q: at least 0, and 1048576 in a folder",
			memory, disk, dir)
	}
	c := &Cache{dir: dir, maxBytes: disk, limit: memory}
	var err error
	if c.memory, err = simplelru.NewLRU(1<<30, func(_ pageKey, old cached) { c.held -= old.size }); err != nil {
		return nil, err
	}
	if dir == "" {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of a cache: %w", err)
	}
	return c, c.trim()
}

// memoryOnly is the cache of an index for which none was given.
func memoryOnly() *Cache {
	c, err := NewCache("", 0, Memory)
	if err != nil {
		panic(err) // only for limits
	}
	return c
}

func (c *Cache) get(key pageKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.memory.Get(key)
	return found.page, ok
}

// put keeps an opened page; size is about what it takes.
func (c *Cache) put(key pageKey, page any, size int) {
	entry := cached{page, int64(size) + 512}
	if entry.size > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.Contains(key) {
		return
	}
	c.memory.Add(key, entry)
	for c.held += entry.size; c.held > c.limit; {
		c.memory.RemoveOldest()
	}
}

const cacheSuffix = ".pages"

func (c *Cache) file(digest [32]byte) string {
	return filepath.Join(c.dir, hex.EncodeToString(digest[:])+cacheSuffix)
}

// open opens a segment's file to read what is there of it; nil where there is none.
func (c *Cache) open(digest [32]byte) *os.File {
	if c.dir == "" {
		return nil
	}
	name := c.file(digest)
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err == nil && time.Since(info.ModTime()) > time.Minute {
		_ = os.Chtimes(name, time.Time{}, time.Now()) // its age in the cache; without it, it goes sooner
	}
	return f
}

// keep writes a range of a segment. An error is none of the index's: what
// is not kept is read again.
func (c *Cache) keep(digest [32]byte, offset int64, sealed []byte) {
	if c.dir == "" {
		return
	}
	f, err := os.OpenFile(c.file(digest), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_, err = f.WriteAt(sealed, offset)
	if f.Close() != nil || err != nil {
		return
	}
	c.disk.Lock()
	defer c.disk.Unlock()
	if c.written += int64(len(sealed)); c.written > c.maxBytes/16 {
		c.written = 0
		_ = c.trim()
	}
}

// trim removes the segments that were not used for longest, until the folder is within its limit.
// Another process may do the same.
func (c *Cache) trim() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return fmt.Errorf("list a cache: %w", err)
	}
	var all []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), cacheSuffix) {
			continue
		}
		all = append(all, info)
		total += allocated(info)
	}
	if total <= c.maxBytes {
		return nil
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range all {
		if total <= c.maxBytes*3/4 {
			break
		}
		if err := os.Remove(filepath.Join(c.dir, info.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("trim a cache: %w", err)
		}
		total -= allocated(info)
	}
	return nil
}

// readRange reads what is there of a range; the rest is zero.
func readRange(f *os.File, offset, length int64) []byte {
	data := make([]byte, length)
	if _, err := f.ReadAt(data, offset); err != nil && !errors.Is(err, io.EOF) {
		clear(data)
	}
	return data
}
