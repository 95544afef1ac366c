package forgetful

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/tests/program"
)

// TestCut: of what programs write a cut keeps what they synced, and only parts of the rest.
func TestCut(t *testing.T) {
	at := t.TempDir()
	d := NewDisk()
	unmount, err := Mount(d, at)
	if err != nil {
		program.Missing(t, "%v", err)
	}
	t.Cleanup(func() { _ = unmount() })
	in := func(name string) string { return filepath.Join(at, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	synced := func(name string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(in(name), os.O_CREATE|os.O_RDWR|flags, 0o600)
		must(err)
		_, err = f.WriteString("synced")
		must(err)
		return f
	}
	f := synced("file", 0)
	must(f.Sync())
	_, err = f.WriteString(", and more")
	must(err)
	must(f.Close())
	must(synced("each", os.O_SYNC).Close())
	must(synced("never", 0).Close())
	must(os.Mkdir(in("lost"), 0o755)) // a synced file in a folder that was not
	f = synced("lost/file", 0)
	must(f.Sync())
	must(f.Close())
	must(os.Mkdir(in("kept"), 0o755))
	syncFolder(t, at)
	f = synced("kept/new", 0)
	must(f.Sync())
	must(f.Close())
	must(os.Rename(in("kept/new"), in("kept/renamed"))) // and not synced after that
	must(os.Remove(in("each")))

	want := func(d *Disk, name, content string) {
		t.Helper()
		if got, ok := d.ReadFile(name); !ok || string(got) != content {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, content)
		}
	}
	want(d, "kept/renamed", "synced")
	want(d, "file", "synced, and more")
	left := d.Cut(nil)
	want(left, "file", "synced")
	want(left, "each", "synced")
	want(left, "never", "") // its name was synced with the folder, its content was not
	want(left, "lost/file", "synced")
	want(left, "kept/new", "synced")
	if files := left.Files("*/renamed"); len(files) > 0 {
		t.Errorf("an unsynced rename is kept: %v", files)
	}
	// a folder whose own name was never synced
	for name, d := range map[string]*Disk{"forgotten": NewDisk(), "kept": NewJournal()} {
		outer, inner := d.make(true, 0o755), d.make(true, 0o755)
		d.root.set("outer", outer)
		outer.set("inner", inner)
		file := d.make(false, 0o600)
		inner.set("file", file)
		file.sync()
		outer.set("moved", inner)
		outer.set("inner", nil)
		want := 0
		if d.journal {
			want = 1
		}
		if files := d.Cut(nil).Cut(nil).Files("outer/inner/file"); len(files) != want {
			t.Errorf("the name of an unsynced folder is to be %s: %v", name, files)
		}
	}
}

// TestChance: a cut by chance keeps what was synced, and now and then all,
// nothing, or a part of the rest.
func TestChance(t *testing.T) {
	d := NewDisk()
	f := d.make(false, 0o600)
	d.root.set("f", f)
	f.write(bytes.Repeat([]byte{1}, pageSize), 0)
	f.sync()
	f.write(bytes.Repeat([]byte{2}, 2*pageSize), pageSize)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		left := d.Cut(rand.New(rand.NewPCG(seed, 0)))
		data, ok := left.ReadFile("f")
		if !ok || !bytes.Equal(data[:pageSize], bytes.Repeat([]byte{1}, pageSize)) {
			t.Fatal("what was synced is gone")
		}
		switch rest := data[pageSize:]; {
		case len(rest) == 0:
			seen["nothing"] = true
		case bytes.Count(rest, []byte{2}) == len(rest):
			seen["all"] = true
		case bytes.Count(rest, []byte{0}) == len(rest):
			seen["length"] = true
		default:
			seen["part"] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("200 cuts left only %v", seen)
	}
}

// TestMoods: a disk that is read-only refuses writes to files that are open, too, and takes them
// again. A slow one takes its time for each sync.
func TestMoods(t *testing.T) {
	at, d := t.TempDir(), NewDisk()
	unmount, err := Mount(d, at)
	if err != nil {
		program.Missing(t, "%v", err)
	}
	t.Cleanup(func() { _ = unmount() })
	f, err := os.Create(filepath.Join(at, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d.ReadOnly(true)
	_, writes := f.WriteString("x")
	for what, err := range map[string]error{
		"write": writes, "sync": f.Sync(), "truncate": f.Truncate(5),
		"folder":   os.Mkdir(filepath.Join(at, "folder"), 0o755),
		"new file": os.WriteFile(filepath.Join(at, "new"), nil, 0o600),
		"rename":   os.Rename(f.Name(), filepath.Join(at, "other")), "remove": os.Remove(f.Name()),
		"open": os.WriteFile(f.Name(), nil, 0o600),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s on a read-only disk: %v", what, err)
		}
	}
	if data, err := os.ReadFile(f.Name()); err != nil || len(data) > 0 {
		t.Errorf("read %q, %v", data, err)
	}
	d.ReadOnly(false)
	var slow []string
	d.Slow(func(file string) time.Duration { slow = append(slow, file); return 0 })
	_, err = f.WriteString("x")
	if err := errors.Join(err, f.Sync()); err != nil {
		t.Error(err)
	}
	syncFolder(t, at)
	if !slices.Equal(slow, []string{"file", ""}) {
		t.Errorf("syncs of %q were slow, want one of the file and one of its folder", slow)
	}
}

func syncFolder(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}
