// Package clitest runs commands in tests, over planes with recorded runs.
package clitest

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Main is a package's TestMain. With RONDO_TEST_MAIN in the environment the test binary is the
// program itself, with the commands of nouns alone.
func Main(m *testing.M, nouns ...func(*app.Global) *cobra.Command) {
	if os.Getenv("RONDO_TEST_MAIN") == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, err := app.New(nouns...).ExecuteContextC(ctx)
	stop()
	app.PrintError(os.Stderr, err, false)
	os.Exit(app.ExitCode(err))
}

// Run runs a command line in this process. The program has the one command of noun.
func Run(t *testing.T, noun func(*app.Global) *cobra.Command, args ...string) (output string, err error) {
	t.Helper()
	return RunProgram(t, app.New(noun), args...)
}

// RunProgram runs a command line of a program in this process.
func RunProgram(t *testing.T, root *cobra.Command, args ...string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

// Write makes a file with its parents.
func Write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// FilledPlane makes a plane's directory and fills its log.
func FilledPlane(t *testing.T, fill func(log *eventlog.Log)) (dir string) {
	t.Helper()
	dir = t.TempDir()
	p, err := plane.Hold(t.Context(), dir, plane.HoldOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if fill != nil {
		fill(p.Log)
	}
	return dir
}

// TaskFolder is a task whose files may be left out.
func TaskFolder(t *testing.T, leaveOut string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fix-it")
	for name, text := range map[string]string{
		"task.toml":          "schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"repo\"\n",
		"instruction.md":     "Fix it.\n",
		"repo/a.sh":          "echo 1\n",
		"tests/test.sh":      "echo 1 > /logs/verifier/reward.txt\n",
		"solution/solve.sh":  "true\n",
		"environment/.keep":  "",
		"repo/nested/b.text": "b\n",
	} {
		if name != leaveOut {
			Write(t, filepath.Join(dir, name), text)
		}
	}
	return dir
}
