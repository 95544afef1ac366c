// Package sandboxtest helps tests that need sandboxes.
package sandboxtest

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
)

var probe = sync.OnceValue(func() error {
	_, err := sandbox.Probe(context.Background())
	return err
})

// Require skips the test where this system refuses sandboxes, or fails it where RONDO_REQUIRE_ALL=1
// says that everything must run.
func Require(t testing.TB) {
	t.Helper()
	err := probe()
	switch {
	case err == nil:
	case os.Getenv("RONDO_REQUIRE_ALL") == "1":
		t.Fatalf("sandboxes are required by RONDO_REQUIRE_ALL=1: %v", err)
	default:
		t.Skipf("this system refuses sandboxes: %v", err)
	}
}

// New makes a sandbox that is closed when the test ends.
func New(t testing.TB, spec sandbox.Spec) *sandbox.Sandbox {
	t.Helper()
	Require(t)
	if spec.Name == "" {
		spec.Name = "test"
	}
	sb, err := sandbox.New(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return sb
}

// Pack packs files given by path; contents that start with "#!" are executable.
func Pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, content := range files {
		if err := root.MkdirAll(parent(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := root.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := sandbox.Pack(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Module writes a version of a module of Go below a folder, as a module proxy has it.
func Module(t testing.TB, proxy, path, version string, files map[string]string) {
	t.Helper()
	escaped := regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(path,
		func(letter string) string { return "!" + strings.ToLower(letter) })
	folder := filepath.Join(proxy, escaped, "@v")
	var packed bytes.Buffer
	zipped := zip.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := zipped.Create(path + "@" + version + "/" + name)
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(zipped.Close(), os.MkdirAll(folder, 0o755))
	for ending, text := range map[string]string{".info": `{"Version":"` + version + `"}`, ".mod": files["go.mod"],
		".zip": packed.String()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, version+ending), []byte(text), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func parent(name string) string {
	for i := len(name) - 1; i > 0; i-- {
		if name[i] == '/' {
			return name[:i]
		}
	}
	return "."
}

// RequireDisk skips the test where sandboxes cannot have disks in a folder of this machine. Where
// everything must run, that is an ordinary user's machine and one whose kernel has no loop devices:
// neither can be installed.
func RequireDisk(t testing.TB, folder string) {
	t.Helper()
	Require(t)
	err := sandbox.CheckDisk(folder, 1<<20)
	if err == nil {
		return
	}
	if _, missing := os.Stat("/dev/loop-control"); os.Getenv("RONDO_REQUIRE_ALL") == "1" &&
		os.Geteuid() == 0 && missing == nil {
		t.Fatalf("disks of sandboxes are required by RONDO_REQUIRE_ALL=1: %v", err)
	}
	t.Skipf("no disks of sandboxes: %v", err)
}

// SmallDisk mounts a file system of so many MiB, for tests that fill it.
func SmallDisk(t testing.TB, mib int) (folder string) {
	t.Helper()
	RequireDisk(t, t.TempDir())
	file, folder := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, line := range [][]string{
		{"truncate", "-s", fmt.Sprintf("%dM", mib), file}, {"mke2fs", "-q", "-F", "-t", "ext4", file},
		{"mount", "-o", "loop", file, folder},
	} {
		if said, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", line, err, said)
		}
	}
	t.Cleanup(func() {
		if said, err := exec.Command("umount", "--lazy", folder).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, said)
		}
	})
	return folder
}
