// Package lanes holds the lanes of CI to the packages that there are.
package lanes

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// root is the repository, seen from this folder.
const root = "../.."

// TestEachPackageIsInOneLane: the lanes together are `go list ./...`, no package is tested twice, and each row has a package, or .ci/packages fails.
func TestEachPackageIsInOneLane(t *testing.T) {
	lanes := map[string][]string{}
	for _, row := range rows(t) {
		in := row.lane + " " + row.how
		if row.how != "race" && row.how != "plain" {
			t.Errorf(".ci/lanes: %s %s: say race or plain", in, row.pattern)
		}
		if lanes[in] != nil {
			continue
		}
		if _, err := os.Stat(root + "/.ci/" + row.lane); err != nil {
			t.Errorf("no script runs the lane: %v", err)
		}
		lanes[in] = lines(t, ".ci/packages", row.lane, row.how)
	}
	seen := map[string]string{}
	for lane, packages := range lanes {
		for _, p := range packages {
			if other, twice := seen[p]; twice {
				t.Errorf("%s is in the lanes %s and %s", p, other, lane)
			}
			seen[p] = lane
		}
	}
	all := lines(t, "go", "list", "./...")
	for _, p := range all {
		if seen[p] == "" {
			t.Errorf("%s is in no lane", p)
		}
	}
	if len(seen) != len(all) || len(all) < 50 {
		t.Errorf("%d packages in lanes, %d listed", len(seen), len(all))
	}
}

type row struct{ lane, how, pattern string }

func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(root + "/.ci/lanes")
	if err != nil {
		t.Fatal(err)
	}
	var all []row
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case len(fields) == 3:
			all = append(all, row{fields[0], fields[1], fields[2]})
		default:
			t.Errorf(".ci/lanes: not a lane, how and packages: %q", line)
		}
	}
	return all
}

// lines are those that a command prints, of which there must be some.
func lines(t *testing.T, name string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil || len(out) == 0 {
		t.Fatalf("%s: %v, printed %q", cmd, err, out)
	}
	return strings.Fields(string(out))
}
