package dir_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// packing puts all that is small into packs.
type packing struct{ *dir.Store }

func (s packing) Put(ctx context.Context, key string, data []byte) error {
	return s.PutPacked(ctx, key, data)
}

func TestPacksConform(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store { return packing{open(t, t.TempDir())} })
}

// packFiles are the names of a folder's packs, and of the notes of what was deleted.
func packFiles(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(path, ".packs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func content(i int) []byte { return bytes.Repeat([]byte(strconv.Itoa(i)+" "), 1+i%1000) }

func key(i int) string { return fmt.Sprintf("runs/r/o-%04d", i) }

// pack puts objects at the same time.
func pack(t *testing.T, s *dir.Store, from, to int) {
	t.Helper()
	var all sync.WaitGroup
	for i := from; i < to; i++ {
		all.Go(func() {
			if err := s.PutPacked(t.Context(), key(i), content(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func wantPacked(t *testing.T, s *dir.Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if data, err := s.Get(t.Context(), key(i)); err != nil || !bytes.Equal(data, content(i)) {
			t.Fatalf("%s: %d bytes, %v", key(i), len(data), err)
		}
	}
	n := from
	for info, err := range s.List(t.Context(), "runs/r/") {
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != key(n) || info.Size != int64(len(content(n))) || info.Modified.IsZero() {
			t.Fatalf("listed %+v, want %s", info, key(n))
		}
		n++
	}
	if n != to {
		t.Fatalf("listed up to %d, want %d", n, to)
	}
}

// TestPacksAreShared: what one process packs or deletes, another one that has the store open
// finds packed or deleted.
func TestPacksAreShared(t *testing.T) {
	path := t.TempDir()
	one, other := open(t, path), open(t, path)
	pack(t, one, 0, 100)
	wantPacked(t, other, 0, 100)
	pack(t, other, 100, 200)
	wantPacked(t, one, 0, 200)
	for i := range 100 {
		if err := other.Delete(t.Context(), key(i)); err != nil {
			t.Fatal(err)
		}
		if _, err := one.Get(t.Context(), key(i)); !errors.Is(err, storage.ErrNotFound) {
			t.Fatalf("%s was deleted by another process: %v", key(i), err)
		}
	}
	wantPacked(t, one, 100, 200)
	wantPacked(t, other, 100, 200)
	wantPacked(t, open(t, path), 100, 200)
	pack(t, one, 50, 100)
	wantPacked(t, other, 50, 200)
}

// TestNoPacksBesideOthers: a process of a version that knows no packs has the store
// open, and goes on reading it.
func TestNoPacksBesideOthers(t *testing.T) {
	path := t.TempDir()
	older := open(t, path)
	if err := os.Remove(filepath.Join(path, ".rondo", "packs")); err != nil { // it has not made that
		t.Fatal(err)
	}
	s := open(t, path)
	pack(t, s, 0, 10)
	if files := packFiles(t, filepath.Join(path, "runs", "r")); len(files) != 0 {
		t.Errorf("packs: %q", files)
	}
	wantPacked(t, older, 0, 10)
	if err := errors.Join(older.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	pack(t, s, 10, 20)
	if files := packFiles(t, filepath.Join(path, "runs", "r")); len(files) != 1 {
		t.Errorf("packs of a store that nobody else has open: %q", files)
	}
	wantPacked(t, s, 0, 20)
}

// TestPackedTwiceIsWrittenOnce: an effect that is tried again stores its object again.
func TestPackedTwiceIsWrittenOnce(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	size := func() int64 {
		info, err := os.Stat(packFiles(t, filepath.Join(path, "runs", "r"))[0])
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	pack(t, s, 0, 10)
	before := size()
	pack(t, s, 0, 10)
	if after := size(); after != before {
		t.Errorf("%d bytes, then %d", before, after)
	}
	if err := open(t, path).Delete(t.Context(), key(3)); err != nil {
		t.Fatal(err)
	}
	pack(t, s, 0, 10)
	wantPacked(t, s, 0, 10)
}

// TestPacksOfARemovedFolder: an operator removes a run's folder by hand, and the run goes on.
func TestPacksOfARemovedFolder(t *testing.T) {
	path := t.TempDir()
	one, other := open(t, path), open(t, path)
	pack(t, one, 0, 10)
	wantPacked(t, other, 0, 10)
	if err := os.RemoveAll(filepath.Join(path, "runs")); err != nil {
		t.Fatal(err)
	}
	pack(t, one, 10, 20)
	wantPacked(t, one, 10, 20)
	wantPacked(t, other, 10, 20)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := one.PutPacked(t.Context(), key(1), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("PutPacked after Close: %v", err)
	}
	if _, err := one.Get(t.Context(), key(10)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
}

// TestFilesComeFirst: a key is written as a file, too, by who does not pack.
func TestFilesComeFirst(t *testing.T) {
	s := open(t, t.TempDir())
	pack(t, s, 0, 3)
	if err := s.Put(t.Context(), key(1), []byte("file")); err != nil {
		t.Fatal(err)
	}
	for info, err := range s.List(t.Context(), key(1)) {
		if err != nil || info.Size != 4 {
			t.Errorf("listed %+v, %v", info, err)
		}
	}
	if data, err := s.Get(t.Context(), key(1)); err != nil || string(data) != "file" {
		t.Errorf("Get = %q, %v", data, err)
	}
	if err := s.PutPacked(t.Context(), key(1), []byte("mended")); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Get(t.Context(), key(1)); err != nil || string(data) != "mended" {
		t.Errorf("Get = %q, %v", data, err)
	}
	if err := s.PutIfAbsent(t.Context(), key(2), nil); !errors.Is(err, storage.ErrExists) {
		t.Errorf("PutIfAbsent of a packed object: %v", err)
	}
	if err := s.Delete(t.Context(), key(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), key(1)); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("file and packed object were deleted: %v", err)
	}
	if err := s.PutPacked(t.Context(), key(1), make([]byte, dir.MaxPacked+1)); err != nil {
		t.Fatal(err)
	}
	if info, err := s.Stat(t.Context(), key(1)); err != nil || info.Size != dir.MaxPacked+1 {
		t.Errorf("Stat = %+v, %v", info, err)
	}
}

// TestEmptyPacksGo: a pack of which all was deleted is removed as soon as nobody adds to it.
func TestEmptyPacksGo(t *testing.T) {
	path := t.TempDir()
	writer, s := open(t, path), open(t, path)
	pack(t, writer, 0, 10)
	for i := range 9 {
		if err := s.Delete(t.Context(), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if files := packFiles(t, filepath.Join(path, "runs", "r")); len(files) != 2 {
		t.Errorf("a pack with an object: %q", files)
	}
	wantPacked(t, s, 9, 10)
	if err := s.Delete(t.Context(), key(9)); err != nil {
		t.Fatal(err)
	}
	if files := packFiles(t, filepath.Join(path, "runs", "r")); len(files) != 0 {
		t.Errorf("an empty pack is still there: %q", files)
	}
	pack(t, s, 0, 10)
	wantPacked(t, s, 0, 10)
	for i := range 10 { // it deletes from the pack to which it adds
		if err := s.Delete(t.Context(), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	if files := packFiles(t, filepath.Join(path, "runs", "r")); len(files) != 0 {
		t.Errorf("an empty pack of its own is still there: %q", files)
	}
	pack(t, s, 10, 20)
	wantPacked(t, s, 10, 20)
}

// TestTornPacks cuts a pack at every place, as a power cut may: all records before the cut are
// there, and no other one.
func TestTornPacks(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	ends := []int64{0}
	for i := range 3 {
		pack(t, s, i, i+1)
		info, err := os.Stat(packFiles(t, filepath.Join(path, "runs", "r"))[0])
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	file := packFiles(t, filepath.Join(path, "runs", "r"))[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tear := range []func(cut int) []byte{
		func(cut int) []byte { return whole[:cut] },
		// a length without its content
		func(cut int) []byte { return append(bytes.Clone(whole[:cut]), make([]byte, len(whole)-cut)...) },
	} {
		for cut := 0; cut < len(whole); cut += 7 {
			torn := t.TempDir()
			place := filepath.Join(torn, "runs", "r", ".packs", filepath.Base(file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755),
				os.WriteFile(place, tear(cut), 0o600)); err != nil {
				t.Fatal(err)
			}
			left := 0
			for left < 3 && int(ends[left])+32+len("o-0000")+len(content(left)) <= cut {
				left++
			}
			s := open(t, torn)
			wantPacked(t, s, 0, left)
			if _, err := s.Get(t.Context(), key(left)); left < 3 && !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("cut at %d: a torn object: %v", cut, err)
			}
			pack(t, s, left, 4)
			wantPacked(t, s, 0, 4)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestHostileObjects: an object that looks like records, or like the end of a pack, is an object.
func TestHostileObjects(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	pack(t, s, 0, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	evil, err := os.ReadFile(packFiles(t, filepath.Join(path, "runs", "r"))[0])
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if err := s.PutPacked(t.Context(), "runs/s/evil-obj", evil); err != nil {
		t.Fatal(err)
	}
	other := open(t, path) // the pack has no end yet
	for _, s := range []*dir.Store{s, other} {
		if data, err := s.Get(t.Context(), "runs/s/evil-obj"); err != nil || !bytes.Equal(data, evil) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		for info, err := range s.List(t.Context(), "runs/s/") {
			if err != nil || info.Key != "runs/s/evil-obj" {
				t.Errorf("listed %+v, %v", info, err)
			}
		}
	}
	if err := s.PutPacked(t.Context(), "runs/s/good", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Get(t.Context(), "runs/s/good"); err != nil {
		t.Errorf("behind an object that looks like an end: %v", err)
	}
}

// TestKilledPacker kills a process that packs: what it was answered is there, and nothing is torn.
func TestKilledPacker(t *testing.T) {
	if path := os.Getenv("RONDO_TEST_PACKER"); path != "" {
		from, _ := strconv.Atoi(os.Getenv("RONDO_TEST_FROM"))
		packForever(t, open(t, path), from)
		return
	}
	path, acknowledged := t.TempDir(), map[string]bool{}
	beside := open(t, path)
	for round := range 4 {
		packer := exec.Command(os.Args[0], "-test.run=^TestKilledPacker$")
		packer.Env = append(os.Environ(), "RONDO_TEST_PACKER="+path, fmt.Sprintf("RONDO_TEST_FROM=%d", round*1000))
		out, err := packer.StdoutPipe()
		if err == nil {
			err = packer.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			if k, is := strings.CutPrefix(lines.Text(), "put "); is {
				acknowledged[k] = true
				if n++; n == 50+round*17 {
					_ = packer.Process.Kill() // it may have failed, as the objects will tell
				}
			}
		}
		_ = packer.Wait() // the error says that it was killed
		for _, s := range []*dir.Store{open(t, path), beside} {
			there := map[string]bool{}
			for info, err := range s.List(t.Context(), "runs/r/") {
				if err != nil {
					t.Fatal(err)
				}
				i, _ := strconv.Atoi(info.Key[len(info.Key)-4:])
				if data, err := s.Get(t.Context(), info.Key); err != nil || !bytes.Equal(data, content(i)) {
					t.Fatalf("%s: %d bytes, %v", info.Key, len(data), err)
				}
				there[info.Key] = true
			}
			for k := range acknowledged {
				if !there[k] {
					t.Errorf("%s was answered, and is not there", k)
				}
			}
		}
	}
	if len(acknowledged) < 100 {
		t.Errorf("%d objects were answered", len(acknowledged))
	}
}

func packForever(t *testing.T, s *dir.Store, from int) {
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := from + worker; i < from+1000; i += 8 {
				if err := s.PutPacked(t.Context(), key(i), content(i)); err != nil {
					t.Error(err)
					return
				}
				fmt.Println("put " + key(i))
			}
		})
	}
	all.Wait()
}
