package agents

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/parts"
)

func openStore(t *testing.T) storage.Store {
	t.Helper()
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func openCache(t *testing.T, folder string, most int64) *Cache {
	t.Helper()
	cache, err := OpenCache(folder, most)
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// entry is one of a tar.
type entry struct {
	name, link, content string
	kind                byte
}

func tarOf(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o755,
			Size: int64(len(e.content)), Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stored puts a layer with a tar into a store.
func stored(t *testing.T, store storage.Store, name string, tree []byte, files int, size int64) (digest string) {
	t.Helper()
	w := parts.NewWriter(t.Context(), store, nil)
	if _, err := w.Write(tree); err != nil {
		t.Fatal(err)
	}
	ref, _, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return named(t, store, name, ref, files, size)
}

func named(t *testing.T, store storage.Store, name string, ref storage.Ref, files int, size int64) (digest string) {
	t.Helper()
	p := Profile{Name: name, Install: Install{Files: "agent", Version: "1"},
		Command: []string{Folder + "/bin/agent", Instruction}}
	digest, err := put(t.Context(), store, Layer{Version: manifestVersion, Profile: p,
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Files: files, Bytes: size, Tree: ref})
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// agentOf is a small layer whose program prints its name.
func agentOf(t *testing.T, store storage.Store, name string) (digest string) {
	t.Helper()
	program := "#!/bin/sh\necho " + name + "\n"
	return stored(t, store, name, tarOf(t, entry{name: "bin/agent", content: program, kind: tar.TypeReg},
		entry{name: "bin/again", link: "agent", kind: tar.TypeSymlink}), 1, int64(len(program)))
}

func TestLayersOpen(t *testing.T) {
	store, folder := openStore(t), t.TempDir()
	digest := agentOf(t, store, "one")
	for range 2 {
		opened, err := openCache(t, folder, 1<<20).Open(t.Context(), store, digest)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(opened.Path, "bin", "again"))
		if err != nil || string(text) != "#!/bin/sh\necho one\n" || opened.Mount().Target != Folder {
			t.Errorf("%q, %v", text, err)
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
		// The next process finds a layer that is not what it was, and makes it anew.
		if err := os.WriteFile(filepath.Join(opened.Path, "bin", "agent"), []byte("#!/bin/sh\necho two\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openCache(t, folder, 1<<20).Open(t.Context(), store, strings.Repeat("0", 64)); !errors.Is(err,
		ErrNoLayer) {
		t.Errorf("a layer that nobody built: %v", err)
	}
	if _, err := openCache(t, folder, 1<<20).Open(t.Context(), store, "../"+digest[3:]); err == nil {
		t.Error("a path is taken for a digest")
	}
}

// TestManifestsAreWhatTheirDigestSays: who can write to the store cannot give an agent another
// command.
func TestManifestsAreWhatTheirDigestSays(t *testing.T) {
	store := openStore(t)
	digest := agentOf(t, store, "one")
	layer, err := Load(t.Context(), store, digest)
	if err != nil {
		t.Fatal(err)
	}
	layer.Profile.Command[0] = Folder + "/bin/other"
	text, err := json.Marshal(layer)
	if err == nil {
		err = store.Put(t.Context(), manifestKey(digest), text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), store, digest); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%v, want ErrCorrupt", err)
	}
}

// TestALayerOfAnotherPlatform is refused before anything of it is fetched.
func TestALayerOfAnotherPlatform(t *testing.T) {
	store, folder := openStore(t), t.TempDir()
	layer, err := Load(t.Context(), store, agentOf(t, store, "one"))
	if err != nil {
		t.Fatal(err)
	}
	layer.Platform = "plan9/mips"
	digest, err := put(t.Context(), store, layer)
	if err != nil {
		t.Fatal(err)
	}
	want := "built for plan9/mips, and this machine is " + runtime.GOOS + "/" + runtime.GOARCH
	_, err = openCache(t, folder, 1<<20).Open(t.Context(), store, digest)
	if !errors.Is(err, ErrPlatform) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want ErrPlatform and %q", err, want)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestADamagedManifest is no obstacle to other layers, and to its own removal. The garbage
// collector goes on when it is removed.
func TestADamagedManifest(t *testing.T) {
	newer, err := json.Marshal(Layer{Version: manifestVersion + 1, Profile: Profile{Name: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"cut off": []byte(`{"version":1,`), "empty": {}, "newer": newer} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t)
			good, bad := agentOf(t, store, "one"), agentOf(t, store, "two")
			if name == "newer" { // it is what its digest says
				if err := Remove(t.Context(), store, bad); err != nil {
					t.Fatal(err)
				}
				bad = storage.Digest(text)
			}
			if err := store.Put(t.Context(), manifestKey(bad), text); err != nil {
				t.Fatal(err)
			}
			all, err := List(t.Context(), store)
			if err != nil || len(all) != 2 || all[0].Digest != good || all[0].Damaged != "" || all[1].Digest != bad ||
				!strings.Contains(all[1].Damaged, bad) {
				t.Fatalf("%+v, %v", all, err)
			}
			for _, named := range []string{"one", good, good[:12]} {
				if found, err := Find(t.Context(), store, named); err != nil || found.Digest != good {
					t.Errorf("%s is %s, %v", named, found.Digest, err)
				}
			}
			for _, named := range []string{bad, bad[:12]} {
				if _, err := Find(t.Context(), store, named); !errors.Is(err, storage.ErrCorrupt) {
					t.Errorf("%s: %v, want ErrCorrupt", named, err)
				}
			}
			reach := func(string) error { return nil }
			err = Reach(t.Context(), store, reach)
			if err == nil || !strings.Contains(err.Error(), "`rondo agents remove "+bad+"` removes it") {
				t.Errorf("reach: %v", err)
			}
			if err := Remove(t.Context(), store, bad); err != nil {
				t.Fatal(err)
			}
			if err := Reach(t.Context(), store, reach); err != nil {
				t.Errorf("reach without it: %v", err)
			}
		})
	}
}

// TestKilledWhileALayerIsRemoved: a process that has looked through a layer does not take what
// another left of it for the whole.
func TestKilledWhileALayerIsRemoved(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, other *Cache, store storage.Store, digest string){
		"thrown away": func(t *testing.T, other *Cache, store storage.Store, digest string) {
			if other.throwAway(digest, other.clear) {
				t.Error("it was not killed")
			}
		},
		"unpacked again": func(t *testing.T, other *Cache, store storage.Store, digest string) {
			added := filepath.Join(other.path(digest, ""), treeName, "added")
			if err := os.WriteFile(added, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if opened, err := other.Open(t.Context(), store, digest); err == nil {
				t.Error("it was not killed", opened.Close())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, folder := openStore(t), t.TempDir()
			digest := agentOf(t, store, "one")
			mine, other := openCache(t, folder, 1<<20), openCache(t, folder, 1<<20)
			if err := see(t.Context(), mine, store, digest, "echo one"); err != nil {
				t.Fatal(err)
			}
			other.removeAll = func(path string) error {
				err := os.Remove(filepath.Join(path, treeName, "bin", "agent"))
				if errors.Is(err, os.ErrNotExist) {
					return os.RemoveAll(path)
				}
				return errors.Join(errors.New("killed"), err)
			}
			begin(t, other, store, digest)
			if err := see(t.Context(), mine, store, digest, "echo one"); err != nil {
				t.Errorf("what was left is taken for whole: %v", err)
			}
		})
	}
}

// TestHostileLayers: a tar from outside writes nothing beside its folder, and no more than its
// manifest says.
func TestHostileLayers(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	file := entry{name: "bin/agent", content: "x", kind: tar.TypeReg}
	for name, tree := range map[string][]byte{
		"a path upwards":   tarOf(t, entry{name: "../outside", content: "x", kind: tar.TypeReg}),
		"an absolute path": tarOf(t, entry{name: outside, content: "x", kind: tar.TypeReg}),
		"a link upwards":   tarOf(t, file, entry{name: "l", link: "../../outside", kind: tar.TypeSymlink}),
		"an absolute link": tarOf(t, file, entry{name: "l", link: "/etc/passwd", kind: tar.TypeSymlink}),
		"a file below a link": tarOf(t, entry{name: "l", link: "bin", kind: tar.TypeSymlink}, entry{name: "l/x",
			content: "x", kind: tar.TypeReg}),
		"a hard link":           tarOf(t, file, entry{name: "l", link: "bin/agent", kind: tar.TypeLink}),
		"a device":              tarOf(t, entry{name: "null", kind: tar.TypeChar}),
		"a pipe":                tarOf(t, entry{name: "pipe", kind: tar.TypeFifo}),
		"the same path twice":   tarOf(t, file, entry{name: "bin/agent", kind: tar.TypeReg}),
		"more than it says":     tarOf(t, entry{name: "bin/agent", content: "xx", kind: tar.TypeReg}),
		"another file":          tarOf(t, file, entry{name: "bin/other", kind: tar.TypeReg}),
		"no tar":                []byte(strings.Repeat("agent", 1000)),
		"a tar that is cut off": tarOf(t, entry{name: "bin/agent", content: "x", kind: tar.TypeReg})[:512],
	} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t)
			want := errTree
			if name == "another file" {
				want = storage.ErrCorrupt // its manifest does not count it
			}
			refused(t, store, stored(t, store, "hostile", tree, 1, 1), want, outside)
		})
	}
	zeros, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t)
	bomb := tarOf(t, entry{name: "bin/agent", content: strings.Repeat("\x00", 64<<20), kind: tar.TypeReg})
	ref, err := storage.PutBlob(t.Context(), store, zeros.EncodeAll(bomb, nil))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, store, named(t, store, "bomb", ref, 1, 1), errTree, outside)
}

func refused(t *testing.T, store storage.Store, digest string, want error, outside string) {
	t.Helper()
	folder := t.TempDir()
	if opened, err := openCache(t, folder, 1<<20).Open(t.Context(), store, digest); err == nil {
		t.Fatalf("it is opened at %s", opened.Path)
	} else if !errors.Is(err, want) {
		t.Errorf("refused for %v, want %v", err, want)
	}
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(left) != 1 || !strings.HasSuffix(left[0], lockSuffix) {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("it wrote outside of its folder")
	}
}

// TestCacheIsBounded: what was not used for the longest time goes, what is in use stays, and so
// does nothing of a process that was killed.
func TestCacheIsBounded(t *testing.T) {
	store, folder := openStore(t), t.TempDir()
	var digests []string
	for _, name := range []string{"a", "b", "c", "d"} {
		content := strings.Repeat(name, 100)
		digests = append(digests, stored(t, store, name, tarOf(t, entry{name: "agent", content: content,
			kind: tar.TypeReg}), 1, 100))
	}
	killed := strings.Repeat("f", 64)
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, killed+halfSuffix), 0o755),
		os.WriteFile(filepath.Join(folder, killed+lockSuffix), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	cache := openCache(t, folder, 250)
	used, err := cache.Open(t.Context(), store, digests[0])
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for _, digest := range digests[1:] {
		opened, err := cache.Open(t.Context(), store, digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{digests[0]: true, digests[1]: false, digests[2]: false,
		digests[3]: true, killed + halfSuffix: false} {
		if _, err := os.Stat(filepath.Join(folder, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
}

// TestManyOpenAtOnce: processes that share a folder too small for all layers see each one whole.
func TestManyOpenAtOnce(t *testing.T) {
	store, folder := openStore(t), t.TempDir()
	digests := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		digests[name] = agentOf(t, store, name)
	}
	var all sync.WaitGroup
	for range 4 {
		cache := openCache(t, folder, 30) // a cache of its own, as another process has
		for name, digest := range digests {
			all.Go(func() {
				for range 10 {
					if err := see(t.Context(), cache, store, digest, "echo "+name); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			})
		}
	}
	all.Wait()
}

func see(ctx context.Context, cache *Cache, store storage.Store, digest, want string) error {
	opened, err := cache.Open(ctx, store, digest)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(opened.Path, "bin", "agent"))
	if err == nil && !strings.Contains(string(text), want) {
		err = errors.New("it is another layer")
	}
	return errors.Join(err, opened.Close())
}
