package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tgz is a compressed tar of entries.
func tgz(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		err := out.WriteHeader(&e)
		if err == nil && e.Size > 0 {
			_, err = io.CopyN(out, zeros{}, e.Size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestUnpackPackage: files of a package come out of its one folder, and nothing else does; what
// leads elsewhere or takes too much room is refused.
func TestUnpackPackage(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Name: name, Mode: 0o644, Size: 3} }
	many := func(name string) (all []tar.Header) {
		for n := range 300 {
			all = append(all, file(fmt.Sprintf(name, n)))
		}
		return all
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
		err     error
	}{
		"files": {[]tar.Header{file("package/a.js"), file("package/lib/b.js"),
			{Name: "package/bin/c", Mode: 0o700, Size: 1}}, "a.js lib/b.js bin/c*", nil},
		"another folder": {[]tar.Header{file("./acme-1.0/a.js"), file("acme-1.0//lib/./b.js")}, "a.js lib/b.js",
			nil},
		"beside the folder": {[]tar.Header{file("a.js"), {Name: "package/", Typeflag: tar.TypeDir, Mode: 0o755}}, "",
			nil},
		"links and devices": {[]tar.Header{{Name: "package/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
			{Name: "package/h", Typeflag: tar.TypeLink, Linkname: "../../x"},
			{Name: "package/d", Typeflag: tar.TypeChar}, {Name: "package/p", Typeflag: tar.TypeFifo},
			file("package/l/a")}, "l/a", nil},
		"set-user-ID":      {[]tar.Header{{Name: "package/s", Mode: 0o6755, Size: 1}}, "s*", nil},
		"twice":            {[]tar.Header{file("package/a"), {Name: "package/a", Mode: 0o644, Size: 5}}, "a", nil},
		"up":               {[]tar.Header{file("package/../../x")}, "", ErrInvalid},
		"up, first":        {[]tar.Header{file("../x/y")}, "", ErrInvalid},
		"up within":        {[]tar.Header{file("package/a/../b")}, "", ErrInvalid},
		"a backslash":      {[]tar.Header{file(`package/..\x`)}, "", ErrInvalid},
		"below a file":     {[]tar.Header{file("package/a"), file("package/a/b")}, "a", ErrInvalid},
		"a file on top":    {[]tar.Header{file("package/a/b"), file("package/a")}, "a/b", ErrInvalid},
		"a long name":      {[]tar.Header{file("package/" + strings.Repeat("x", 300))}, "", ErrInvalid},
		"deep":             {[]tar.Header{file("package/" + strings.Repeat("d/", 200) + "x")}, "", ErrTooLarge},
		"many files":       {many("package/%d"), "?", ErrTooLarge},
		"many folders":     {many("package/%d/x"), "?", ErrTooLarge},
		"many of no files": {many("%d"), "", ErrTooLarge},
		"large no file":    {[]tar.Header{{Name: "package/c", Typeflag: tar.TypeCont, Size: 1 << 20}}, "", ErrTooLarge},
		"large":            {[]tar.Header{{Name: "package/a", Size: 1 << 20}}, "", ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			root, err := os.OpenRoot(top)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			err = UnpackPackage(root, bytes.NewReader(tgz(t, c.entries...)), &Room{Left: 1 << 20})
			if !errors.Is(err, c.err) {
				t.Errorf("%v, want %v", err, c.err)
			}
			found := map[string]bool{}
			_ = fs.WalkDir(os.DirFS(top), ".", func(name string, entry fs.DirEntry, err error) error {
				info, infoErr := entry.Info()
				if err != nil || infoErr != nil || entry.IsDir() {
					return err
				}
				if info.Mode() == 0o755 {
					name += "*"
				}
				if !info.Mode().IsRegular() || info.Mode()&^0o777 != 0 {
					t.Errorf("%s: %v", name, info.Mode())
				}
				found[name] = true
				return nil
			})
			for _, name := range strings.Fields(c.want) {
				if name != "?" && !found[name] {
					t.Errorf("%s is not there: %v", name, found)
				}
			}
			if c.want != "?" && len(found) != len(strings.Fields(c.want)) {
				t.Errorf("%v, want %s", found, c.want)
			}
		})
	}
	whole := tgz(t, file("package/a.js"))
	for name, data := range map[string][]byte{"no gzip": []byte("x"), "cut short": whole[:len(whole)/2],
		"no tar": func() []byte {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1024))
			_ = w.Close()
			return b.Bytes()
		}()} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := UnpackPackage(root, bytes.NewReader(data), &Room{Left: 1 << 20}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(root.Name(), "*")); name == "no tar" && len(left) > 0 {
			t.Errorf("left %q", left)
		}
		root.Close()
	}
}
