// Package observability_test holds metrics, alert rules and the dashboard to each other
// and to a plane that runs.
package observability_test

import (
	"os/exec"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// rondo is the binary under test.
var rondo string

func TestMain(m *testing.M) { program.Main(m, &rondo) }

// needPromtool skips a test where promtool is missing.
func needPromtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		program.Missing(t, "there is no promtool: apt-get install prometheus")
	}
}
