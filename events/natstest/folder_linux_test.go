package natstest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFolders: a folder is there while its test is, those of a process that has ended go with the
// next one's first, and those of one that lives stay.
func TestFolders(t *testing.T) {
	home, err := ownMemory()
	if err != nil {
		t.Skip(err)
	}
	var folder string
	t.Run("a test", func(t *testing.T) {
		folder = Folder(t)
		if err := os.WriteFile(filepath.Join(folder, "f"), []byte("x"), 0o600); err != nil ||
			filepath.Dir(folder) != home.Name() {
			t.Errorf("in %s: %v", folder, err)
		}
	})
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("%s outlives its test: %v", folder, err)
	}
	dead := filepath.Join(memory, "rondo-test-dead")
	if err := os.MkdirAll(filepath.Join(dead, "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := makeHome()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { next.Close(); os.RemoveAll(next.Name()) }()
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what a dead process left is there: %v", err)
	}
	if _, err := os.Stat(home.Name()); err != nil {
		t.Error(err)
	}
}
