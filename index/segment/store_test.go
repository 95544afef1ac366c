package segment_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/storage"
)

var keys = segmenttest.Key(1)

var open, load, commit = segmenttest.Open, segmenttest.Load, segmenttest.Commit

// holds checks that an index has the files of a tree, and no others, and that all
// of its pages can be read.
func holds(t testing.TB, b *segment.Base, tree segmenttest.Tree) {
	t.Helper()
	if len(tree) > 0 && b.Root() != tree.Root(keys) {
		t.Errorf("root %s, want %s", b.Root(), tree.Root(keys))
	}
	paths := slices.Sorted(maps.Keys(tree))
	for e, err := range b.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) == 0 || e.Path != paths[0] {
			t.Fatalf("%s is in the index, next in the tree is %.1v", e.Path, paths)
		}
		if f := tree.File(keys, e.Path); e.Content != keys.Content(f.Content) || e.Chunks != len(f.Chunks) {
			t.Fatalf("%s is another in the index: %+v", e.Path, e)
		}
		paths = paths[1:]
	}
	if len(paths) > 0 {
		t.Fatalf("not in the index: %v", paths)
	}
	var ids [][16]byte
	for path := range tree {
		for _, c := range tree.File(keys, path).Chunks {
			ids = append(ids, c.ID)
		}
	}
	has, err := b.Has(t.Context(), ids)
	if err != nil || slices.Contains(has, false) {
		t.Fatalf("vectors are missing: %v", err)
	}
	v, err := b.Read(t.Context(), segment.Request{Words: []string{"w1", "w2"}, Names: []string{"name1"},
		Vector: segmenttest.Vector("w1")})
	if err != nil {
		t.Fatal(err)
	}
	var rows []segment.Row
	for _, n := range v.Nearest(50) {
		rows = append(rows, n.Row)
	}
	if _, err := b.Locate(t.Context(), v, rows, nil); err != nil {
		t.Fatal(err)
	}
}

// failing is a store of which one write fails: before it has happened, or after.
type failing struct {
	storage.Store
	mu     sync.Mutex
	writes int
	at     int  // the write that fails, from 1; 0 for none
	after  bool // although it has happened
	keys   []string
}

var errPower = errors.New("the power is gone")

func (s *failing) write(key string, do func() error) error {
	s.mu.Lock()
	s.writes++
	now := s.writes == s.at
	s.keys = append(s.keys, key)
	s.mu.Unlock()
	if now && !s.after {
		return errPower
	}
	err := do()
	if now && err == nil {
		return errPower
	}
	return err
}

func (s *failing) Put(ctx context.Context, key string, data []byte) error {
	return s.write(key, func() error { return s.Store.Put(ctx, key, data) })
}

func (s *failing) CompareAndSwap(ctx context.Context, key, old string, data []byte) (etag string, err error) {
	err = s.write(key, func() error {
		etag, err = s.Store.CompareAndSwap(ctx, key, old, data)
		return err
	})
	return etag, err
}

// TestCrashAtEveryStep: whichever write is the last one that happens, the index is the old one or
// the new one, and whole; and whoever begins again comes out right.
func TestCrashAtEveryStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			random := rand.New(rand.NewPCG(3, 4))
			inner := open(t)
			old := segmenttest.Tree{}.Grow(random, 12)
			b := commit(t, load(t, inner, "repo"), old.Change(keys, nil))
			for range 8 { // so that the next change merges
				next := old.Edit(random, 2)
				b = commit(t, b, next.Change(keys, old))
				old = next
			}
			next := old.Edit(random, 5)
			s := &failing{Store: inner, at: at, after: after}
			_, err := load(t, s, "repo").Commit(t.Context(), next.Change(keys, old))
			if err == nil && s.writes < at {
				if at < 4 {
					t.Errorf("a commit of %d writes: %v", s.writes, s.keys)
				}
				break
			}
			pointer := strings.Contains(s.keys[len(s.keys)-1], "/repos/")
			switch now := load(t, inner, "repo"); {
			case err == nil && !(pointer && after):
				t.Errorf("write %d (%v) failed, and the commit did not", at, s.keys)
			case err != nil && !errors.Is(err, errPower):
				t.Errorf("write %d: %v", at, err)
			case err == nil: // the store had done what it denied, and the commit found that out
				holds(t, now, next)
			default:
				holds(t, now, old)
				holds(t, commit(t, now, next.Change(keys, old)), next)
			}
			holds(t, load(t, inner, "repo"), next)
			if t.Failed() {
				return
			}
		}
	}
}

// TestUpdatersAtOnce: of updaters that do different things at once nothing is lost, if
// whoever loses loads again.
func TestUpdatersAtOnce(t *testing.T) {
	store := open(t)
	const updaters, changes = 6, 5
	var group sync.WaitGroup
	var mu sync.Mutex
	conflicts := 0
	for u := range updaters {
		group.Go(func() {
			for n := range changes {
				part := segmenttest.Tree{}.Grow(rand.New(rand.NewPCG(uint64(u), uint64(n))), 3)
				for {
					b, err := segment.Load(t.Context(), store, keys, "repo", nil)
					if err == nil {
						_, err = b.Commit(t.Context(), part.Change(keys, nil))
					}
					if err == nil {
						break
					}
					if !errors.Is(err, storage.ErrConflict) {
						t.Error(err)
						return
					}
					mu.Lock()
					conflicts++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	b := load(t, store, "repo")
	found := map[string][16]byte{}
	for e, err := range b.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found[e.Path] = e.Content
	}
	for u := range updaters {
		for n := range changes {
			part := segmenttest.Tree{}.Grow(rand.New(rand.NewPCG(uint64(u), uint64(n))), 3)
			for path := range part {
				if found[path] != keys.Content(part.File(keys, path).Content) {
					t.Errorf("%s of updater %d is lost", path, u)
				}
			}
		}
	}
	if conflicts == 0 {
		t.Log("the updaters never met") // on a machine with one core; the next test makes them meet
	}
}

// TestLoserChangesNothing: who builds upon an index that another has replaced is refused.
func TestLoserChangesNothing(t *testing.T) {
	store := open(t)
	one, other := load(t, store, "repo"), load(t, store, "repo")
	first, second := segmenttest.Tree{"a": {"one"}}, segmenttest.Tree{"b": {"two"}}
	commit(t, one, first.Change(keys, nil))
	if _, err := other.Commit(t.Context(), second.Change(keys, nil)); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("the second commit: %v", err)
	}
	if _, err := load(t, store, "repo").Fresh().Commit(t.Context(), second.Change(keys, nil)); err != nil {
		t.Error(err)
	}
	holds(t, load(t, store, "repo"), second)
	if b, err := segment.LoadRoot(t.Context(), store, keys, first.Root(keys), nil); err != nil {
		t.Error(err)
	} else {
		holds(t, b, first)
	}
}

// TestOldIndexStays: what an index needs that is replaced stays for a while, however
// long ago it was written.
func TestOldIndexStays(t *testing.T) {
	store := &failing{Store: open(t)}
	trees := []segmenttest.Tree{{"a": {"one"}}, {"a": {"two"}}, {"a": {"three"}}, {"a": {"four"}}}
	synctest.Test(t, func(t *testing.T) {
		b := commit(t, load(t, store, "repo"), trees[0].Change(keys, nil))
		b = commit(t, b, trees[1].Change(keys, trees[0]))
		time.Sleep(40 * 24 * time.Hour)
		store.keys = nil
		b = commit(t, b, trees[2].Change(keys, trees[1]))
		time.Sleep(40 * 24 * time.Hour)
		commit(t, b.Fresh(), trees[3].Change(keys, nil))
	})
	for i, want := range []int{0, 1, 2, 1} {
		times := 0
		for _, key := range store.keys {
			if strings.HasSuffix(key, "/roots/"+trees[i].Root(keys)) {
				times++
			}
		}
		if times != want {
			t.Errorf("the last two commits wrote tree %d %d times, want %d", i, times, want)
		}
	}
}

// TestNothingInClear: neither the store nor a cache shows a name, a path or a word.
func TestNothingInClear(t *testing.T) {
	store, folder := open(t), t.TempDir()
	cache, err := segment.NewCache(folder, 1<<30, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	secret := segmenttest.Tree{"planted-folder/planted-file.go": {"func:PlantedSymbol plantedword plantedother",
		"plantedword again"}}
	for i := range 200 {
		secret["planted-folder/"+strings.Repeat("x", i)] = []string{"plantedword"}
	}
	b, err := segment.Load(t.Context(), store, keys, "planted-repository", cache)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, commit(t, b, secret.Change(keys, nil)), secret)
	objects := 0
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		objects++
		if strings.Contains(strings.ToLower(info.Key), "planted") ||
			bytes.Contains(bytes.ToLower(data), []byte("planted")) ||
			bytes.Contains(data, []byte(segmenttest.Embedder)) {
			t.Errorf("%s shows what is in it", info.Key)
		}
	}
	if objects != 3 {
		t.Errorf("%d objects, want a segment, a root and a pointer", objects)
	}
	files := 0
	for _, data := range contents(t, folder) {
		files++
		if bytes.Contains(bytes.ToLower(data), []byte("planted")) {
			t.Error("the cache shows what is in it")
		}
	}
	if files != 1 {
		t.Errorf("%d files in the cache", files)
	}
}
