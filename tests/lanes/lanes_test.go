// Package lanes holds the lanes of CI to the packages that there are.
package lanes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the repository, seen from this folder.
const root = "../.."

// TestEachPackageIsInOneLane: the lanes together are `go list ./...`, no package is in two, and
// each row has a package, or .ci/packages fails.
func TestEachPackageIsInOneLane(t *testing.T) {
	lanes := map[string]bool{}
	all := rows(t)
	for _, row := range all {
		names, but := strings.CutPrefix(row.how, "but:")
		if row.how != "race" && row.how != "plain" && !but {
			t.Errorf(".ci/lanes: %s %s %s: say race, plain or but:TestOne,TestTwo", row.lane, row.how, row.pattern)
		}
		if but {
			wantTests(t, all, row, strings.Split(names, ","))
		}
		if _, err := os.Stat(root + "/.ci/" + row.lane); err != nil {
			t.Errorf("no script runs the lane: %v", err)
		}
		lanes[row.lane+" "+row.how] = true
	}
	seen := map[string]string{}
	for words := range slices.Chunk(lines(t, ".ci/packages"), 3) { // lane, how, package
		in, p := words[0]+" "+words[1], words[2]
		if other, twice := seen[p]; twice {
			t.Errorf("%s is in the lanes %s and %s", p, other, in)
		}
		if !lanes[in] {
			t.Errorf("%s is in the lane %s, which .ci/lanes does not have", p, in)
		}
		seen[p] = in
	}
	var race []string // as a lane asks for them
	for p, in := range seen {
		if in == "test race" {
			race = append(race, p)
		}
	}
	if asked := lines(t, ".ci/packages", "test", "race"); len(race) < 50 ||
		!slices.Equal(slices.Sorted(slices.Values(asked)), slices.Sorted(slices.Values(race))) {
		t.Errorf("the lane test has %d packages with the race detector, and asks for %d", len(race), len(asked))
	}
	listed := lines(t, "go", "list", "./...")
	for _, p := range listed {
		if seen[p] == "" {
			t.Errorf("%s is in no lane", p)
		}
	}
	if len(seen) != len(listed) || len(listed) < 50 {
		t.Errorf("%d packages in lanes, %d listed", len(seen), len(listed))
	}
	for p, in := range seen {
		lane, names, but := strings.Cut(in, " but:")
		if but && (!slices.Contains(lines(t, ".ci/packages", lane, "plain"), p) ||
			!strings.Contains(strings.Join(lines(t, ".ci/packages", lane, "but"), " "), names+" "+p)) {
			t.Errorf("%s is not tested plain, and but for %s with the race detector", p, names)
		}
	}
}

// wantTests: a package has the tests that a row names, as go test skips none without a
// word where no name is right. A lane has them skipped in all such packages of it, so no
// other has one of that name.
func wantTests(t *testing.T, all []row, of row, names []string) {
	t.Helper()
	for _, other := range all {
		if other.lane != of.lane || !strings.HasPrefix(other.how, "but:") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, other.pattern, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, data...)
		}
		for _, name := range names {
			if has := bytes.Contains(text, []byte("\nfunc "+name+"(t *testing.T) {")); has != (other == of) {
				t.Errorf(".ci/lanes: %s has a test %q: %t", other.pattern, name, has)
			}
		}
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
