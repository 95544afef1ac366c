package tasks

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox"
)

// bringing is what makes a task of two stages, which each have these files of the pack, with
// more settings of the second.
func bringing(more string, changes fstest.MapFS) fstest.MapFS {
	all := staged("[[steps]]\nname = \"two\"\n"+more, fstest.MapFS{"t/steps/two/instruction.md": file("Second.")})
	maps.Copy(all, changes)
	return all
}

// TestStepFiles: the first step's files are in the snapshot, a later one's are its own, and what
// cannot be laid or would not meet the tests is refused by its name.
func TestStepFiles(t *testing.T) {
	both := bringing("", fstest.MapFS{
		"t/steps/one/workdir/README.md": file("first\n"), "t/steps/one/workdir/sub/new": file("x"),
		"t/steps/one/workdir/l":         link("sub/new"),
		"t/steps/two/workdir/README.md": file("second\n"), "t/steps/two/workdir/setup.sh": file("true"),
	})
	loaded, err := LoadPack(with(both))
	if err != nil {
		t.Fatal(err)
	}
	task := loaded[0]
	if got := filesOf(t, task.Snapshot, "README.md", "sub/new", "l", "run.sh"); got != "first\n x x #!/bin/sh\n" {
		t.Errorf("the snapshot holds %q", got)
	}
	if task.Stages[0].Files != nil || task.Stages[1].Files == nil ||
		filesOf(t, task.Stages[1].Files, "README.md", "setup.sh") != "second\n true" {
		t.Errorf("files of the stages: %v and %v", task.Stages[0].Files, task.Stages[1].Files)
	}
	for name, c := range map[string]struct {
		more        string
		changes     fstest.MapFS
		unsupported bool
		want        []string
	}{
		"a file": {"", fstest.MapFS{"t/steps/two/workdir": file("x")}, false,
			[]string{"steps/two/workdir", "must be a folder"}},
		"a link out": {"", fstest.MapFS{"t/steps/two/workdir/l": link("../../../tests/test.sh")}, false,
			[]string{"steps/two/workdir/l", "leads out"}},
		"an absolute one": {"", fstest.MapFS{"t/steps/one/workdir/l": link("/etc/passwd")}, false,
			[]string{"steps/one/workdir/l", "leads out"}},
		"a repository": {"", fstest.MapFS{"t/steps/one/workdir/.git/HEAD": file("x")}, false,
			[]string{"steps/one/workdir/.git", "no repository"}},
		"an inner one": {"", fstest.MapFS{"t/steps/two/workdir/a/.git/HEAD": file("x")}, false,
			[]string{"steps/two/workdir/a/.git", "no repository"}},
		"first setup": {"", fstest.MapFS{"t/steps/one/workdir/setup.sh": file("x")}, true,
			[]string{"steps/one/workdir/setup.sh", "first stage"}},
		"large setup": {"", fstest.MapFS{"t/steps/two/workdir/setup.sh": file(strings.Repeat("x", maxSetup+1))},
			false, []string{"steps/two/workdir/setup.sh", "the limit is 16384"}},
		"linked setup": {"", fstest.MapFS{"t/steps/two/workdir/setup.sh": link("x")}, false,
			[]string{"steps/two/workdir/setup.sh", "no regular file"}},
		"protected": {"", fstest.MapFS{"t/steps/two/workdir/a/conftest.py": file("x")}, true,
			[]string{"steps/two/workdir/a/conftest.py", `"!a/conftest.py"`}},
		"over a folder": {"", fstest.MapFS{"t/environment/repo/d/x": file("x"), "t/steps/two/workdir/d": file("x")},
			false, []string{"steps/two/workdir/d", "is a folder"}},
		"first, the same": {"", fstest.MapFS{"t/environment/repo/d/x": file("x"),
			"t/steps/one/workdir/d": link("README.md")}, false, []string{"steps/one/workdir/d", "is a folder"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadPack(with(bringing(c.more, c.changes)))
			if u := (*Unsupported)(nil); err == nil || errors.As(err, &u) != c.unsupported {
				t.Errorf("%s: %v, unsupported %v", name, err, !c.unsupported)
				return
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v lacks %q", name, err, want)
				}
			}
		})
	}
}

// TestStepFilesOverAnImage: they are laid over the workspace once that is known.
func TestStepFilesOverAnImage(t *testing.T) {
	loaded, err := LoadPack(with(bringing("", fstest.MapFS{
		"t/task.toml": file(
			"[environment]\ndocker_image = \"a\"\nworkdir = \"/testbed\"\n[[steps]]\nname = \"one\""),
		"t/environment/repo/run.sh":    nil,
		"t/environment/repo/README.md": nil, "t/steps/one/workdir/answer": file("42\n"),
	})))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "testbed"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"answer", "question"} {
		if err := os.WriteFile(filepath.Join(root, "testbed", name), []byte("41\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := loaded[0].takeFrom(sandbox.Image{Root: root}); err != nil {
		t.Fatal(err)
	}
	if got := filesOf(t, loaded[0].Snapshot, "answer", "question"); got != "42\n 41\n" {
		t.Errorf("the workspace holds %q", got)
	}
}

func filesOf(t *testing.T, fsys fs.FS, names ...string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(data))
	}
	return strings.Join(all, " ")
}

// TestLintOfStepFiles: doing nothing and the solutions both meet the files of
// a step as its agent will.
func TestLintOfStepFiles(t *testing.T) {
	needSandbox(t)
	const (
		check  = "[steps.healthcheck]\ncommand = \"grep -q set state\"\n"
		setup  = "set -e\necho \"set $MODE\" > state\ntest \"$MODE\" = fast"
		reward = "echo \"{\\\"reward\\\": $r}\" >/logs/verifier/reward.json\n"
	)
	for name, c := range map[string]struct {
		more, setup, want, verdict string
	}{
		"good": {check, setup, "", VerdictInProcess},
		"fails": {"", "echo it is broken >&2; exit 3",
			"doing nothing, attempt 1: no score (setup): begin the next stage: setup.sh of stage two: exit 3: it is broken", VerdictUnsound},
		"no good": {check, "touch state",
			"the solution, attempt 1: no score (healthcheck): stage two: steps.healthcheck: exit 1: a sandbox starts no service", VerdictUnsupported},
		"shows": {"", setup + "\n# the same as the fix",
			"stage two shows the agent steps/two/solution/solve.sh as setup.sh", VerdictUnsound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := bringing(c.more+"[environment.env]\nMODE = \"fast\"\n", fstest.MapFS{
				"t/steps/one/tests/test.sh":     file("test -f fixed && r=1 || r=0\n" + reward),
				"t/steps/one/solution/solve.sh": file("touch fixed"),
				"t/steps/two/tests/test.sh": file(
					"test -f fixed && test -f done && grep -q set state && r=1 || r=0\n" + reward),
				"t/steps/two/solution/solve.sh": file("test -f state && touch done # as a longer program does"),
				"t/steps/two/workdir/setup.sh":  file(c.setup),
			})
			if name == "shows" {
				changes["t/steps/two/solution/solve.sh"] = changes["t/steps/two/workdir/setup.sh"]
			}
			loaded, err := LoadPack(with(changes))
			if err != nil {
				t.Fatal(err)
			}
			report := Lint(t.Context(), loaded[0], LintOptions{Repeats: 1})
			if said := strings.Join(report.Problems, "\n"); report.Verdict != c.verdict ||
				!strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("%s: %q, want %s: %q", report.Verdict, said, c.verdict, c.want)
			}
		})
	}
}
