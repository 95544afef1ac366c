package dir_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// TestKilledWriter kills a process in the middle of its writes: what it leaves is whole objects,
// and no temporary file survives the next Open.
func TestKilledWriter(t *testing.T) {
	if path := os.Getenv("RONDO_TEST_WRITER"); path != "" {
		writeForever(t, open(t, path))
		return
	}
	path := t.TempDir()
	for round := range 3 {
		writer := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		writer.Env = append(os.Environ(), "RONDO_TEST_WRITER="+path)
		if err := writer.Start(); err != nil {
			t.Fatal(err)
		}
		s := open(t, path)
		waitForWrites(t, s, 5)
		if err := writer.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// The error says that it was killed.
		_ = writer.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, path)
		entries, err := os.ReadDir(filepath.Join(path, ".rondo", "tmp"))
		if err != nil || len(entries) != 0 {
			t.Errorf("round %d: %d temporary files after Open, %v", round, len(entries), err)
		}
		wantWhole(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

const crashSize = 512 << 10

func writeForever(t *testing.T, s storage.Store) {
	for i := 0; ; i++ {
		data := bytes.Repeat([]byte{byte(i)}, crashSize)
		if err := errors.Join(s.Put(t.Context(), "k", data),
			s.PutReader(t.Context(), "k", iotest.HalfReader(bytes.NewReader(data)), -1)); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForWrites waits until the object has changed n times.
func waitForWrites(t *testing.T, s storage.Store, n int) {
	t.Helper()
	for last := -1; n > 0; {
		data, err := s.GetRange(t.Context(), "k", 0, 1)
		if err == nil && int(data[0]) != last {
			last = int(data[0])
			n--
		}
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func wantWhole(t *testing.T, s *dir.Store) {
	t.Helper()
	data, err := s.Get(t.Context(), "k")
	if err != nil || len(data) != crashSize || !bytes.Equal(data, bytes.Repeat(data[:1], crashSize)) {
		t.Errorf("after the kill: %d bytes, %v; want %d equal ones", len(data), err, crashSize)
	}
}
