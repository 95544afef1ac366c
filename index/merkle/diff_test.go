package merkle

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// treeOf makes a tree of contents by path. A path that ends in "?" is an unknown file, one in "/?"
// a folder not wholly listed.
func treeOf(files map[string]string) *Node {
	root := &Node{Folder: true}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		at := root
		parts := strings.Split(path, "/")
		for i, name := range parts {
			if name == "?" {
				at.Unknown = true
				break
			}
			k := slices.IndexFunc(at.Children, func(n Node) bool { return n.Name == strings.TrimSuffix(name, "?") })
			if k < 0 {
				k = len(at.Children)
				at.Children = append(at.Children, Node{Name: strings.TrimSuffix(name, "?"), Folder: i < len(parts)-1})
			}
			at = &at.Children[k]
			if i == len(parts)-1 {
				if strings.HasSuffix(name, "?") {
					at.Unknown, at.Partial = true, true
				} else {
					at.Digest, at.Size = sha256.Sum256([]byte(files[path])), int64(len(files[path]))
				}
			}
		}
	}
	sealAll(root)
	return root
}

func sealAll(n *Node) {
	for i := range n.Children {
		if n.Children[i].Folder {
			sealAll(&n.Children[i])
		}
	}
	n.seal()
}

// show writes changes in a line.
func show(c Changes) string {
	var list []string
	for _, f := range c.Added {
		list = append(list, "+"+f.Path)
	}
	for _, f := range c.Modified {
		list = append(list, "~"+f.Path)
	}
	for _, f := range c.Removed {
		list = append(list, "-"+f.Path)
	}
	for _, r := range c.Renamed {
		list = append(list, r.From+">"+r.Path)
	}
	return strings.Join(list, " ")
}

func TestDiff(t *testing.T) {
	old := map[string]string{"a/x": "1", "a/y": "2", "b": "3", "c/d/e": "4"}
	with := func(change ...string) map[string]string {
		files := maps.Clone(old)
		for i := 0; i < len(change); i += 2 {
			if change[i+1] == "" {
				delete(files, change[i])
			} else {
				files[change[i]] = change[i+1]
			}
		}
		return files
	}
	for _, c := range []struct {
		why   string
		files map[string]string
		want  string
	}{
		{"nothing", old, ""},
		{"added", with("c/new", "9"), "+c/new"},
		{"modified", with("c/d/e", "9"), "~c/d/e"},
		{"removed", with("b", ""), "-b"},
		{"a whole folder removed", with("a/x", "", "a/y", ""), "-a/x -a/y"},
		{"renamed", with("b", "", "z/b2", "3"), "b>z/b2"},
		{"a folder renamed", with("a/x", "", "a/y", "", "n/x", "1", "n/y", "2"), "a/x>n/x a/y>n/y"},
		{"renamed and changed", with("b", "", "z", "5"), "+z -b"},
		{"copied", with("b2", "3"), "+b2"},
		{"a file became a folder", with("b", "", "b/in", "7"), "+b/in -b"},
		{"a folder became a file", with("c/d/e", "", "c", "7"), "+c -c/d/e"},
		{"a file moved into a folder of its name", with("b", "", "b/b", "3"), "b>b/b"},
		{"an unknown file", with("b", "", "b?", "x"), ""},
		{"an unknown file that was a folder", with("a/x", "", "a/y", "", "a?", "x"), ""},
		{"a folder not listed", with("a/x", "", "a/y", "", "a/?", "x"), ""},
		{"a folder listed in part", with("a/x", "", "a/?", "x", "a/z", "8"), "+a/z"},
		{"a changed file in a folder listed in part", with("a/x", "", "a/?", "x", "a/y", "8"), "~a/y"},
		{"unknown, and another removed", with("b?", "x", "b", "", "c/d/e", ""), "-c/d/e"},
		{"an unknown file that is new", with("new?", "x"), ""},
		{"the root not listed", map[string]string{"?": "x"}, ""},
		{"a file became a folder not listed", with("b", "", "b/?", "x"), ""},
	} {
		older, newer := treeOf(old), treeOf(c.files)
		if got := show(Diff(older, newer)); got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
		held := Carry(older, newer)
		if held.Partial || held.Digest != treeOfNode(&held).Digest {
			t.Errorf("%s: what an index then holds is not a whole tree", c.why)
		}
	}
	if got := show(Diff(nil, treeOf(old))); got != "+a/x +a/y +b +c/d/e" {
		t.Errorf("from nothing: %q", got)
	}
}

// treeOfNode builds a tree anew from the files of another.
func treeOfNode(n *Node) *Node {
	root := &Node{Folder: true}
	for path, f := range n.Files() {
		at := root
		parts := strings.Split(path, "/")
		for i, name := range parts {
			k := slices.IndexFunc(at.Children, func(c Node) bool { return c.Name == name })
			if k < 0 {
				k = len(at.Children)
				at.Children = append(at.Children, Node{Name: name, Folder: i < len(parts)-1})
			}
			at = &at.Children[k]
		}
		at.Digest, at.Size = f.Digest, f.Size
	}
	sealAll(root)
	return root
}

// TestRenamesPairUp gives many files the same content: each is paired once, those of one
// name first, in linear time.
func TestRenamesPairUp(t *testing.T) {
	before, after := map[string]string{}, map[string]string{}
	for i := range 20_000 {
		before[fmt.Sprintf("old/f%05d", i)] = "same"
		after[fmt.Sprintf("new/f%05d", i+1)] = "same"
	}
	before["old/empty"], after["new/empty"] = "", ""
	c := Diff(treeOfFlat(before), treeOfFlat(after))
	if len(c.Renamed) != 20_000 || len(c.Added) != 1 || len(c.Removed) != 1 {
		t.Fatalf("%d renamed, %d added, %d removed", len(c.Renamed), len(c.Added), len(c.Removed))
	}
	if r := c.Renamed[0]; r.From != "old/f00001" || r.Path != "new/f00001" {
		t.Errorf("%s became %s", r.From, r.Path)
	}
	if r := c.Renamed[len(c.Renamed)-1]; r.From != "old/f00000" {
		t.Errorf("%s became %s", r.From, r.Path)
	}
}

// treeOfFlat is treeOf for many files, two segments to a path.
func treeOfFlat(files map[string]string) *Node {
	folders := map[string]*Node{}
	for path, text := range files {
		folder, name, _ := strings.Cut(path, "/")
		if folders[folder] == nil {
			folders[folder] = &Node{Name: folder, Folder: true}
		}
		folders[folder].Children = append(folders[folder].Children,
			Node{Name: name, Digest: sha256.Sum256([]byte(text)), Size: int64(len(text))})
	}
	root := &Node{Folder: true}
	for _, f := range folders {
		f.seal()
		root.Children = append(root.Children, *f)
	}
	root.seal()
	return root
}

// TestDiffFollowsTheChange counts the nodes that a difference looks at in a tree of 20
// to the power of 3 files.
func TestDiffFollowsTheChange(t *testing.T) {
	files := map[string]string{}
	for i := range 8000 {
		files[fmt.Sprintf("%d/%d/%d", i/400, i/20%20, i%20)] = fmt.Sprint(i)
	}
	older := treeOf(files)
	if c := Diff(older, treeOf(files)); c.Visited != 1 {
		t.Errorf("%d nodes visited for no change", c.Visited)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, changes := range []int{1, 10, 100} {
		edited := maps.Clone(files)
		for range changes {
			i := r.IntN(8000)
			edited[fmt.Sprintf("%d/%d/%d", i/400, i/20%20, i%20)] = "edited"
		}
		c := Diff(older, treeOf(edited))
		if most := 1 + changes*3*20; c.Visited > most || len(c.Modified) < changes*9/10 {
			t.Errorf("%d nodes visited for %d changes (at most %d)", c.Visited, changes, most)
		}
	}
}
