package storagetest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// Tool builds the program of a folder of tools/, and gives its path. The build without cgo is one
// for all packages, with the race detector or without.
func Tool(name string) (binary string, err error) {
	folder, err := Built(filepath.Join("tools", name), ".", "CGO_ENABLED=0")
	return filepath.Join(folder, name), err
}

// built are the folders of the modules whose programs this process has asked for.
var built = struct {
	sync.Mutex
	folders map[string]string
}{folders: map[string]string{}}

// Built builds programs of a folder of this repository, and gives the folder in which they are.
// They stay in the user's cache: linking takes seconds, and tests of many packages ask for the same
// ones. Settings go into the builder's environment.
func Built(module, programs string, settings ...string) (folder string, err error) {
	built.Lock()
	defer built.Unlock()
	if folder, ok := built.folders[module]; ok {
		return folder, nil
	}
	_, file, _, _ := runtime.Caller(0)
	source := filepath.Join(filepath.Dir(file), "..", "..", module)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	// of this copy of the repository
	folder = filepath.Join(cache, "rondo-tests", fmt.Sprintf("%x", sha256.Sum256([]byte(source)))[:16])
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // one test binary at a time
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// which does nothing where they are those of the sources
	build := exec.Command("go", "build", "-C", source, "-ldflags=-s -w", "-o", folder+"/", programs)
	build.Env = append(os.Environ(), settings...)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s of %s: %w\n%s", programs, source, err, output)
	}
	built.folders[module] = folder
	return folder, nil
}
