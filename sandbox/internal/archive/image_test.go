package archive

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
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
	err = UnpackImage(root, imageTar(t,
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
		"usr": os.ModeDir | 0o755, "usr/su": 0o755, "usr/again": 0o755, "usr/secret": 0o644, "etc/hosts": 0o644, "var/tmp": os.ModeDir | 0o755,
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
	for name, entries := range map[string][]tar.Header{
		"through a link": {{Typeflag: tar.TypeSymlink, Name: "out", Linkname: outside}, {Typeflag: tar.TypeReg, Name: "out/x", Mode: 0o644, Uname: "x"}},
		"over a link":    {{Typeflag: tar.TypeSymlink, Name: "x", Linkname: outside + "/x"}, {Typeflag: tar.TypeReg, Name: "x", Mode: 0o644, Uname: "x"}},
		"hard link":      {{Typeflag: tar.TypeLink, Name: "x", Linkname: "../../../../etc/passwd"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := UnpackImage(root, imageTar(t, entries...)); err == nil {
				t.Errorf("%s: unpacked", name)
			}
		})
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := UnpackImage(root, imageTar(t, tar.Header{Typeflag: tar.TypeReg, Name: "../../../x", Mode: 0o644, Uname: "x"})); err != nil {
		t.Error(err)
	}
	if _, err := root.Stat("x"); err != nil {
		t.Errorf("a name above the root is taken for one in it: %v", err)
	}
	if found, _ := os.ReadDir(outside); len(found) > 0 {
		t.Errorf("written outside: %v", found)
	}
}
