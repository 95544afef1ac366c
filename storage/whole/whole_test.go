package whole

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "a.txt")
	if err := File(path, func(w io.Writer) error { _, err := io.WriteString(w, "old"); return err }); err != nil {
		t.Fatal(err)
	}
	err := File(path, func(w io.Writer) error { io.WriteString(w, "half"); return io.ErrShortBuffer })
	text, readErr := os.ReadFile(path)
	if !errors.Is(err, io.ErrShortBuffer) || readErr != nil || string(text) != "old" {
		t.Errorf("%v, %v: %q", err, readErr, text)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v are left, %v", entries, err)
	}
}
