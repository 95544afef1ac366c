package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

func regular(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 4, Mode: 0o644}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}
}

func deletion(name string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg,
		PAXRecords: map[string]string{deletedKey: "1"}, Format: tar.FormatPAX}
}

func TestSift(t *testing.T) {
	snapshot := pack(t, fstest.MapFS{
		"main.py": {Data: []byte("main")}, "tests/test_a.py": {Data: []byte("a")},
		"tests/deep/test_b.py": {Data: []byte("b")},
		"pkg/code.py":          {Data: []byte("code")}, "pkg/sub/more.py": {Data: []byte("more")},
		"pkg/sub/tests/test_c.py": {Data: []byte("c")},
		"inner":                   {Data: []byte("pkg/sub"), Mode: fs.ModeSymlink},
		"deep/a/b/c/file":         {Data: []byte("x")},
	})
	protected := func(name string) bool { return slices.Contains(strings.Split(name, "/"), "tests") }
	for name, c := range map[string]struct {
		change           []tar.Header
		left             string // of the change, sorted, with - for deletions
		protected, links string
	}{
		"nothing to take": {[]tar.Header{regular("main.py"), deletion("pkg/code.py"), symlink("l", "pkg/code.py")},
			"-pkg/code.py l main.py", "", ""},
		"an edited test": {[]tar.Header{regular("main.py"), regular("tests/test_a.py")},
			"main.py", "tests/test_a.py", ""},
		"a new test":    {[]tar.Header{regular("tests/conftest.py")}, "", "tests/conftest.py", ""},
		"deleted tests": {[]tar.Header{deletion("tests")}, "", "tests", ""},
		"tests that become a link": {[]tar.Header{{Name: "evil/", Typeflag: tar.TypeDir, Mode: 0o755},
			regular("evil/test_a.py"), symlink("tests", "evil")},
			"evil evil/test_a.py", "tests", ""},
		"a folder around tests is deleted": {[]tar.Header{deletion("pkg")},
			"-pkg/code.py -pkg/sub/more.py", "pkg", ""},
		"a folder around tests becomes a file": {[]tar.Header{regular("pkg/sub")}, "", "pkg/sub", ""},
		"a folder around tests has a new mode": {[]tar.Header{{Name: "pkg/sub/", Typeflag: tar.TypeDir, Mode: 0o700}},
			"pkg/sub", "", ""},
		"absolute": {[]tar.Header{symlink("main.py", "/tests/expected")}, "", "",
			"main.py"},
		"above": {[]tar.Header{symlink("pkg/l", "../../tests/expected")}, "", "",
			"pkg/l"},
		"inside by its text only": {[]tar.Header{symlink("deep/a/b/c/top", "../../../.."),
			symlink("l", "deep/a/b/c/top/../logs/verifier")},
			"deep/a/b/c/top", "", "l"},
		"over a link that is to go, too": {[]tar.Header{symlink("root", "/"),
			symlink("l", "root/tests/expected")}, "", "", "l root"},
		"absolute and inside": {[]tar.Header{symlink("l", "/app/pkg/code.py"), symlink("m", "/app")},
			"l m", "", ""},
		"absolute and out again":                {[]tar.Header{symlink("l", "/app/pkg/../../tests")}, "", "", "l"},
		"a name that only begins as the root's": {[]tar.Header{symlink("l", "/apples")}, "", "", "l"},
		"an interpreter": {[]tar.Header{symlink("venv/bin/python", "/usr/bin/python3"),
			symlink("venv/lib64", "lib")}, "venv/bin/python venv/lib64", "", ""},
		"up from the system": {[]tar.Header{symlink("usr", "/usr"),
			symlink("l", "usr/../tests/expected"), symlink("m", "/usr/../tests")}, "usr", "", "l m"},
		"a circle":   {[]tar.Header{symlink("a", "b"), symlink("b", "a")}, "a b", "", ""},
		"to nothing": {[]tar.Header{symlink("a", "nothing/here/../there")}, "a", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Filter(Bytes(snapshot), Bytes(crafted(t, c.change...)), "/app", protected)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			slices.Sort(found.Links)
			if got := named(t, found.Change); got != c.left || strings.Join(found.Protected, " ") != c.protected ||
				strings.Join(found.Links, " ") != c.links {
				t.Errorf("%s: left %q, protected %q, links %q", name, got, found.Protected, found.Links)
			}
		})
	}
}

// named lists the paths of a change, those that it deletes with a minus.
func named(t *testing.T, change Source) string {
	t.Helper()
	if change == nil {
		return ""
	}
	found, err := Contents(change)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, what := range found {
		if what == "deleted" {
			name = "-" + name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestSiftRefuses(t *testing.T) {
	none := func(string) bool { return false }
	snapshot := pack(t, fstest.MapFS{"a/b/file": {Data: []byte("x")}, "dir/sub/x": {Data: []byte("x")},
		"l": {Data: []byte("dir/sub/../../a"), Mode: fs.ModeSymlink}})
	// The snapshot's own link leads out once a folder on its way is another link.
	_, err := Filter(Bytes(snapshot), Bytes(crafted(t, symlink("dir/sub", "../a"))), "/app", none)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "l: the change makes this link") {
		t.Errorf("a link of the snapshot that is bent: %v", err)
	}
	if _, err := Filter(Bytes(snapshot), Bytes(crafted(t, symlink("dir", "a/b"))), "/app", none); err != nil {
		t.Errorf("a link of the snapshot that leads to nothing: %v", err)
	}
	var many []tar.Header
	for i := range 2000 {
		many = append(many, symlink(fmt.Sprintf("l%d", i), strings.Repeat("x/../", 800)+fmt.Sprintf("l%d", i+1)))
	}
	if _, err := Filter(Bytes(snapshot), Bytes(crafted(t, many...)), "/app", none); !errors.Is(err, ErrTooLarge) {
		t.Errorf("links that take long to follow: %v", err)
	}
	for name, data := range map[string][]byte{"change": []byte("no archive"), "snapshot": crafted(t, regular("a"))} {
		base := snapshot
		if name == "snapshot" {
			base = []byte("no archive")
		}
		if _, err := Filter(Bytes(base), Bytes(data), "/app", none); !errors.Is(err, ErrInvalid) {
			t.Errorf("damaged %s: %v", name, err)
		}
	}
}

// TestLinksLikeTheKernel follows random links beside os.Root, which asks the kernel.
func TestLinksLikeTheKernel(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	escaped := 0
	for range 40 {
		root := openRoot(t)
		base := pack(t, fstest.MapFS{"a/b/f": {Data: []byte("x")}, "c/f": {Data: []byte("x")}})
		if err := Unpack(root, bytes.NewReader(base)); err != nil {
			t.Fatal(err)
		}
		links := map[string]string{}
		for i := range 24 {
			name := path.Join([]string{".", "a", "a/b", "c"}[random.IntN(4)], fmt.Sprintf("l%d", i))
			var target []string
			for range 1 + random.IntN(5) {
				target = append(target, []string{"..", "..", "a", "b", "c", "f", ".", "l0", "l1", "l2", "l3", "a/l4",
					"b/l5"}[random.IntN(13)])
			}
			links[name] = strings.Join(target, "/")
			if err := root.Symlink(links[name], name); err != nil {
				t.Fatal(err)
			}
		}
		var headers []tar.Header
		for _, name := range slices.Sorted(maps.Keys(links)) {
			headers = append(headers, symlink(name, links[name]))
		}
		found, err := Filter(Bytes(base), Bytes(crafted(t, headers...)), "/app", func(string) bool { return false })
		if err != nil {
			t.Fatal(err)
		}
		for name := range links {
			_, err := root.Stat(name)
			want := err != nil && strings.Contains(err.Error(), "escapes")
			// Behind a folder that is not there the kernel looks no further, and a
			// later change may make it.
			if got := slices.Contains(found.Links, name); got != want && !(got && errors.Is(err, os.ErrNotExist)) &&
				!errors.Is(err, syscall.ENOTDIR) {
				t.Errorf("%q: %s escapes: %v, the kernel: %v", links, name, got, err)
			}
			if want {
				escaped++
			}
		}
	}
	if escaped < 40 {
		t.Errorf("only %d links led out", escaped)
	}
}
