package storagetest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// Tool builds the program of a folder of tools/, and gives its path. The program stays in the user's cache: linking takes seconds, and tests of many packages ask
// for it. The build without cgo is one for all of them, with the race detector or without.
func Tool(name string) (binary string, err error) {
	_, file, _, _ := runtime.Caller(0)
	module := filepath.Join(filepath.Dir(file), "..", "..", "tools", name)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "rondo-tests", fmt.Sprintf("%x", sha256.Sum256([]byte(module)))[:16]) // of this copy of the repository
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // one test binary at a time
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	binary = filepath.Join(folder, name)
	build := exec.Command("go", "build", "-C", module, "-o", binary, ".") // which does nothing where the program is that of the sources
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tools/%s: %w\n%s", name, err, output)
	}
	return binary, nil
}
