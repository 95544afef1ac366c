package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	file := func(name string, size int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o644}
	}
	folder := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	const most = 10
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"a tree": {pack(t, fstest.MapFS{"a/b": {Data: []byte("12345")}, "c": {Data: []byte("12345")}}),
			nil},
		"nothing":            {nil, nil},
		"no entry for above": {crafted(t, file("a/b/c", 1), file("a/b/d", 1), link("a/e", "b/c")), nil},
		"too much":           {crafted(t, file("a", 6), file("b", 5)), ErrTooLarge},
		"twice":              {crafted(t, file("a", 1), file("a", 1)), ErrInvalid},
		"below a file":       {crafted(t, file("a", 1), file("a/b", 1)), ErrInvalid},
		"below a link":       {crafted(t, folder("d"), link("a", "d"), file("a/b", 1)), ErrInvalid},
		"far below a file":   {crafted(t, file("a", 1), file("a/b/c", 1)), ErrInvalid},
		"file over a folder": {crafted(t, file("a/b", 1), file("a", 1)), ErrInvalid},
		"link over a folder": {crafted(t, file("a/b", 1), link("a", "c")), ErrInvalid},
		"link out":           {crafted(t, link("a", "../x")), ErrInvalid},
		"deletion": {crafted(t, tar.Header{Name: "x", Typeflag: tar.TypeReg,
			PAXRecords: map[string]string{deletedKey: "1"}}), ErrInvalid},
		"parent":              {crafted(t, file("../a", 1)), ErrInvalid},
		"not an archive":      {[]byte("hello"), ErrInvalid},
		"deep":                {crafted(t, file(strings.Repeat("d/", maxDepth+1)+"f", 1)), ErrTooLarge},
		"cut within contents": {compressed(t, []byte(strings.Repeat("a", 600))), ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(bytes.NewReader(test.data), most)
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if err != nil {
				return
			}
			if err := Unpack(openRoot(t), bytes.NewReader(test.data)); err != nil {
				t.Errorf("what was checked is not unpacked: %v", err)
			}
		})
	}
}

// FuzzCheck: what is checked is unpacked, whatever the bytes.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, tarBytes []byte) {
		data := compressed(t, tarBytes)
		if Check(bytes.NewReader(data), 1<<20) != nil {
			return
		}
		if err := Unpack(openRoot(t), bytes.NewReader(data)); err != nil {
			t.Errorf("what was checked is not unpacked: %v", err)
		}
	})
}
