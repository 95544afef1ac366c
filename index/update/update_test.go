package update_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/index"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage"
)

// folder is a new working tree, whose index lies in a store under a key.
func folder(t testing.TB, store storage.Store, key byte, repo string) *update.Folder {
	t.Helper()
	return &update.Folder{
		Index: update.Index{Store: store, Keys: seal.New(seal.Key{key}), Repo: repo, Embedder: embed.Static()},
		Dir:   t.TempDir(), StateFile: filepath.Join(t.TempDir(), "states", "state"),
	}
}

func write(t testing.TB, f *update.Folder, name, content string) {
	t.Helper()
	path := filepath.Join(f.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustSync(t testing.TB, f *update.Folder) index.State {
	t.Helper()
	state, err := f.Sync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// function is the source of a function with a name.
func function(name string) string {
	return fmt.Sprintf("// %s does what its name says.\nfunc %s(value int) int {\n%s\treturn value\n}\n\n", name, name,
		strings.Repeat("\tvalue += len(\""+name+"\") * value\n", 12))
}

// contents is all that an index has of its tree.
func contents(t testing.TB, x *update.Index) []string {
	t.Helper()
	base, err := x.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := base.Counts()
	list := []string{fmt.Sprintf("root %s, %d files, %d chunks, %d words", base.Root(), c.Files, c.Chunks, c.Words)}
	for f, err := range base.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %x %d", f.Path, f.Content, f.Chunks))
	}
	return list
}

// fresh is all that an index has which is made of the tree anew.
func fresh(t testing.TB, f *update.Folder) []string {
	t.Helper()
	other := *f
	other.Store, other.StateFile = segmenttest.Open(t), filepath.Join(t.TempDir(), "state")
	mustSync(t, &other)
	return contents(t, &other.Index)
}

func TestSync(t *testing.T) {
	f := folder(t, segmenttest.Open(t), 1, "code")
	write(t, f, "a.go", "package a\n\n"+function("First")+function("Second"))
	write(t, f, "lib/b.go", "package lib\n\n"+function("Third"))
	write(t, f, ".gitignore", "*.log\n")
	write(t, f, "big.log", "ignored")
	write(t, f, "image", "\x00\x01")
	first := mustSync(t, f)
	if first.Files != 3 || first.Added == 0 || first.Chunks != first.Added+first.Reused || first.Removed != 0 ||
		first.Generation == 0 || first.Base != "" ||
		first.Skipped["ignored"] != 1 || first.Skipped["binary"] != 1 ||
		first.Embedder != update.Identity(f.Embedder) || first.Space != f.Keys.Space() {
		t.Errorf("first: %+v", first)
	}
	if again := mustSync(t, f); again.Generation != first.Generation || again.Root != first.Root {
		t.Errorf("nothing changed, and then %+v", again)
	}
	// A function more costs its own chunk; a file that moves costs none.
	write(t, f, "a.go", "package a\n\n"+function("First")+function("Second")+function("Fourth"))
	if err := os.Rename(filepath.Join(f.Dir, "lib/b.go"), filepath.Join(f.Dir, "lib/c.go")); err != nil {
		t.Fatal(err)
	}
	second := mustSync(t, f)
	if second.Added != 1 || second.Reused < 2 || second.Generation != first.Generation+1 || second.Base != first.Root ||
		second.Root == first.Root || second.Chunks != first.Chunks+1 {
		t.Errorf("a function more and a file moved: %+v", second)
	}
	if got, want := contents(t, &f.Index), fresh(t, f); !slices.Equal(got, want) {
		t.Errorf("got\n%q, made anew\n%q", got, want)
	}
}

// TestIncrementalIsFresh: after any edits, moves, deletions and changes of what is ignored, the
// index is the one that would be made anew.
func TestIncrementalIsFresh(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			f := folder(t, segmenttest.Open(t), 1, "code")
			names := []string{"a.go", "b.py", "lib/a.go", "lib/deep/c.go", "lib/deep", "lib/x/y.go",
				"docs/read.md", "d.txt"}
			for range 12 {
				for range 1 + random.IntN(3) {
					edit(t, f.Dir, random, names)
				}
				mustSync(t, f)
				if got, want := contents(t, &f.Index), fresh(t, f); !slices.Equal(got, want) {
					t.Fatalf("got\n%q, made anew\n%q", got, want)
				}
			}
		})
	}
}

// edit makes one random change of a tree.
func edit(t *testing.T, dir string, random *rand.Rand, names []string) {
	t.Helper()
	name := func() string { return filepath.Join(dir, names[random.IntN(len(names))]) }
	switch path := name(); random.IntN(6) {
	case 0, 1, 2:
		var text strings.Builder
		for range random.IntN(6) {
			text.WriteString(function(fmt.Sprintf("F%d", random.IntN(9))))
		}
		// What is in the way stays: a folder where a file should be, or a file above it.
		if os.MkdirAll(filepath.Dir(path), 0o755) == nil {
			_ = os.WriteFile(path, []byte(text.String()), 0o644)
		}
	case 3:
		_ = os.RemoveAll(path)
	case 4:
		to := name()
		if os.MkdirAll(filepath.Dir(to), 0o755) == nil {
			_ = os.Rename(path, to)
		}
	case 5:
		rule := []string{"", "*.go\n", "/lib\n", "*.md\n!read.md\n", "deep/\n"}[random.IntN(5)]
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rule), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var errPlanned = errors.New("planned failure")

// failing is a store that ends after some writes, before or after the last of them is done.
type failing struct {
	storage.Store
	mu    sync.Mutex
	left  int
	after bool
}

func (s *failing) do(write func() error) error {
	s.mu.Lock()
	s.left--
	left := s.left
	s.mu.Unlock()
	if left < 0 || left == 0 && !s.after {
		return errPlanned
	}
	if err := write(); err != nil || left > 0 {
		return err
	}
	return errPlanned
}

func (s *failing) Put(ctx context.Context, key string, data []byte) error {
	return s.do(func() error { return s.Store.Put(ctx, key, data) })
}

func (s *failing) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (newETag string, err error) {
	err = s.do(func() error {
		newETag, err = s.Store.CompareAndSwap(ctx, key, etag, data)
		return err
	})
	return newETag, err
}

// TestCrashAtEveryStep: an update that ends at any write leaves the old index or the new one, and
// the next update comes to the new one.
func TestCrashAtEveryStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		ended := false
		for n := 1; !ended; n++ {
			store := segmenttest.Open(t)
			f := folder(t, store, 1, "code")
			write(t, f, "a.go", "package a\n\n"+function("First"))
			write(t, f, "b.go", "package a\n\n"+function("Second"))
			mustSync(t, f)
			old := contents(t, &f.Index)
			write(t, f, "b.go", "package a\n\n"+function("Third"))
			write(t, f, "c.go", "package a\n\n"+function("Fourth"))
			want := fresh(t, f)
			f.Store = &failing{Store: store, left: n, after: after}
			_, err := f.Sync(t.Context(), nil)
			f.Store = store
			if ended = err == nil && n > 1; !ended && err != nil && !errors.Is(err, errPlanned) {
				t.Fatalf("%d writes: %v", n, err)
			}
			if got := contents(t, &f.Index); !slices.Equal(got, old) && !slices.Equal(got, want) ||
				err == nil && !slices.Equal(got, want) {
				t.Fatalf("after %d writes (%v): %q, neither\n%q nor\n%q", n, err, got, old, want)
			}
			mustSync(t, f)
			if got := contents(t, &f.Index); !slices.Equal(got, want) {
				t.Fatalf("%d writes and again: %q, want %q", n, got, want)
			}
		}
	}
}

// TestTwoUpdaters of one tree at once: both end, and the index is the tree's.
func TestTwoUpdaters(t *testing.T) {
	f := folder(t, segmenttest.Open(t), 1, "code")
	for round := range 5 {
		for i := range 10 {
			write(t, f, fmt.Sprintf("f%d.go", (round+i)%12), "package a\n\n"+function(fmt.Sprintf("F%dx%d", round, i)))
		}
		var group sync.WaitGroup
		for range 3 {
			other := *f
			other.StateFile = filepath.Join(t.TempDir(), "state")
			group.Go(func() {
				if _, err := other.Sync(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got, want := contents(t, &f.Index), fresh(t, f); !slices.Equal(got, want) {
			t.Fatalf("got\n%q, made anew\n%q", got, want)
		}
	}
}

// TestSecondClone: a clone under the same key costs its difference only.
func TestSecondClone(t *testing.T) {
	store := segmenttest.Open(t)
	one, two, stranger := folder(t, store, 1, "one"), folder(t, store, 1, "two"), folder(t, store, 2, "one")
	for _, f := range []*update.Folder{one, two, stranger} {
		for i := range 20 {
			write(t, f, fmt.Sprintf("f%d.go", i), "package a\n\n"+function(fmt.Sprintf("F%d", i)))
		}
	}
	write(t, two, "f3.go", "package a\n\n"+function("Other"))
	whole := mustSync(t, one)
	clone := mustSync(t, two)
	if clone.Added != 1 || clone.Base != "" {
		t.Errorf("the clone: %+v", clone)
	}
	if got, want := contents(t, &two.Index), fresh(t, two); !slices.Equal(got, want) {
		t.Errorf("got\n%q, made anew\n%q", got, want)
	}
	if alien := mustSync(t, stranger); alien.Added != whole.Added || alien.Root == whole.Root ||
		alien.Space == whole.Space {
		t.Errorf("under another key: %+v", alien)
	}
}

// TestPartialWalk: what cannot be looked at stays indexed.
func TestPartialWalk(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything; .ci/run runs the tests as an ordinary user too")
	}
	f := folder(t, segmenttest.Open(t), 1, "code")
	write(t, f, "a.go", "package a\n\n"+function("First"))
	write(t, f, "lib/b.go", "package lib\n\n"+function("Second"))
	before := mustSync(t, f)
	lib := filepath.Join(f.Dir, "lib")
	if err := os.Chmod(lib, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(lib, 0o755)
	write(t, f, "a.go", "package a\n\n"+function("Third"))
	state, err := f.Sync(t.Context(), nil)
	var partial *merkle.PartialError
	if !errors.As(err, &partial) || state.Files != 2 || state.Generation != before.Generation+1 {
		t.Errorf("%+v, %v", state, err)
	}
}

func TestSecrets(t *testing.T) {
	f := folder(t, segmenttest.Open(t), 1, "code")
	token := "gh" + "p_9fK2mQ7xLc4VtB8nRz5WyH3jPd6GsA1eUo0X"
	write(t, f, "a.go", "package a\n\n"+function("First")+"// Token opens the door.\nconst Token = \""+token+
		"\"\n\n"+function("Second"))
	state := mustSync(t, f)
	base, err := f.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := base.Counts(); state.Secrets["github-pat"] != 1 || c.Chunks == 0 || c.Chunks != state.Chunks {
		t.Errorf("%+v, %+v", state, c)
	}
	write(t, f, "a.go", "package a\n\n"+function("First")+function("Second"))
	if state := mustSync(t, f); len(state.Secrets) != 0 {
		t.Errorf("without it: %+v", state)
	}
}

// damage overwrites what lies in a store under a kind of keys.
func damage(t *testing.T, f *update.Folder, kind string) {
	t.Helper()
	for info, err := range f.Store.List(t.Context(), "index/"+f.Keys.Space()+"/"+kind+"/") {
		if err == nil {
			err = f.Store.Delete(t.Context(), info.Key)
		}
		if err == nil {
			err = f.Store.Put(t.Context(), info.Key, []byte("damaged"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRenew: whatever is damaged, an index can be made anew, and comes
// after the one that was there.
func TestRenew(t *testing.T) {
	for _, kind := range []string{"repos", "roots", "segments"} {
		f := folder(t, segmenttest.Open(t), 1, "code")
		write(t, f, "a.go", "package a\n\n"+function("First")+function("Second"))
		old := mustSync(t, f)
		damage(t, f, kind)
		write(t, f, "a.go", "package a\n\n"+function("First")+function("Third"))
		state, err := f.Renew(t.Context(), nil)
		if err != nil || state.Added != old.Added || state.Reused != 0 || state.Generation <= old.Generation {
			t.Errorf("%s damaged: %+v, %v; before %+v", kind, state, err, old)
		}
		if got, want := contents(t, &f.Index), fresh(t, f); !slices.Equal(got, want) {
			t.Errorf("%s damaged: got\n%q, made anew\n%q", kind, got, want)
		}
	}
}

func TestForget(t *testing.T) {
	f := folder(t, segmenttest.Open(t), 1, "code")
	write(t, f, "a.go", "package a\n\n"+function("First"))
	old := mustSync(t, f)
	if err := f.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if base, err := f.Load(t.Context()); err != nil || base.Root() != "" {
		t.Errorf("forgotten: root %q, %v", base.Root(), err)
	}
	if state := mustSync(t, f); state.Root != old.Root || state.Generation <= old.Generation {
		t.Errorf("after that: %+v; before %+v", state, old)
	}
}

// TestUnchanged: where the folder is the tree that is indexed, nothing is read but the manifest.
func TestUnchanged(t *testing.T) {
	f := folder(t, segmenttest.Open(t), 1, "code")
	write(t, f, "a.go", "package a\n\n"+function("First"))
	old := mustSync(t, f)
	damage(t, f, "segments")
	if state := mustSync(t, f); state.Root != old.Root || state.Generation != old.Generation ||
		state.Chunks != old.Chunks {
		t.Errorf("unchanged: %+v; before %+v", state, old)
	}
	write(t, f, "a.go", "package a\n\n"+function("Second"))
	if _, err := f.Sync(t.Context(), nil); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("after a change what is damaged is read: %v", err)
	}
}
