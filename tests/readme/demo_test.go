package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// number is what differs from one demo to the next.
var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?(m[0-9]+s|s)?`)

// TestDemoOutput: what README.md shows of the demo is what the demo prints, but for the numbers.
// This runs the demo, which takes some minutes, and writes what it prints:
//
//	go test ./tests/readme -run DemoOutput -rewrite -timeout 1h
func TestDemoOutput(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- demo -->\n", "<!-- /demo -->"
	path := filepath.Join(root, "README.md")
	before, rest, found := strings.Cut(read(t, path), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatal("README.md has no place for the demo's output")
	}
	if *rewrite {
		block := "```text\n" + demo(t) + "```\n"
		if err := os.WriteFile(path, []byte(before+begin+block+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := demo(t, "--steps", "1", "--groups-per-batch", "1", "--group-size", "2", "--tasks", quickTasks(t))
	if kinds(shown) != kinds("```text\n"+want+"```\n") {
		t.Errorf("README.md shows\n%s\nbut the demo prints\n%s", kinds(shown), kinds(want))
	}
}

// kinds keeps of an output one line of each kind, without numbers, plot, the repair, which a short
// demo may not come to, and the link that a terminal alone gets.
func kinds(output string) string {
	seen := map[string]bool{}
	var lines []string
	for line := range strings.Lines(output) {
		if strings.ContainsAny(line, "┤└│") || strings.HasPrefix(line, "dashboard: ") {
			continue
		}
		kind := strings.Join(strings.Fields(number.ReplaceAllString(line, "N")), " ")
		if !seen[kind] {
			seen[kind] = true
			lines = append(lines, kind)
		}
	}
	return strings.Join(lines, "\n")
}

// demo runs a demo and gives what a terminal would keep of it.
func demo(t *testing.T, args ...string) string {
	t.Helper()
	program.NeedSandbox(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(rondo, append([]string{"demo"}, args...)...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	next := regexp.MustCompile(`(?m)^  rondo .*$`).FindAllString(string(out), -1)
	if len(next) != 3 {
		t.Errorf("the demo names %d commands to type next, want 3:\n%s", len(next), out)
	}
	for _, line := range next {
		if _, err := command(dir, rondo, strings.Fields(line)[1:]...); err != nil {
			t.Errorf("the demo says to type %q: %v", line, err)
		}
	}
	return strings.ReplaceAll(string(out), dir, "/home/me")
}
