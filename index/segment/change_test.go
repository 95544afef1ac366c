package segment_test

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/storage"
)

// TestRefusedChanges: what no tree could be is refused, and leaves the index as it was.
func TestRefusedChanges(t *testing.T) {
	store := open(t)
	tree := segmenttest.Tree{"a.go": {"func:A one two"}}
	commit(t, load(t, store, "repo"), tree.Change(keys, nil))
	next := segmenttest.Tree{"b.go": {"func:B one two"}}
	for name, wrong := range map[string]struct {
		change func(*segment.Change)
		want   error
	}{
		"no root":            {func(c *segment.Change) { c.Root = "" }, segment.ErrChange},
		"a root in capitals": {func(c *segment.Change) { c.Root = strings.Repeat("AB", 16) }, segment.ErrChange},
		"no embedder":        {func(c *segment.Change) { c.Embedder = "" }, segment.ErrChange},
		"a long embedder":    {func(c *segment.Change) { c.Embedder = strings.Repeat("x", 101) }, segment.ErrChange},
		"another embedder":   {func(c *segment.Change) { c.Embedder = "other" }, segment.ErrEmbedder},
		"no dimensions":      {func(c *segment.Change) { c.Dimensions = 0 }, segment.ErrChange},
		"other dimensions":   {func(c *segment.Change) { c.Dimensions = 3 }, segment.ErrEmbedder},
		"figures not JSON":   {func(c *segment.Change) { c.Figures = []byte("{") }, segment.ErrChange},
		"no path":            {func(c *segment.Change) { c.Put[0].Path = "" }, segment.ErrChange},
		"a long path": {func(c *segment.Change) { c.Put[0].Path = strings.Repeat("x", segment.MaxPath+1) },
			segment.ErrChange},
		"a file twice":        {func(c *segment.Change) { c.Put = append(c.Put, c.Put[0]) }, segment.ErrChange},
		"an end before start": {func(c *segment.Change) { c.Put[0].Chunks[0].End = -1 }, segment.ErrChange},
		"lines backwards":     {func(c *segment.Change) { c.Put[0].Chunks[0].LastLine = 0 }, segment.ErrChange},
		"a short vector": {func(c *segment.Change) { c.Put[0].Chunks[0].Vector = []float32{1} },
			segment.ErrChange},
		"no number": {func(c *segment.Change) {
			c.Put[0].Chunks[0].Vector = slices.Clone(c.Put[0].Chunks[0].Vector)
			c.Put[0].Chunks[0].Vector[3] = float32(math.NaN())
		}, segment.ErrChange},
		"too many words": {func(c *segment.Change) {
			c.Put[0].Chunks[0].Words = make([]string,
				segment.MaxWords+1)
		}, segment.ErrChange},
		"too many chunks": {func(c *segment.Change) {
			c.Put[0].Chunks = make([]segment.Chunk,
				segment.MaxFileChunks+1)
		}, segment.ErrChange},
		"a vector that is none": {func(c *segment.Change) { c.Put[0].Chunks[0].Vector = nil }, segment.ErrNoVector},
	} {
		t.Run(name, func(t *testing.T) {
			c := next.Change(keys, tree)
			wrong.change(&c)
			if _, err := load(t, store, "repo").Commit(t.Context(), c); !errors.Is(err, wrong.want) {
				t.Errorf("%s: %v, want %v", name, err, wrong.want)
			}
			holds(t, load(t, store, "repo"), tree)
		})
	}
}

// TestOverlayStoresNothing: what is laid over an index is seen by its holder alone.
func TestOverlayStoresNothing(t *testing.T) {
	store := &failing{Store: open(t)}
	tree := segmenttest.Tree{"a.go": {"func:A one two"}, "b.go": {"three"}}
	b := commit(t, load(t, store, "repo"), tree.Change(keys, nil))
	writes := store.writes
	next := segmenttest.Tree{"b.go": {"three", "four"}, "c.go": nil}
	change := next.Change(keys, tree)
	over, err := b.Overlay(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, over, next)
	holds(t, b, tree)
	if store.writes != writes {
		t.Errorf("it wrote %v", store.keys[writes:])
	}
	if _, err := over.Commit(t.Context(), change); !errors.Is(err, segment.ErrOverlay) {
		t.Errorf("an overlay was committed: %v", err)
	}
	change.Root = ""
	if over, err := b.Overlay(t.Context(), change); err != nil || over.Root() != b.Root() {
		t.Errorf("an overlay without a root of its own: %v", err)
	}
}

// TestOtherTrees: trees without files, without chunks, and with names that are no text.
func TestOtherTrees(t *testing.T) {
	store := open(t)
	b := load(t, store, "repo")
	holds(t, b, nil)
	before := segmenttest.Tree(nil)
	for _, tree := range []segmenttest.Tree{
		{}, {"empty": nil}, {"a\xff\xfe": {"func:X\xff y\xff"}, "empty": nil},
		{"empty": nil, "other": nil}, {}, {"a": {"x"}},
	} {
		b = commit(t, b, tree.Change(keys, before))
		holds(t, b, tree)
		holds(t, load(t, store, "repo"), tree)
		before = tree
	}
	if c := b.Counts(); c.Segments != 1 || c.Files != 1 || c.Chunks != 1 || c.Words != 2 {
		t.Errorf("%+v", c)
	}
}

// TestWhoHasNoKey finds nothing.
func TestWhoHasNoKey(t *testing.T) {
	store := open(t)
	tree := segmenttest.Tree{"a.go": {"func:A one two"}}
	commit(t, load(t, store, "repo"), tree.Change(keys, nil))
	other := segmenttest.Key(2)
	if b, err := segment.Load(t.Context(), store, other, "repo", nil); err != nil || b.Root() != "" {
		t.Errorf("another key loads %q, %v", b.Root(), err)
	}
	if _, err := segment.LoadRoot(t.Context(), store, other, tree.Root(keys),
		nil); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("another key loads a root: %v", err)
	}
	// Even in its own place.
	data, _, err := store.Load(t.Context(), "index/"+keys.Space()+"/repos/"+keys.Repo("repo"))
	if err == nil {
		err = store.Put(t.Context(), "index/"+other.Space()+"/repos/"+other.Repo("repo"), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := segment.Load(t.Context(), store, other, "repo", nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("another key opens a manifest: %v", err)
	}
}

// TestDamage: an object that is damaged, cut off, exchanged or gone is an error that says so, and
// Replace leads out of it.
func TestDamage(t *testing.T) {
	store := open(t)
	random := rand.New(rand.NewPCG(1, 1))
	tree := segmenttest.Tree{}.Grow(random, 40)
	commit(t, load(t, store, "repo"), tree.Change(keys, nil))
	other := segmenttest.Tree{}.Grow(random, 40)
	commit(t, load(t, store, "other"), other.Change(keys, nil))
	whole := map[string][]byte{}
	for info, err := range store.List(t.Context(), "") {
		if err == nil {
			whole[info.Key], err = store.Get(t.Context(), info.Key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func() error {
		b, err := segment.Load(t.Context(), store, keys, "repo", nil)
		if err != nil {
			return err
		}
		for _, err := range b.Files(t.Context()) {
			if err != nil {
				return err
			}
		}
		w, err := b.Begin(segmenttest.Embedder, segmenttest.Dimensions)
		if err != nil {
			return err
		}
		for path := range tree { // every page that a merge reads
			w.Remove(path)
			break
		}
		if v, err := b.Read(t.Context(), segment.Request{Words: []string{"w1"},
			Vector: segmenttest.Vector("w1")}); err != nil {
			return err
		} else if _, err := b.Locate(t.Context(), v, rowsOf(v), nil); err != nil {
			return err
		}
		return nil
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	put := func(key string, data []byte) {
		t.Helper()
		if err := store.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
	ours := load(t, store, "repo")
	if ours.Counts().Segments != 1 {
		t.Fatal("more than one segment")
	}
	for key, data := range whole {
		mine := strings.HasSuffix(key, "/repos/"+keys.Repo("repo"))
		if !mine && !strings.Contains(key, "/segments/") {
			continue
		}
		seen := 0
		for at := 8; at < len(data); at += 1 + len(data)/40 {
			damaged := slices.Clone(data)
			damaged[at] ^= 4
			put(key, damaged)
			if err := check(); errors.Is(err, storage.ErrCorrupt) {
				seen++
			} else if err != nil {
				t.Fatalf("%s damaged at %d: %v", key, at, err)
			} else if mine {
				t.Fatalf("%s damaged at %d: not seen", key, at)
			}
		}
		for _, cut := range []int{0, 1, 20, len(data) / 2, len(data) - 1} {
			put(key, data[:cut])
			if err := check(); err != nil && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatalf("%s cut to %d: %v", key, cut, err)
			} else if err == nil && mine {
				t.Fatalf("%s cut to %d: not seen", key, cut)
			}
		}
		for from, others := range whole { // another object of the same kind
			if from != key && strings.Split(from, "/")[2] == strings.Split(key, "/")[2] {
				put(key, others)
				if err := check(); err != nil && !errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("%s exchanged: %v", key, err)
				} else if err != nil {
					seen++
				}
			}
		}
		if !mine {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if err := check(); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s deleted: %v", key, err)
			} else if err != nil && seen < 10 {
				t.Errorf("%s: damage was seen %d times", key, seen)
			}
		}
		put(key, data)
	}
	put("index/"+keys.Space()+"/repos/"+keys.Repo("repo"), []byte("damaged"))
	b, err := segment.Replace(t.Context(), store, keys, "repo", nil)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, b, other.Change(keys, nil))
	holds(t, load(t, store, "repo"), other)
}

func rowsOf(v *segment.View) (all []segment.Row) {
	for _, n := range v.Nearest(1000) {
		all = append(all, n.Row)
	}
	return all
}

// TestAdopt: another clone of a repository takes what is there, and stores its difference only.
func TestAdopt(t *testing.T) {
	store := open(t)
	random := rand.New(rand.NewPCG(1, 1))
	tree, strange := segmenttest.Tree{}.Grow(random, 400), segmenttest.Tree{}.Grow(random, 100)
	commit(t, load(t, store, "strange"), strange.Change(keys, nil))
	commit(t, load(t, store, "first"), tree.Change(keys, nil))
	whole := stored(t, store)
	clone := tree.Edit(random, 5)
	digests := func(tree segmenttest.Tree) func(yield func(string, [32]byte) bool) {
		return func(yield func(string, [32]byte) bool) {
			for path := range tree {
				if !yield(path, tree.File(keys, path).Content) {
					return
				}
			}
		}
	}
	b, err := load(t, store, "clone").Adopt(t.Context(), segmenttest.Embedder, digests(clone))
	if err != nil {
		t.Fatal(err)
	}
	holds(t, b, tree)
	holds(t, commit(t, b, clone.Change(keys, tree)), clone)
	holds(t, load(t, store, "clone"), clone)
	holds(t, load(t, store, "first"), tree)
	if grown := stored(t, store) - whole; grown > whole/5 {
		t.Errorf("the clone takes %d bytes more, where the first repository takes %d", grown, whole)
	}
	for name, b := range map[string]func() (*segment.Base, error){
		"another embedder": func() (*segment.Base, error) {
			return load(t, store, "x").Adopt(t.Context(),
				"other", digests(clone))
		},
		"other files": func() (*segment.Base, error) {
			return load(t, store, "x").Adopt(t.Context(), segmenttest.Embedder,
				digests(segmenttest.Tree{}.Grow(random, 50)))
		},
		"no files": func() (*segment.Base, error) {
			return load(t, store, "x").Adopt(t.Context(), segmenttest.Embedder, maps.All(map[string][32]byte{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := b(); err != nil || b.Root() != "" {
				t.Errorf("%s: adopted %q, %v", name, b.Root(), err)
			}
		})
	}
}

func stored(t testing.TB, s storage.Store) (sum int64) {
	t.Helper()
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size
	}
	return sum
}

// TestRemovedTwice: what is gone is not found, and cannot go again.
func TestRemovedTwice(t *testing.T) {
	both, one := segmenttest.Tree{"a": {"x"}, "b": {"y"}, "c": {"z"}}, segmenttest.Tree{"b": {"y"}, "c": {"z"}}
	b := commit(t, load(t, open(t), "repo"), both.Change(keys, nil))
	for range 2 {
		b = commit(t, b, one.Change(keys, both))
		if _, ok, err := b.File(t.Context(), "a"); ok || err != nil {
			t.Errorf("the removed file is there: %t, %v", ok, err)
		}
		if _, ok, err := b.File(t.Context(), "b"); !ok || err != nil {
			t.Errorf("the other one is not there: %v", err)
		}
		if c := b.Counts(); c.Files != 2 || c.Chunks != 2 || c.Dead != 1 {
			t.Errorf("%+v", c)
		}
		holds(t, b, one)
	}
}
