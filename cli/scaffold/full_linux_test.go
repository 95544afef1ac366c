package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// TestFullDisk: on a disk without the room for all files none is left, nor a part of one, and the
// folders that were there stay.
func TestFullDisk(t *testing.T) {
	disk := smalldisk.Mount(t, "28k")
	if err := os.MkdirAll(filepath.Join(disk, "mine", "tasks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(t, disk, "init", "mine"); err == nil ||
		!strings.Contains(err.Error(), "nothing was written; make room on its disk") {
		t.Errorf("want an error that says what to do: %v", err)
	}
	var left []string
	err := filepath.WalkDir(disk, func(path string, _ os.DirEntry, err error) error {
		left = append(left, strings.TrimPrefix(path, disk))
		return err
	})
	if err != nil || strings.Join(left, " ") != " /mine /mine/tasks" {
		t.Errorf("left on the disk: %q, %v", left, err)
	}
	if err := run(t, disk, "task", "small", "--tasks", "mine/tasks"); err != nil { // which fits
		t.Error(err)
	}
	script, err := os.Stat(filepath.Join(disk, "mine/tasks/small/tests/test.sh"))
	if err != nil || script.Mode().Perm() != 0o755 {
		t.Errorf("the script of the tests: %v, %v", script, err)
	}
}
