package archive

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func imageTar(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, header := range entries {
		content := []byte(header.Uname) // stands for the content
		header.Uname = ""
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(content))
		}
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buffer
}

func TestUnpackImage(t *testing.T) {
	folder := t.TempDir()
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = UnpackImage(t.Context(), root, imageTar(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "usr/", Mode: 0o700},
		tar.Header{Typeflag: tar.TypeReg, Name: "usr/su", Mode: 0o4711, Uname: "su"},
		tar.Header{Typeflag: tar.TypeReg, Name: "usr/secret", Mode: 0o600, Uname: "secret"},
		tar.Header{Typeflag: tar.TypeLink, Name: "usr/again", Linkname: "usr/su"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "run.sock", Linkname: "/run/host"},
		tar.Header{Typeflag: tar.TypeChar, Name: "dev/mem", Devmajor: 1, Devminor: 1},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/hosts", Linkname: "/proc/mounts"},
	))
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{
		"usr": os.ModeDir | 0o755, "usr/su": 0o755, "usr/again": 0o755, "usr/secret": 0o644, "etc/hosts": 0o644,
		"var/tmp": os.ModeDir | 0o755,
	} {
		t.Run(name, func(t *testing.T) {
			if info, err := os.Lstat(filepath.Join(folder, name)); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v, %v, want mode %v", name, info, err, mode)
			}
		})
	}
	for _, name := range []string{"dev/mem", "pipe"} {
		if _, err := root.Lstat(name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
	if link, err := root.Readlink("run.sock"); err != nil || link != "/run/host" {
		t.Errorf("the link leads to %q, %v", link, err)
	}
}

// TestUnpackHostileImage: nothing is written outside of the folder, whatever a stream says.
func TestUnpackHostileImage(t *testing.T) {
	outside := t.TempDir()
	for name, try := range map[string]struct {
		entries []tar.Header
		refused bool
	}{
		"through a link": {[]tar.Header{link("out", outside), file("out/x", "x")}, false},
		"through links up": {[]tar.Header{link("up", "../../../.."), link("out", "up"+outside), file("out/x", "x")},
			false},
		"over a link": {[]tar.Header{link("x", outside+"/x"), file("x", "x")}, false},
		"hard link": {[]tar.Header{{Typeflag: tar.TypeLink, Name: "x", Linkname: "../../../../etc/passwd"}},
			true},
		"removal above":      {[]tar.Header{file("a/.wh...", "")}, true},
		"removal of its own": {[]tar.Header{file("a/.wh..", "")}, true},
		"deep folders":       {[]tar.Header{file(strings.Repeat("d/", 2000)+"x", "x")}, true},
		"deep by a link": {[]tar.Header{dir(strings.Repeat("d/", 200)), link("l", strings.Repeat("d/", 200)),
			file("l/"+strings.Repeat("e/", 200)+"x", "x")}, true},
		"a long name":     {[]tar.Header{file(strings.Repeat("d", 5000), "x")}, true},
		"a strange entry": {[]tar.Header{{Typeflag: 'Z', Name: "x"}}, true},
		"a ring of links": {[]tar.Header{link("a", "b"), link("b", "a"), file("a/x", "x")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := UnpackImage(t.Context(), root, imageTar(t, try.entries...)); (err != nil) != try.refused {
				t.Errorf("%s: %v, refused is to be %v", name, err, try.refused)
			}
		})
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := UnpackImage(t.Context(), root, imageTar(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "../../../x", Mode: 0o644, Uname: "x"})); err != nil {
		t.Error(err)
	}
	if _, err := root.Stat("x"); err != nil {
		t.Errorf("a name above the root is taken for one in it: %v", err)
	}
	if found, _ := os.ReadDir(outside); len(found) > 0 {
		t.Errorf("written outside: %v", found)
	}
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uname: content}
}
func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}
func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }

// TestLayersOfAnImage: the tree is what a container of the image has, whatever its layers put over
// and take away from each other.
func TestLayersOfAnImage(t *testing.T) {
	below := []tar.Header{dir("etc"), file("etc/a", "a"), file("etc/b", "b"), dir("etc/d"), file("etc/d/x", "x"),
		link("var/run", "/run"), link("lib", "usr/lib"), file("usr/lib/l", "l")}
	for name, try := range map[string]struct {
		above []tar.Header
		want  map[string]string // what the files of the case have
	}{
		"a file again": {[]tar.Header{file("etc/a", "new")},
			map[string]string{"etc/a": "new", "etc/b": "b", "etc/d/x": "x"}},
		"a file less": {[]tar.Header{file("etc/.wh.a", "")},
			map[string]string{"etc/b": "b", "etc/d/x": "x"}},
		"a folder less": {[]tar.Header{file("etc/.wh.d", "")},
			map[string]string{"etc/a": "a", "etc/b": "b"}},
		"a folder less, and again": {[]tar.Header{dir("etc/d"), file("etc/d/y", "y"), file("etc/.wh.d", "")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/y": "y"}},
		"a folder anew": {[]tar.Header{dir("etc"), file("etc/.wh..wh..opq", ""), file("etc/c", "c")},
			map[string]string{"etc/c": "c"}},
		"a folder anew, said at the end": {[]tar.Header{dir("etc"), dir("etc/d"), file("etc/d/y", "y"),
			file("etc/.wh..wh..opq", "")}, map[string]string{"etc/d/y": "y"}},
		"a file for a folder": {[]tar.Header{file("etc/d", "d")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d": "d"}},
		"a folder for a file": {[]tar.Header{dir("etc/a"), file("etc/a/y", "y")},
			map[string]string{"etc/a/y": "y", "etc/b": "b", "etc/d/x": "x"}},
		"a link for a folder": {[]tar.Header{link("etc/d", "../usr/lib"), file("etc/d/m", "m")},
			map[string]string{"etc/a": "a", "etc/b": "b", "usr/lib/m": "m"}},
		"a file for a link": {[]tar.Header{file("lib", "no link")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x", "lib": "no link"}},
		"a folder for a link": {[]tar.Header{dir("lib"), file("lib/m", "m")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x", "lib/m": "m"}},
		"below a link": {[]tar.Header{file("lib/m", "m")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x", "usr/lib/m": "m"}},
		"below a link from the root": {[]tar.Header{file("var/run/pid", "1")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x", "run/pid": "1"}},
		"a hard link to a layer below": {[]tar.Header{{Typeflag: tar.TypeLink, Name: "again", Linkname: "lib/l"}},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x", "again": "l"}},
		"a file again, and a link to it": {[]tar.Header{file("etc/a", "new"),
			{Typeflag: tar.TypeLink, Name: "again", Linkname: "etc/a"}},
			map[string]string{"etc/a": "new", "again": "new", "etc/b": "b", "etc/d/x": "x"}},
		"a folder anew, twice": {[]tar.Header{file("etc/.wh..wh..opq", ""), file("etc/c", "c"),
			file("etc/.wh..wh..opq", "")}, map[string]string{"etc/c": "c"}},
		"what an engine's store kept": {[]tar.Header{file(".wh..wh.plnk/1.2", "x"), file("etc/.wh..wh.aufs", "x")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x"}},
		"a link less, not what it led to": {[]tar.Header{file(".wh.lib", "")},
			map[string]string{"etc/a": "a", "etc/b": "b", "etc/d/x": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			tree := NewImageTree(root)
			for _, layer := range [][]tar.Header{below, try.above} {
				if err := tree.Unpack(t.Context(), imageTar(t, layer...)); err != nil {
					t.Fatal(err)
				}
			}
			found := map[string]string{}
			err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() || name == "usr/lib/l" {
					return err
				}
				text, err := root.ReadFile(name)
				found[name] = string(text)
				return err
			})
			if err != nil || !maps.Equal(found, try.want) {
				t.Errorf("%v, %v, want %v", found, err, try.want)
			}
		})
	}
}
