package golden

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/nightly"
)

// TestOnArm64 verifies and replays the recordings, which were made on amd64, by a
// program for arm64, and computes advantages of all kinds there: every decision has to
// come out with the same bits.
func TestOnArm64(t *testing.T) {
	nightly.Only(t) // it compiles all that the tests import for another processor
	const emulator = "qemu-aarch64-static"
	if runtime.GOARCH == "arm64" {
		t.Skip("the other tests run on arm64 here")
	}
	if _, err := exec.LookPath(emulator); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s is required by RONDO_REQUIRE_ALL=1: install qemu-user-static", emulator)
		}
		t.Skipf("%s is missing", emulator)
	}
	for folder, tests := range map[string][]string{"../../advantage": {"TestBits"}, ".": {"TestRecorded"}} {
		program := filepath.Join(t.TempDir(), "test")
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-o", program, folder)
		build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s for arm64: %v\n%s", folder, err, out)
		}
		run := exec.CommandContext(t.Context(), emulator, program,
			"-test.run=^("+strings.Join(tests, "|")+")$", "-test.v")
		run.Dir = folder
		out, err := run.CombinedOutput()
		if err != nil {
			t.Errorf("%s on arm64: %v\n%s", folder, err, out)
		}
		for _, name := range tests {
			if !bytes.Contains(out, []byte("--- PASS: "+name)) {
				t.Errorf("%s did not run on arm64:\n%s", name, out)
			}
		}
	}
}
