package archive

import (
	"archive/tar"
	"maps"
	"strings"
	"testing"
)

func TestContents(t *testing.T) {
	root, base := unpacked(t)
	for _, err := range []error{
		root.WriteFile("README", []byte("read more"), 0o664), root.Chmod("bin/run", 0o600), root.Remove("empty"),
		root.Symlink("../README", "bin/link"), root.Mkdir("new", 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first := diff(t, root, base)
	got, err := Contents(Bytes(first))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"README": " 9 bytes sha256 ", "bin/run": "-rw------- 3 bytes sha256 ", "bin/link": "link to ../README",
		"empty": "deleted", "new": "drwx------",
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(got[name], want) {
				t.Errorf("%s is %q, want %q", name, got[name], want)
			}
		})
	}
	if len(got) != 5 {
		t.Errorf("%q", got)
	}
	// The same size with other bytes is not the same.
	if err := root.WriteFile("README", []byte("read mode"), 0o664); err != nil {
		t.Fatal(err)
	}
	second, err := Contents(Bytes(diff(t, root, base)))
	if err != nil || maps.Equal(got, second) || len(second) != len(got) {
		t.Errorf("%q, %v", second, err)
	}
}

func TestContentsRefuses(t *testing.T) {
	if got, err := Contents(nil); err != nil || len(got) > 0 {
		t.Errorf("nothing holds %q: %v", got, err)
	}
	whole := crafted(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 16, Mode: 0o644})
	for name, data := range map[string][]byte{
		"not an archive": []byte("hello"), "cut short": whole[:len(whole)-8],
		"parent": crafted(t, tar.Header{Name: "../b", Typeflag: tar.TypeReg, Size: 1, Mode: 0o644}),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Contents(Bytes(data)); err == nil {
				t.Errorf("%s: %q", name, got)
			}
		})
	}
}
