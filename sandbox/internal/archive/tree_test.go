package archive

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestTree: the tree in memory is the one that Unpack and Apply write.
func TestTree(t *testing.T) {
	snapshot, err := Pack(fstest.MapFS{
		"a": {Data: []byte("one")}, "b/c": {Data: []byte("two")}, "b/d": {Data: []byte("three")},
		"e": {Data: []byte("four")}, "l": {Data: []byte("a"), Mode: fs.ModeSymlink},
		"large": {Data: make([]byte, 100)}, "empty": {Mode: fs.ModeDir},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := Unpack(root, bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	check := func(changes ...Source) {
		t.Helper()
		tree, err := Tree(50, Bytes(snapshot), changes...)
		if err != nil {
			t.Fatal(err)
		}
		got, want := texts(t, tree), texts(t, os.DirFS(dir))
		delete(want, "large")
		if !maps.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check()
	base, err := Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func() error{
		func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("changed"), 0o644) },
		func() error { return os.RemoveAll(filepath.Join(dir, "b")) },
		func() error { return os.WriteFile(filepath.Join(dir, "b"), []byte("a file now"), 0o644) },
		func() error { return os.Remove(filepath.Join(dir, "e")) },
		func() error { return os.Mkdir(filepath.Join(dir, "e"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "e/f"), []byte("below a folder"), 0o644) },
		func() error { return os.Remove(filepath.Join(dir, "l")) },
		func() error { return os.WriteFile(filepath.Join(dir, "large"), make([]byte, 200), 0o644) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		check(Bytes(diff(t, root, base)))
	}
	maxTree = 10
	t.Cleanup(func() { maxTree = 512 << 20 })
	if _, err := Tree(50, Bytes(snapshot)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than is held in memory: %v, want ErrTooLarge", err)
	}
	if tree, err := Tree(50, Bytes(snapshot), Bytes([]byte("no archive"))); err == nil {
		t.Errorf("damage gives %v", texts(t, tree))
	}
}

// texts are the files of a tree with their contents, and links with their targets.
func texts(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			found[name], err = fs.ReadLink(tree, name)
			return err
		}
		data, err := fs.ReadFile(tree, name)
		found[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
