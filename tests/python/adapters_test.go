package python

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOneRunOfContractsAtATime: a second run of tests/adapters/run does not touch the folder that
// the first one installs into, and says who has it. A killed run holds nothing.
func TestOneRunOfContractsAtATime(t *testing.T) {
	t.Parallel()
	py, cache := python(t), t.TempDir()
	contracts := func() string {
		t.Helper()
		// it installs nothing for a test that is not there
		c := exec.Command(py, filepath.Join(repository(t), "tests/adapters/run"), "nothing")
		c.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache)
		out, err := c.CombinedOutput()
		if err == nil {
			t.Errorf("it ended well:\n%s", out)
		}
		return string(out)
	}
	const free = "there is no contract test 'nothing'"
	if out := contracts(); !strings.Contains(out, free) {
		t.Errorf("without another run: %s", out)
	}
	held, err := os.OpenFile(filepath.Join(cache, "rondo/adapters/lock"), os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatalf("a run that has ended holds its lock: %v", err)
	}
	fmt.Fprintf(held, "%d\n", os.Getpid())
	if out := contracts(); !strings.Contains(out, fmt.Sprintf(
		"process %d runs contract tests in %s/rondo/adapters: wait for its end", os.Getpid(), cache)) {
		t.Errorf("beside another run: %s", out)
	}
	held.Close()
	if out := contracts(); !strings.Contains(out, free) {
		t.Errorf("behind another run: %s", out)
	}
}
