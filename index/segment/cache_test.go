package segment_test

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/storage"
)

// contents are the files of a folder.
func contents(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if all[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// counting counts what is read of a store.
type counting struct {
	storage.Store
	ranges atomic.Int64
}

func (s *counting) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	s.ranges.Add(1)
	return s.Store.GetRange(ctx, key, offset, length)
}

// TestCache: what one process has read another one need not, and what is wrong in
// the folder does no harm.
func TestCache(t *testing.T) {
	store := &counting{Store: open(t)}
	folder := t.TempDir()
	tree := segmenttest.Tree{}.Grow(mathrand.New(mathrand.NewPCG(1, 1)), 300)
	commit(t, load(t, store, "repo"), tree.Change(keys, nil))
	read := func() int64 {
		t.Helper()
		cache, err := segment.NewCache(folder, 1<<30, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		before := store.ranges.Load()
		b, err := segment.Load(t.Context(), store, keys, "repo", cache)
		if err != nil {
			t.Fatal(err)
		}
		holds(t, b, tree)
		n := store.ranges.Load() - before
		holds(t, b, tree)
		if again := store.ranges.Load() - before; again != n {
			t.Errorf("read again although it is in memory: %d and %d", n, again)
		}
		return n
	}
	if first := read(); first == 0 {
		t.Error("nothing was read of the store")
	}
	if again := read(); again != 0 {
		t.Errorf("%d ranges were read of the store again", again)
	}
	for name, data := range contents(t, folder) {
		for i := 0; i < len(data); i += 1000 {
			data[i] ^= 1
		}
		if err := os.WriteFile(name, data[:len(data)*2/3], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := read(); n == 0 {
		t.Error("nothing was read although the cache is damaged")
	}
	if again := read(); again != 0 {
		t.Errorf("%d ranges were read of the store after the damage was repaired", again)
	}
}

// TestCacheOfManyProcesses: several caches work on one folder at the same
// time, while it is trimmed.
func TestCacheOfManyProcesses(t *testing.T) {
	store, folder := open(t), t.TempDir()
	random := mathrand.New(mathrand.NewPCG(1, 1))
	trees := map[string]segmenttest.Tree{}
	for _, repo := range []string{"a", "b", "c", "d"} {
		trees[repo] = segmenttest.Tree{}.Grow(random, 300)
		commit(t, load(t, store, repo), trees[repo].Change(keys, nil))
	}
	var group sync.WaitGroup
	for range 3 {
		cache, err := segment.NewCache(folder, 1<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for repo, tree := range trees {
				b, err := segment.Load(t.Context(), store, keys, repo, cache)
				if err != nil {
					t.Error(err)
					return
				}
				holds(t, b, tree)
			}
		})
	}
	group.Wait()
}

// TestCacheIsBounded: the folder does not outgrow its limit by more than is written between two
// looks at it, and what is foreign stays.
func TestCacheIsBounded(t *testing.T) {
	store, folder := open(t), t.TempDir()
	foreign := filepath.Join(folder, "notes.txt")
	if err := os.WriteFile(foreign, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 4 { // left by others
		if err := os.WriteFile(filepath.Join(folder, rand.Text()+".pages"), make([]byte, 400<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 1 << 20
	cache, err := segment.NewCache(folder, limit, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := func() (sum int) {
		for _, data := range contents(t, folder) {
			sum += len(data)
		}
		return sum
	}
	if n := size(); n > limit {
		t.Errorf("%d bytes are left of what others wrote", n)
	}
	random := mathrand.New(mathrand.NewPCG(1, 1))
	largest := 0
	for range 6 {
		tree := segmenttest.Tree{}.Grow(random, 300)
		b, err := segment.Load(t.Context(), store, keys, tree.Root(keys), cache)
		if err != nil {
			t.Fatal(err)
		}
		b = commit(t, b, tree.Change(keys, nil))
		holds(t, b, tree)
		largest = max(largest, int(b.Counts().Bytes))
		if n := size(); n > limit+limit/16+largest {
			t.Errorf("%d bytes in a cache of %d", n, limit)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][2]int64{{0, 1}, {1 << 20, -1}} {
		if _, err := segment.NewCache(folder, wrong[0], wrong[1]); err == nil {
			t.Errorf("a cache of %v was made", wrong)
		}
	}
}
