package plane

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoteOfDashboard: commands find the dashboard that began first, however many begin and look,
// and none when it has ended.
func TestNoteOfDashboard(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, addressFile)
	if err := os.WriteFile(file, []byte("http://127.0.0.1:1/"), 0o600); err != nil { // of one that was killed
		t.Fatal(err)
	}
	looking, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer looking.Close()
	if err := unix.Flock(int(looking.Fd()), unix.LOCK_SH); err != nil { // as another command does
		t.Fatal(err)
	}
	if url, err := DashboardOf(dir); !errors.Is(err, errNoDashboard) {
		t.Errorf("of a killed dashboard %q, %v, while two look", url, err)
	}
	looking.Close()
	first, err := NoteDashboard(dir, "http://127.0.0.1:2/")
	if err != nil || first == nil {
		t.Fatal(first, err)
	}
	if second, err := NoteDashboard(dir, "http://127.0.0.1:3/"); second != nil || err != nil {
		t.Errorf("a second dashboard notes %v, %v", second, err)
	}
	if url, err := DashboardOf(dir); url != "http://127.0.0.1:2/" || err != nil {
		t.Errorf("beside a second dashboard the first is %q, %v", url, err)
	}
	first.Close()
	if url, err := DashboardOf(dir); !errors.Is(err, errNoDashboard) {
		t.Errorf("after its end %q, %v", url, err)
	}
}

// TestNoteFollowsNoLink: a link in the directory leads no note to another file.
func TestNoteFollowsNoLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, addressFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := NoteDashboard(dir, "http://127.0.0.1:2/"); err == nil {
		t.Error("a link is followed")
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "precious" {
		t.Errorf("the other file has %q, %v", text, err)
	}
	if _, err := DashboardOf(dir); err == nil || strings.Contains(err.Error(), "starting") {
		t.Errorf("a command follows a link: %v", err)
	}
}
