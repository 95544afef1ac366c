package service

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// initPackage is the program that sandboxes have as their first process.
const initPackage = "github.com/rondo-rl/rondo/cmd/rondo-sandbox-init"

// ranByGo reports whether `go run` built this program: it is alone in a folder of the go command's,
// which that deletes at the end.
func ranByGo() bool {
	own, err := os.Executable()
	return err == nil && strings.Contains(own, string(filepath.Separator)+"go-build") &&
		filepath.Base(filepath.Dir(own)) == "exe"
}

// buildFirstProcess puts the small program beside this one where `go run` built this one alone.
// Without it sandboxes begin with the whole of rondo, which costs twice the time of the processor;
// so a failure to build is none of this program.
func buildFirstProcess(ctx context.Context) {
	own, err := os.Executable()
	if err != nil || !ranByGo() {
		return
	}
	beside := filepath.Join(filepath.Dir(own), filepath.Base(initPackage))
	if _, err := os.Stat(beside); err == nil {
		return
	}
	c := exec.CommandContext(ctx, "go", "build", "-o", beside, initPackage)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	_ = c.Run()
}

// Self is how to type this program's commands.
func Self() string {
	if ranByGo() {
		return "go run ./cmd/rondo"
	}
	return "rondo"
}
