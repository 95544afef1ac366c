package merkle

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"
)

// listOf gives a tree's files.
func listOf(root *Node) (list []File) {
	for path, n := range root.Files() {
		list = append(list, fileOf(path, n))
	}
	return list
}

// A tree that is built of the files of a walk is the walk's tree, whatever their order.
func TestBuild(t *testing.T) {
	tree := fstest.MapFS{}
	for _, name := range []string{"a", "a.go", "a-b/c", "a/b", "b/c/d/e.go", "b/c/d/f.go", "b/c.go", "z"} {
		if name != "a" {
			tree[name] = &fstest.MapFile{Data: []byte("package " + name)}
		}
	}
	walked, err := Snapshot(t.Context(), tree, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	list := listOf(&walked.Root)
	for range 5 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		built, err := Build(slices.Values(list))
		if err != nil || built.Digest != walked.Root.Digest || !slices.Equal(listOf(&built), listOf(&walked.Root)) {
			t.Fatalf("%v of %v, %v; want %v", built.Digest, listOf(&built), err, walked.Root.Digest)
		}
	}
	empty, err := Build(slices.Values([]File(nil)))
	if none, walkErr := Snapshot(t.Context(), fstest.MapFS{}, DefaultLimits()); err != nil || walkErr != nil ||
		empty.Digest != none.Root.Digest {
		t.Errorf("a tree of no files: %v, %v; want %v, %v", empty.Digest, err, none, walkErr)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, paths := range map[string][]string{
		"twice": {"a/b", "c", "a/b"}, "file and folder": {"a", "a/b"}, "empty name": {"a//b"}, "upwards": {"a/../b"},
		"no name": {""}, "absolute": {"/a"},
	} {
		t.Run(name, func(t *testing.T) {
			var list []File
			for _, p := range paths {
				list = append(list, File{Path: p})
			}
			if tree, err := Build(slices.Values(list)); err == nil {
				t.Errorf("%s: %v", name, listOf(&tree))
			}
		})
	}
}
