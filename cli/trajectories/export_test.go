package trajectories

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestExports gives the flags of an export to the library.
func TestExports(t *testing.T) {
	r := clitest.NewRecorded(t)
	r.Whole(1, "fix-a", 0, 0.5, 1, 1)
	r.Whole(2, "fix-b", 0, 0, 0.25)
	servicetest.OpenRun(t, r.Log, "second", servicetest.Config("fix-a"))
	out := t.TempDir()
	export := func(args ...string) string {
		t.Helper()
		output, err := clitest.Run(t, New, append([]string{"trajectories", "export", "--dir", r.Dir, "--quiet"},
			args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	files := func(dir string) (names []string) {
		filepath.WalkDir(filepath.Join(out, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				name, _ := filepath.Rel(filepath.Join(out, dir), path)
				names = append(names, name)
			}
			return err
		})
		return names
	}
	export("first", "--out", filepath.Join(out, "arrow"))
	if got := files("arrow"); len(got) != 5 || got[0] != "g000001-0.arrow" {
		t.Errorf("%v", got)
	}
	export("first", "second", "--format", "atif", "--out", filepath.Join(out, "atif"))
	if got := files("atif"); len(got) != 5 || got[0] != "first/g000001-0.json" {
		t.Errorf("%v", got)
	}
	contains(t, export("first", "--format", "chat", "--min-reward", "0.3", "--best",
		"--out", filepath.Join(out, "sft.jsonl")), "1 written")
	text, err := os.ReadFile(filepath.Join(out, "sft.jsonl"))
	if err != nil || !strings.Contains(string(text), `"rollout":"g000001-1"`) {
		t.Errorf("%v: %s", err, text)
	}
	for _, c := range []struct{ args, want string }{{"--format xml", `"xml"`}, {"--format parquet", `"parquet"`},
		{"--format pairs --best", "--best"}} {
		if output, err := clitest.Run(t, New, append([]string{"trajectories", "export", "first", "--dir", r.Dir,
			"--out", out}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", c.args, err, output)
		}
	}
}

// The help and the document, whose line a test in storage runs, say the same.
func TestParquetLineIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../schemas/arrow.md")
	if err != nil || !strings.Contains(string(document), "\n"+parquetLine+"\n") {
		t.Errorf("schemas/arrow.md has no line %s (%v)", parquetLine, err)
	}
}
