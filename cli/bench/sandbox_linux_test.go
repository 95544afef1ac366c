package bench

import (
	"encoding/json"
	"testing"

	"github.com/rondo-rl/rondo/bench/sandbox"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// TestSandbox: the figures are there, with bubblewrap or the reason why without.
func TestSandbox(t *testing.T) {
	sandboxtest.Require(t)
	root, _ := program()
	out, err := clitest.RunProgram(t, root, "sandbox", "--pairs", "1", "--held", "2", "--json", "--quiet")
	var r sandbox.Result
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r.Create <= 0 || r.ExecRatio <= 0 || r.Held != 2 || r.HeldCreate <= 0 ||
		(r.CreateRatio > 0) == (r.NoBubblewrap != "") {
		t.Errorf("%+v", r)
	}
}

// TestRondo finds the program beside this one, or the one that is named, and says what
// to do where there is none.
func TestRondo(t *testing.T) {
	t.Setenv("RONDO_BINARY", "")
	if path, err := rondo(); err == nil {
		t.Errorf("there is no rondo beside a test, and it found %s", path)
	}
	t.Setenv("RONDO_BINARY", "/bin/sh")
	if path, err := rondo(); err != nil || path != "/bin/sh" {
		t.Errorf("named /bin/sh, found %q, %v", path, err)
	}
}
