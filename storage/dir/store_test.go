package dir_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

func open(t *testing.T, path string) *dir.Store {
	t.Helper()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		s, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestSecondOpenSeesTheData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "folder")
	first := open(t, path)
	if err := first.Put(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path).Get(t.Context(), "a/b"); err != nil || string(got) != "x" {
		t.Errorf("Get = %q, %v", got, err)
	}
}

func TestTemporaryFilesOfACrashAreRemoved(t *testing.T) {
	path := t.TempDir()
	first := open(t, path)
	left := filepath.Join(path, ".rondo", "tmp", "left-behind")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a file was removed while another store was open: %v", err)
	}
	if err := first.Put(t.Context(), "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(left))
	if err != nil || len(entries) != 1 {
		t.Errorf("%d temporary files after a Put (%v), want only the one left behind", len(entries), err)
	}
}

func TestTemporaryFilesAreRemovedByTheFirstToOpen(t *testing.T) {
	path := t.TempDir()
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(path, ".rondo", "tmp", "left-behind")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, path)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestNoTemporaryFileAfterARefusedWrite(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	for _, want := range []error{nil, storage.ErrExists} {
		if err := s.PutIfAbsent(t.Context(), "a", []byte("x")); !errors.Is(err, want) {
			t.Fatalf("PutIfAbsent: %v, want %v", err, want)
		}
	}
	if err := s.Put(t.Context(), "a/b", []byte("x")); err == nil {
		t.Error("Put below an object succeeded")
	}
	if entries, err := os.ReadDir(filepath.Join(path, ".rondo", "tmp")); err != nil || len(entries) != 0 {
		t.Errorf("%d temporary files, %v", len(entries), err)
	}
}

func TestSymbolicLinksDoNotLeadOut(t *testing.T) {
	outside, path := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if data, err := s.Get(t.Context(), "link/secret"); err == nil {
		t.Errorf("read %q through a link", data)
	}
	if err := s.Put(t.Context(), "link/new", []byte("x")); err == nil {
		t.Error("wrote through a link")
	}
	if _, err := os.Stat(filepath.Join(outside, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file outside is there: %v", err)
	}
}

func TestUseAfterClose(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "a", nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
}

// TestCounterOfProcesses runs itself as several processes that count in one object.
func TestCounterOfProcesses(t *testing.T) {
	const processes, increments = 4, 25
	if path := os.Getenv("RONDO_TEST_COUNTER"); path != "" {
		count(t, open(t, path), increments)
		return
	}
	path := t.TempDir()
	s := open(t, path)
	if err := s.Put(t.Context(), "counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	var running []*exec.Cmd
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCounterOfProcesses$")
		cmd.Env = append(os.Environ(), "RONDO_TEST_COUNTER="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Errorf("counting process: %v", err)
		}
	}
	if got, err := s.Get(t.Context(), "counter"); err != nil || string(got) != strconv.Itoa(processes*increments) {
		t.Errorf("counter = %s, %v; want %d", got, err, processes*increments)
	}
}

func count(t *testing.T, s storage.Store, increments int) {
	for done := 0; done < increments; {
		data, etag, err := s.Load(t.Context(), "counter")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(data))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.CompareAndSwap(t.Context(), "counter", etag, []byte(strconv.Itoa(n+1)))
		switch {
		case err == nil:
			done++
		case !errors.Is(err, storage.ErrConflict):
			t.Fatal(err)
		}
	}
}
