package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// openRoot is a fresh folder.
func openRoot(t testing.TB) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// contents describes all below a folder: mode and content, or the link's target.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch info.Mode().Type() {
		case 0:
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += " " + string(data)
		case fs.ModeSymlink:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text = "-> " + link
		}
		found[strings.TrimPrefix(name, dir+"/")] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func pack(t testing.TB, fsys fs.FS) []byte {
	t.Helper()
	data, err := Pack(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var sample = fstest.MapFS{
	"README":         {Data: []byte("read me"), Mode: 0o664},
	"bin/run":        {Data: []byte("run"), Mode: 0o775},
	"bin/script":     {Data: []byte("#!/bin/sh\n"), Mode: 0o444},
	"deep/er/est":    {Data: nil, Mode: 0o600},
	"deep/link":      {Data: []byte("../README"), Mode: fs.ModeSymlink | 0o777},
	"empty":          {Mode: fs.ModeDir | 0o755},
	"name with ünö":  {Data: []byte("u"), Mode: 0o644},
	"bytes\xff\xfe":  {Data: []byte("not UTF-8"), Mode: 0o644},
	"z" + long + "z": {Data: []byte("long"), Mode: 0o644},
}

var long = strings.Repeat("l", 200)

func withoutBadName() fstest.MapFS {
	files := maps.Clone(sample)
	delete(files, "bytes\xff\xfe") // fs.WalkDir, which Pack must use, takes valid names only
	return files
}

func TestPackAndUnpack(t *testing.T) {
	files := withoutBadName()
	root := openRoot(t)
	if err := Unpack(root, bytes.NewReader(pack(t, files))); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"README": "-rw-r--r-- read me", "bin": "drwxr-xr-x", "bin/run": "-rwxr-xr-x run",
		"bin/script": "-rwxr-xr-x #!/bin/sh\n", "deep": "drwxr-xr-x",
		"deep/er": "drwxr-xr-x", "deep/er/est": "-rw-r--r-- ", "deep/link": "-> ../README", "empty": "drwxr-xr-x",
		"name with ünö":  "-rw-r--r-- u",
		"z" + long + "z": "-rw-r--r-- long",
	}
	if got := contents(t, root.Name()); !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	// What was unpacked packs to the same bytes, from another file system and at another time.
	if again := pack(t, os.DirFS(root.Name())); !bytes.Equal(again, pack(t, files)) {
		t.Error("the same tree gave other bytes")
	}
}

func TestPackRefuses(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"device":        {"d": {Mode: fs.ModeDevice | 0o644}},
		"pipe":          {"d": {Mode: fs.ModeNamedPipe | 0o644}},
		"absolute link": {"d": {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}},
		"escaping link": {"a/d": {Data: []byte("../../x"), Mode: fs.ModeSymlink}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Pack(files); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		})
	}
}

// crafted is an archive of headers as nobody would write them.
func crafted(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	compressor, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(compressor)
	for _, header := range headers {
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, header.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), compressor.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileArchivesAreRefused(t *testing.T) {
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 1, Mode: 0o644}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	maxFiles, maxBytes = 1000, 16<<20
	t.Cleanup(func() { maxFiles, maxBytes = MaxFiles, MaxBytes })
	many := make([]tar.Header, maxFiles+1)
	for i := range many {
		many[i] = tar.Header{Name: "d", Typeflag: tar.TypeDir, Mode: 0o755}
	}
	tests := map[string]struct {
		data []byte
		want error
	}{
		"parent":         {crafted(t, file("../planted")), ErrInvalid},
		"parent inside":  {crafted(t, file("a/../../planted")), ErrInvalid},
		"absolute":       {crafted(t, file("/planted")), ErrInvalid},
		"root itself":    {crafted(t, link(".", "/")), ErrInvalid},
		"unclean":        {crafted(t, file("a//b")), ErrInvalid},
		"through a link": {crafted(t, link("out", "in"), file("out/planted")), ErrInvalid},
		"hard link": {crafted(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}),
			ErrInvalid},
		"device":           {crafted(t, tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8}), ErrInvalid},
		"character device": {crafted(t, tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1}), ErrInvalid},
		"pipe":             {crafted(t, tar.Header{Name: "p", Typeflag: tar.TypeFifo}), ErrInvalid},
		"overlong name":    {crafted(t, file(strings.Repeat("n/", 3000)+"n")), ErrInvalid},
		"overlong link":    {crafted(t, link("l", strings.Repeat("n", 5000))), ErrInvalid},
		"too many":         {crafted(t, many...), ErrTooLarge},
		"bomb": {crafted(t, tar.Header{Name: "b", Typeflag: tar.TypeReg, Size: maxBytes + 1, Mode: 0o644}),
			ErrTooLarge},
		"not an archive":    {[]byte("hello"), ErrInvalid},
		"not a tar archive": {compressed(t, []byte(strings.Repeat("hello", 1000))), ErrInvalid},
		"cut short":         {crafted(t, file("a"))[:20], ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for kind, apply := range map[string]func(*os.Root, io.Reader) error{"Unpack": Unpack, "Apply": Apply} {
				outside := t.TempDir()
				if err := os.Mkdir(outside+"/root", 0o755); err != nil {
					t.Fatal(err)
				}
				root, err := os.OpenRoot(outside + "/root")
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close()
				if err := apply(root, bytes.NewReader(test.data)); !errors.Is(err, test.want) {
					t.Errorf("%s: %v, want %v", kind, err, test.want)
				}
				if entries, _ := os.ReadDir(outside); len(entries) != 1 {
					t.Errorf("%s wrote outside: %v", kind, entries)
				}
			}
		})
	}
	for name, data := range map[string][]byte{
		"absolute link": crafted(t, link("l", "/etc")), "escaping link": crafted(t, link("a/l", "../../x")),
		"deletion": crafted(t, tar.Header{Name: "gone", Typeflag: tar.TypeReg,
			PAXRecords: map[string]string{deletedKey: "1"}}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := Unpack(openRoot(t), bytes.NewReader(data)); !errors.Is(err, ErrInvalid) {
				t.Errorf("Unpack of %s: %v, want ErrInvalid", name, err)
			}
			if err := Apply(openRoot(t), bytes.NewReader(data)); err != nil {
				t.Errorf("Apply of %s: %v", name, err)
			}
		})
	}
}

func compressed(t testing.TB, data []byte) []byte {
	t.Helper()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	return encoder.EncodeAll(data, nil)
}

// FuzzApply: whatever the bytes, nothing outside the root is written, nothing panics, and what was
// accepted is a tree that packs.
func FuzzApply(f *testing.F) {
	f.Add([]byte{})
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, header := range []tar.Header{
		{Name: "a", Typeflag: tar.TypeReg, Mode: 0o755}, {Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700},
		{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../a"},
		{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{deletedKey: "1"}},
	} {
		if err := w.WriteHeader(&header); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Fuzz(func(t *testing.T, tarBytes []byte) {
		outside := t.TempDir()
		if err := os.Mkdir(outside+"/root", 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(outside + "/root")
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		data := compressed(t, tarBytes) // so that the fuzzer meets the tar and not the checksum
		err = Apply(root, bytes.NewReader(data))
		if entries, _ := os.ReadDir(outside); len(entries) != 1 {
			t.Fatalf("wrote outside: %v", entries)
		}
		if err != nil {
			return
		}
		if _, err := Scan(root); err != nil {
			t.Errorf("what Apply wrote cannot be read: %v", err)
		}
	})
}

func TestNamesAreSorted(t *testing.T) {
	var names []string
	err := read(bytes.NewReader(pack(t, withoutBadName())), func(e entry, _ io.Reader) error {
		names = append(names, e.name)
		return nil
	})
	if err != nil || !slices.IsSorted(names) {
		t.Errorf("%v, %v", names, err)
	}
}
