// Package e2e runs the rondo binary as its users do, and lets things go wrong.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage/storagetest"
	"github.com/rondo-rl/rondo/tests/program"
)

// rondo is the binary under test.
var rondo string

func TestMain(m *testing.M) {
	// The keys of the S3 server that TestTwoOfEveryService starts: tests that run side by
	// side have one environment.
	os.Setenv("AWS_ACCESS_KEY_ID", storagetest.AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", storagetest.SecretKey)
	program.Main(m, &rondo)
}

func start(t *testing.T, args ...string) *program.Process {
	t.Helper()
	return program.Start(t, exec.Command(rondo, args...))
}

// run runs a command to its end and decodes the last line that it prints.
func run(ctx context.Context, into any, args ...string) error {
	return decode(exec.CommandContext(ctx, rondo, args...), into)
}

// mustBench runs a benchmark as run does a command.
func mustBench(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := decode(exec.CommandContext(t.Context(), program.Bench(rondo), args...), into); err != nil {
		t.Fatal(err)
	}
}

func decode(cmd *exec.Cmd, into any) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if into != nil && len(out) > 0 {
		if jsonErr := json.Unmarshal([]byte(lines[len(lines)-1]), into); jsonErr != nil && err == nil {
			err = fmt.Errorf("last line %q: %w", lines[len(lines)-1], jsonErr)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return nil
}

// said is what a command prints.
func said(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), rondo, args...).Output()
	if err != nil {
		t.Fatalf("rondo %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func mustRun(t *testing.T, into any, args ...string) {
	t.Helper()
	if err := run(t.Context(), into, args...); err != nil {
		t.Fatal(err)
	}
}
