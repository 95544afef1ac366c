package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"
)

// unpacked is the sample in a folder, and its base.
func unpacked(t testing.TB) (*os.Root, *Base) {
	t.Helper()
	root := openRoot(t)
	if err := Unpack(root, bytes.NewReader(pack(t, withoutBadName()))); err != nil {
		t.Fatal(err)
	}
	base, err := Scan(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, base
}

func diff(t testing.TB, root *os.Root, base *Base) []byte {
	t.Helper()
	blocks := Blocks{Limit: MaxChange}
	found, err := Diff(root, base, MaxBytes, &blocks)
	if err != nil {
		t.Fatal(err)
	}
	if !found.Differs {
		return nil
	}
	return bytes.Join(blocks.Pieces, nil)
}

// describe lists a change: "+name" or "-name".
func describe(t *testing.T, data []byte) string {
	t.Helper()
	var out []string
	if len(data) == 0 {
		return ""
	}
	err := read(bytes.NewReader(data), func(e entry, _ io.Reader) error {
		sign := "+"
		if e.deleted {
			sign = "-"
		}
		out = append(out, sign+e.name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

func TestDiff(t *testing.T) {
	tests := []struct {
		name   string
		change func(*os.Root) error
		want   string
	}{
		{"nothing", func(*os.Root) error { return nil }, ""},
		{"touched only", func(r *os.Root) error { return r.Chtimes("README", changeTime, changeTime) }, ""},
		{"written with the same bytes", func(r *os.Root) error { return r.WriteFile("README", []byte("read me"), 0) },
			""},
		{"replaced by the same bytes", func(r *os.Root) error {
			return errors.Join(r.Remove("README"), r.WriteFile("README", []byte("read me"), 0o644))
		}, ""},
		{"edited, same size", func(r *os.Root) error { return r.WriteFile("README", []byte("READ ME"), 0) }, "+README"},
		{"added", func(r *os.Root) error { return r.WriteFile("empty/new", []byte("x"), 0o644) }, "+empty/new"},
		{"added folder", func(r *os.Root) error { return r.MkdirAll("x/y", 0o755) }, "+x +x/y"},
		{"mode", func(r *os.Root) error { return r.Chmod("README", 0o600) }, "+README"},
		{"mode of folder", func(r *os.Root) error { return r.Chmod("empty", 0o700) }, "+empty"},
		{"deleted", func(r *os.Root) error { return r.Remove("README") }, "-README"},
		{"deleted folder", func(r *os.Root) error { return r.RemoveAll("deep") }, "-deep"},
		{"deleted part", func(r *os.Root) error { return r.RemoveAll("deep/er") }, "-deep/er"},
		{"renamed", func(r *os.Root) error { return r.Rename("bin", "sbin") }, "+sbin +sbin/run +sbin/script -bin"},
		{"link", func(r *os.Root) error { return r.Symlink("/usr/bin/python3", "python") }, "+python"},
		{"other link", func(r *os.Root) error {
			return errors.Join(r.Remove("deep/link"),
				r.Symlink("er", "deep/link"))
		}, "+deep/link"},
		{"file to folder", func(r *os.Root) error {
			return errors.Join(r.Remove("README"), r.Mkdir("README", 0o755), r.WriteFile("README/x", nil, 0o644))
		}, "+README +README/x"},
		{"folder to file", func(r *os.Root) error {
			return errors.Join(r.RemoveAll("bin"),
				r.WriteFile("bin", nil, 0o644))
		}, "+bin -bin/run -bin/script"},
		{"folder to link", func(r *os.Root) error { return errors.Join(r.RemoveAll("bin"), r.Symlink("deep", "bin")) },
			"+bin -bin/run -bin/script"},
		{"name that is not UTF-8", func(r *os.Root) error { return r.WriteFile("bytes\xff", []byte("x"), 0o644) },
			"+bytes\xff"},
		{"name like a deletion", func(r *os.Root) error { return r.WriteFile(".wh.README", nil, 0o644) },
			"+.wh.README"},
		{"pipe", func(r *os.Root) error { return syscall.Mkfifo(path.Join(r.Name(), "pipe"), 0o644) }, ""},
		{"file to pipe", func(r *os.Root) error {
			return errors.Join(r.Remove("README"), syscall.Mkfifo(path.Join(r.Name(), "README"), 0o644))
		}, "-README"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root, base := unpacked(t)
			if err := test.change(root); err != nil {
				t.Fatal(err)
			}
			data := diff(t, root, base)
			if got := describe(t, data); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if again := diff(t, root, base); !bytes.Equal(again, data) {
				t.Error("a second look gave other bytes")
			}
			other, otherBase := unpacked(t)
			if len(data) == 0 {
				return
			}
			if err := Apply(other, bytes.NewReader(data)); err != nil {
				t.Fatal(err)
			}
			if got, want := contents(t, other.Name()), withoutPipes(contents(t, root.Name())); !maps.Equal(got, want) {
				t.Errorf("applied: %q\nwant %q", got, want)
			}
			if again := diff(t, other, otherBase); !bytes.Equal(again, data) {
				t.Error("the applied change, taken again, has other bytes")
			}
		})
	}
}

func withoutPipes(found map[string]string) map[string]string {
	maps.DeleteFunc(found, func(_, text string) bool { return strings.HasPrefix(text, "p") })
	return found
}

// TestRandomChanges: for any two trees, base + change = tree.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		root, base := unpacked(t)
		for range 1 + random.IntN(25) {
			mutate(random, root)
		}
		data := diff(t, root, base)
		other, otherBase := unpacked(t)
		if len(data) > 0 {
			if err := Apply(other, bytes.NewReader(data)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if got, want := contents(t, other.Name()), contents(t, root.Name()); !maps.Equal(got, want) {
			t.Fatalf("seed %d: got %q\nwant %q", seed, got, want)
		}
		if again := diff(t, other, otherBase); !bytes.Equal(again, data) {
			t.Fatalf("seed %d: equal workspaces gave other bytes", seed)
		}
	}
}

// mutate does something to the tree; what cannot be done at a place is left.
func mutate(random *rand.Rand, root *os.Root) {
	names := []string{"README", "bin", "bin/run", "deep/er/est", "deep/er", "deep", "deep/link", "empty",
		"new", "new/a", "new/a/b"}
	name := names[random.IntN(len(names))]
	switch random.IntN(7) {
	case 0:
		_ = root.RemoveAll(name)
	case 1:
		_ = root.MkdirAll(name, 0o755)
	case 2:
		_ = root.Symlink(names[random.IntN(len(names))], name)
	case 3:
		_ = root.Rename(name, names[random.IntN(len(names))])
	case 4:
		if info, err := root.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink == 0 {
			_ = root.Chmod(name, []fs.FileMode{0o755, 0o700, 0o775}[random.IntN(3)])
		}
	default:
		_ = root.WriteFile(name, fmt.Appendf(nil, "content %d", random.IntN(3)), 0o644)
	}
}

func TestApplyIntoReadOnlyFolders(t *testing.T) {
	if os.Getuid() == 0 {
		t.Log("as root, mode bits stop nobody")
	}
	root, base := unpacked(t)
	if err := errors.Join(root.Mkdir("ro", 0o755), root.WriteFile("ro/a", []byte("a"), 0o400),
		root.Chmod("ro", 0o555)); err != nil {
		t.Fatal(err)
	}
	defer root.Chmod("ro", 0o755)
	other, _ := unpacked(t)
	if err := Apply(other, bytes.NewReader(diff(t, root, base))); err != nil {
		t.Fatal(err)
	}
	defer other.Chmod("ro", 0o755)
	if info, err := other.Lstat("ro"); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestTooLarge(t *testing.T) {
	root, base := unpacked(t)
	if err := root.WriteFile("sparse", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path.Join(root.Name(), "sparse"), MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Diff(root, base, MaxBytes, io.Discard); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a sparse file of %d bytes: %v, want ErrTooLarge", MaxBytes+1, err)
	}
}

// TestTreesThatCannotBeAppliedAreRefused: depth multiplies the time that each entry takes, names
// are held in memory, and holes and hard links show more than a disk can hold.
func TestTreesThatCannotBeAppliedAreRefused(t *testing.T) {
	root, base := unpacked(t)
	if err := root.MkdirAll(strings.Repeat("d/", maxDepth)+"d", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Diff(root, base, MaxBytes, io.Discard); err != nil {
		t.Errorf("%d levels: %v", maxDepth, err)
	}
	if err := root.WriteFile(strings.Repeat("d/", maxDepth)+"d/x", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Diff(root, base, MaxBytes, io.Discard); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one level more: %v, want ErrTooLarge", err)
	}
	if err := root.RemoveAll("d"); err != nil {
		t.Fatal(err)
	}
	if err := root.WriteFile("sparse", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path.Join(root.Name(), "sparse"), 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := Diff(root, base, 1<<19, io.Discard); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a hole of 1 MiB for a disk of 512 KiB: %v, want ErrTooLarge", err)
	}
	var b budget
	var err error
	for range maxNames/maxName + 1 {
		err = errors.Join(err, b.spend(strings.Repeat("n", maxName), 0))
	}
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("names of more than %d bytes: %v, want ErrTooLarge", maxNames, err)
	}
}

// TestDeepArchivesTakeNoTime: the way to an entry is looked at once,
// however many entries lie there.
func TestDeepArchivesTakeNoTime(t *testing.T) {
	var blocks Blocks
	blocks.Limit = MaxArchive
	out, err := newWriter(&blocks)
	if err != nil {
		t.Fatal(err)
	}
	folder := strings.Repeat("d/", maxDepth)
	for i := range 300 {
		if err := out.add(entry{name: fmt.Sprint(folder, i), mode: 0o644}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.finish(); err != nil {
		t.Fatal(err)
	}
	root := openRoot(t)
	if err := Apply(root, bytes.NewReader(bytes.Join(blocks.Pieces, nil))); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.ReadDir(root.FS(), strings.TrimSuffix(folder, "/")); err != nil || len(names) != 300 {
		t.Errorf("%d files, %v", len(names), err)
	}
}

func TestChangeIsBounded(t *testing.T) {
	root, base := unpacked(t)
	noise := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(noise)
	if err := root.WriteFile("noise", noise, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Diff(root, base, MaxBytes, &Blocks{Limit: 1 << 19}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("1 MiB of noise in 512 KiB: %v, want ErrTooLarge", err)
	}
}

func TestBlocks(t *testing.T) {
	all := make([]byte, 5*pieceSize/2)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(all)
	blocks := Blocks{Limit: len(all)}
	for rest := all; len(rest) > 0; {
		n := min(len(rest), 300_001)
		if _, err := blocks.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if !bytes.Equal(bytes.Join(blocks.Pieces, nil), all) {
		t.Error("other bytes came out")
	}
	if _, err := blocks.Write([]byte{1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one byte more: %v, want ErrTooLarge", err)
	}
}
