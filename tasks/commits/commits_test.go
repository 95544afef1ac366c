package commits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/tasks"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// history is a repository whose commits a test makes.
type history struct {
	t   *testing.T
	dir string
	at  time.Time
}

func newHistory(t *testing.T) *history {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal("git is required by RONDO_REQUIRE_ALL=1")
		}
		t.Skip("git is missing")
	}
	h := &history{t: t, dir: filepath.Join(t.TempDir(), "stock"), at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if err := os.Mkdir(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.git("init", "-q")
	return h
}

func (h *history) git(args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", h.dir, "-c", "user.name=a", "-c", "user.email=a@example.com"},
		args...)...)
	when := h.at.Format(time.RFC3339)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_DATE="+when,
		"GIT_COMMITTER_DATE="+when)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit makes one of what files hold then, a day behind the last.
func (h *history) commit(message string, files map[string]string) (id string) {
	h.t.Helper()
	for name, text := range files {
		name = filepath.Join(h.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o644)); err != nil {
			h.t.Fatal(err)
		}
	}
	h.at = h.at.AddDate(0, 0, 1)
	h.git("add", "-A")
	h.git("commit", "-q", "-m", message)
	return h.git("rev-parse", "HEAD")
}

func goTest(name, body string) string {
	return "package stock\n\nimport \"testing\"\n\nfunc " + name + "(t *testing.T) {\n" + body + "\n}\n"
}

// stocks makes the history of a small package of Go. It answers which commit has to become what.
func stocks(h *history) (want map[string]string) {
	want = map[string]string{}
	is := func(outcome, message string, files map[string]string) {
		want[h.commit(message, files)] = outcome
	}
	is(NoParent, "Begin a stock of things that can be taken", map[string]string{
		"go.mod":   "module acme.test/stock\n\ngo 1.24\n",
		"stock.go": "package stock\n\ntype Stock map[string]int\n\nfunc (s Stock) Take(item string, n int) bool {\n\ts[item] -= n\n\treturn true\n}\n",
		"take_test.go": goTest("TestTake",
			"\tif s := (Stock{\"bolt\": 3}); !s.Take(\"bolt\", 2) || s[\"bolt\"] != 1 {\n\t\tt.Error(s)\n\t}"),
		"CHANGELOG.md": "# Changes\n",
	})
	fixed := "package stock\n\ntype Stock map[string]int\n\nfunc (s Stock) Take(item string, n int) bool {\n\tif s[item] < n {\n\t\treturn false\n\t}\n\ts[item] -= n\n\treturn true\n}\n"
	is("task", "Refuse to take more than there is\n\nTake left a negative number behind.\n\nFixes: #12\nSigned-off-by: A <a@example.com>\n", map[string]string{
		"stock.go": fixed, "CHANGELOG.md": "# Changes\n\n- Take refuses a secret.\n",
		"many_test.go": goTest("TestTakeTooMany",
			"\tif s := (Stock{\"bolt\": 1}); s.Take(\"bolt\", 2) || s[\"bolt\"] != 1 {\n\t\tt.Error(s)\n\t}"),
	})
	is("task", "Count all things of a stock with a method Sum, which an empty stock answers by 0", map[string]string{
		"sum.go": "package stock\n\nfunc (s Stock) Sum() (n int) {\n\tfor _, have := range s {\n\t\tn += have\n\t}\n\treturn n\n}\n",
		"sum_test.go": goTest("TestSum",
			"\tif got := (Stock{\"bolt\": 3, \"nut\": 4}).Sum(); got != 7 {\n\t\tt.Error(got)\n\t}"),
	})
	is(NoTests, "Empty the stock by a method of its own, for those who close",
		map[string]string{"empty.go": "package stock\n\nfunc (s Stock) Empty() { clear(s) }\n"})
	is(MessageFix, "Tell whether there is something of an item\n\nIt is done by\n\n    func (s Stock) Has(item string) bool { return s[item] > 0 }\n", map[string]string{
		"has.go":      "package stock\n\nfunc (s Stock) Has(item string) bool { return s[item] > 0 }\n",
		"has_test.go": goTest("TestHas", "\tif !(Stock{\"bolt\": 1}).Has(\"bolt\") {\n\t\tt.Error()\n\t}"),
	})
	is(PassesBefore, "Say more of what Take does and test it once more for nothing", map[string]string{
		"stock.go": strings.Replace(fixed, "func (s Stock) Take", "// Take takes.\nfunc (s Stock) Take", 1),
		"again_test.go": goTest("TestAgain",
			"\tif s := (Stock{\"bolt\": 3}); !s.Take(\"bolt\", 3) {\n\t\tt.Error(s)\n\t}"),
	})
	is(MessageShort, "Fix it",
		map[string]string{"sum.go": "package stock\n\nfunc (s Stock) Sum() (n int) {\n\treturn len(s)\n}\n",
			"sum_test.go": goTest("TestSum", "\t_ = Stock{}.Sum()")})
	is(Prose, "Write down what is new in this version of it",
		map[string]string{"CHANGELOG.md": "# Changes\n\n- Much.\n"})
	is(FailsFixed, "Name the items of a stock, in no order that means anything", map[string]string{
		"names.go":      "package stock\n\nfunc (s Stock) Names() []string { return nil }\n",
		"names_test.go": goTest("TestNames", "\tif (Stock{\"bolt\": 1}).Names() == nil {\n\t\tt.Error()\n\t}"),
	})
	is(Flaky, "Put things back into the stock, whatever there was before", map[string]string{
		"put.go": "package stock\n\nfunc (s Stock) Put(item string, n int) { s[item] += n }\n",
		"put_test.go": "package stock\n\nimport (\n\t\"fmt\"\n\t\"math/rand/v2\"\n\t\"testing\"\n)\n\n" +
			"func TestPut(t *testing.T) {\n\tt.Run(fmt.Sprint(rand.Uint64()), func(*testing.T) { Stock{}.Put(\"nut\", 1) })\n" +
			"\tt.Error(\"always\")\n}\n",
	})
	return want
}

func options(t *testing.T, h *history) Options {
	t.Helper()
	cache, err := os.UserCacheDir()
	if cache = filepath.Join(cache, "rondo", "toolchains"); err != nil || os.MkdirAll(cache, 0o755) != nil {
		cache = t.TempDir()
	}
	return Options{Repository: h.dir, Dir: filepath.Join(t.TempDir(), "tasks"), Jobs: 2, Timeout: 10 * time.Minute,
		Machine: tasks.Machine{ToolchainCache: cache}}
}

// TestImport: of a history those commits become tasks whose tests show their fix each
// time, and each other one is dropped with its reason. An import that is stopped goes
// on, and runs nothing again.
func TestImport(t *testing.T) {
	sandboxtest.Require(t)
	h := newHistory(t)
	want := stocks(h)
	o := options(t, h)
	ran := map[string]int{}
	stop := func() {}
	o.Progress = func(id string, _ Outcome, tested bool, err error) {
		if err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if tested {
			ran[id]++
			stop()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop = cancel
	if report, err := Import(ctx, o); !errors.Is(err, context.Canceled) || report.Left == 0 || len(report.Failed) > 0 {
		t.Errorf("stopped: %+v, %v", report, err)
	}
	stop = func() {}
	o.Max = 1
	if report, err := Import(t.Context(), o); err != nil || len(report.Tasks) != 1 {
		t.Errorf("one task: %+v, %v", report, err)
	}
	o.Max = 0
	report, err := Import(t.Context(), o)
	if err != nil || len(report.Tasks) != 2 || report.Left != 0 || report.Found != len(want) {
		t.Errorf("all: %+v, %v", report, err)
	}
	got, err := readState(report.State)
	if err != nil {
		t.Fatal(err)
	}
	for id, outcome := range want {
		if outcome == "task" {
			outcome = ""
		}
		if got.Commits[id].Reason != outcome {
			t.Errorf("%s: %+v, want %s", h.git("show", "-s", "--format=%s", id), got.Commits[id], outcome)
		}
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("%s ran in %d imports", id, n)
		}
	}
	o.Progress = func(id string, outcome Outcome, _ bool, err error) { t.Errorf("%s again: %+v, %v", id, outcome, err) }
	if _, err := Import(t.Context(), o); err != nil {
		t.Error(err)
	}
	checkTasks(t, o, 2)
	checkTooMany(t, o.Dir, want, h)
}

// checkTasks lints what is in the folder.
func checkTasks(t *testing.T, o Options, n int) {
	t.Helper()
	list, err := tasks.LoadDir(o.Dir)
	if err != nil || len(list) != n {
		t.Fatalf("%d tasks, %v", len(list), err)
	}
	for _, task := range list {
		if report := tasks.Lint(t.Context(), task, tasks.LintOptions{Repeats: 1, Machine: o.Machine}); !report.OK {
			t.Errorf("%+v", report)
		}
	}
	if left, err := filepath.Glob(filepath.Join(o.Dir, ".making-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// checkTooMany looks at what is in the task of the first fix: the message without its author, tests
// by how they end, and nothing of later.
func checkTooMany(t *testing.T, dir string, want map[string]string, h *history) {
	t.Helper()
	text := func(parts ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{dir}, parts...)...))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return string(data)
	}
	for id, outcome := range want {
		if outcome != "task" || !strings.HasPrefix(h.git("show", "-s", "--format=%s", id), "Refuse") {
			continue
		}
		name := "stock-" + id[:12]
		if got := text(name,
			"instruction.md"); got != "Refuse to take more than there is\n\nTake left a negative number behind.\n\nFixes: #12\n" {
			t.Errorf("instruction %q", got)
		}
		g, err := grade.Read([]byte(text(name, "tests", grade.File)))
		if err != nil || !slices.Equal(g.FailToPass, []string{"TestTakeTooMany"}) ||
			!slices.Equal(g.PassToPass, []string{"TestTake"}) {
			t.Errorf("%+v, %v", g, err)
		}
		snapshot := filepath.Join(name, "environment", "repo")
		if text(snapshot, "CHANGELOG.md") != "# Changes\n" || text(snapshot, "many_test.go") != "" ||
			text(snapshot, "sum.go") != "" || text(snapshot, ".git", "HEAD") != "" {
			t.Error("the snapshot holds what came later")
		}
		if patch := text(name, "solution", "gold.patch"); strings.Contains(patch, "_test.go") ||
			!strings.Contains(patch, "a secret") {
			t.Errorf("solution %s", patch)
		}
	}
}

// TestImportPython: the same of Python, whichever test program its sandbox has.
func TestImportPython(t *testing.T) {
	sandboxtest.Require(t)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal("python3 is required by RONDO_REQUIRE_ALL=1")
		}
		t.Skip("python3 is missing")
	}
	h := newHistory(t)
	test := func(name, body string) string {
		return "import unittest\n\nfrom slugs import slug\n\n\nclass " + name + "(unittest.TestCase):\n    def test_" +
			strings.ToLower(name) + "(self):\n        " + body + "\n"
	}
	h.commit("Make slugs of titles, words joined by dashes", map[string]string{
		"src/slugs.py":        "import re\n\n\ndef slug(title):\n    return re.sub(r'[^a-z0-9]+', '-', title.lower())\n",
		"tests/__init__.py":   "",
		"tests/test_words.py": test("Words", "self.assertEqual(slug('Two words'), 'two-words')"),
	})
	h.commit("Leave no dash at the ends of a slug, as links with one break", map[string]string{
		"src/slugs.py":        "import re\n\n\ndef slug(title):\n    return re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')\n",
		"tests/test_edges.py": test("Edges", "self.assertEqual(slug(' Other titles! '), 'other-titles')"),
	})
	o := options(t, h)
	report, err := Import(t.Context(), o)
	if err != nil || len(report.Tasks) != 1 {
		got, _ := readState(report.State)
		t.Fatalf("%+v, %v, %+v", report, err, got)
	}
	checkTasks(t, o, 1)
}

// TestCompare: a test counts by how it ends in all runs.
func TestCompare(t *testing.T) {
	const p, f, s, x = grade.Passed, grade.Failed, grade.Skipped, grade.XFailed
	for name, c := range map[string]struct {
		with, without []grade.Status
		want          string
		patch         string
	}{
		"fixed":                      {[]grade.Status{p, p, p}, []grade.Status{f, f, f}, "fixed", ""},
		"does not compile before":    {[]grade.Status{p, p, p}, []grade.Status{"", "", ""}, "fixed", "+func TestIt("},
		"is in the way before":       {[]grade.Status{p, p, p}, []grade.Status{"", "", ""}, "kept", "+func TestItAll("},
		"fails in two ways before":   {[]grade.Status{p, p, p}, []grade.Status{f, "", grade.Errored}, "fixed", ""},
		"kept":                       {[]grade.Status{p, p, p}, []grade.Status{p, p, p}, "kept", ""},
		"passes at last only":        {[]grade.Status{f, f, p}, []grade.Status{f, f, f}, "flaky", ""},
		"fails once with the fix":    {[]grade.Status{p, f, p}, []grade.Status{f, f, f}, "flaky", ""},
		"is once not there":          {[]grade.Status{p, p, ""}, []grade.Status{f, f, f}, "flaky", ""},
		"passes once without it":     {[]grade.Status{p, p, p}, []grade.Status{f, p, f}, "flaky", ""},
		"fails once without it":      {[]grade.Status{p, p, p}, []grade.Status{p, p, f}, "flaky", ""},
		"skipped before":             {[]grade.Status{p, p, p}, []grade.Status{s, s, s}, "", ""},
		"skipped once before":        {[]grade.Status{p, p, p}, []grade.Status{s, f, f}, "flaky", ""},
		"expected to fail before":    {[]grade.Status{p, p, p}, []grade.Status{x, x, x}, "", ""},
		"never passes":               {[]grade.Status{f, f, f}, []grade.Status{f, f, f}, "", ""},
		"skipped with the fix":       {[]grade.Status{s, s, s}, []grade.Status{f, f, f}, "", ""},
		"expected to fail after all": {[]grade.Status{x, x, x}, []grade.Status{f, f, f}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			runs := func(statuses []grade.Status) (all []grade.Results) {
				for _, status := range statuses {
					all = append(all, grade.Results{"TestIt/part": status})
				}
				return all
			}
			fixed, kept, flaky := compare(runs(c.with), runs(c.without), namedIn(c.patch, "gotest"))
			got := strings.Repeat("fixed", len(fixed)) + strings.Repeat("kept", len(kept)) +
				strings.Repeat("flaky", len(flaky))
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestFunction: a test's function is found in its name, whichever program named it.
func TestFunction(t *testing.T) {
	for name, want := range map[string]string{
		"TestIt": "TestIt", "TestIt/a::b/c": "TestIt", "TestIt/part one": "TestIt",
		"tests/test_x.py::TestX::test_it[a b]": "test_it", "test_it (tests.test_x.TestX.test_it)": "test_it",
	} {
		if got := function(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestWordsOf: a function is named by a patch that changes a line of it, and not by one
// that adds another behind it.
func TestWordsOf(t *testing.T) {
	const (
		behind  = "--- a/a_test.go\n+++ b/a_test.go\n@@ -9,3 +9,7 @@ func TestOld(t *testing.T) {\n \tt.Log()\n \t}\n }\n+\n+func TestNew(t *testing.T) {\n+}\n"
		inside  = "--- a/a_test.go\n+++ b/a_test.go\n@@ -9,3 +9,4 @@ func TestOld(t *testing.T) {\n \tt.Log()\n+\tt.Error()\n }\n"
		shown   = "--- a/a_test.go\n+++ b/a_test.go\n@@ -9,3 +9,4 @@ import x\n func TestOld(t *testing.T) {\n-\tt.Log()\n }\n func TestNext() {\n"
		methods = "--- a/test_a.py\n+++ b/test_a.py\n@@ -9,3 +9,4 @@ class TestOld:\n     def test_a(self):\n         pass\n \n+    def test_b(self):\n+        pass\n"
	)
	for name, c := range map[string]struct {
		patch     string
		want, not []string
	}{
		"behind":  {behind, []string{"TestNew"}, []string{"TestOld", "a_test"}},
		"inside":  {inside, []string{"TestOld"}, []string{"Log"}},
		"shown":   {shown, []string{"TestOld", "Log"}, []string{"TestNext", "x"}},
		"methods": {methods, []string{"test_b"}, []string{"test_a"}},
	} {
		t.Run(name, func(t *testing.T) {
			words := wordsOf(c.patch)
			for _, word := range c.want {
				if !words[word] {
					t.Errorf("%s is not in %v", word, words)
				}
			}
			for _, word := range c.not {
				if words[word] {
					t.Errorf("%s is in %v", word, words)
				}
			}
		})
	}
}

func TestSplit(t *testing.T) {
	file := func(name string) change { return change{name: name, before: "100644", after: "100644", added: 1} }
	files := func(names ...string) (all []change) {
		for _, name := range names {
			all = append(all, file(name))
		}
		return all
	}
	with := func(change func(*change), names ...string) []change {
		all := files(names...)
		change(&all[0])
		return all
	}
	many := []string{"a_test.go"}
	for n := range maxFiles {
		many = append(many, fmt.Sprintf("a%d.go", n))
	}
	for name, c := range map[string]struct {
		changes []change
		reason  string
		tests   string
		code    string
	}{
		"Go": {files("a.go", "a_test.go", "testdata/x.bin", "CHANGELOG.md"), "",
			"a_test.go testdata/x.bin", "a.go CHANGELOG.md"},
		"Python": {files("src/a.py", "tests/test_a.py", "tests/helper.py", "conftest.py",
			"b_test.py"), "", "tests/test_a.py tests/helper.py conftest.py b_test.py", "src/a.py"},
		"a test named as a module": {files("a.py", "test_a.py"), "", "test_a.py", "a.py"},
		"another language beside":  {files("a.go", "a_test.go", "page.html"), "", "a_test.go", "a.go page.html"},
		"dependencies": {files("a.go", "a_test.go", "go.mod", "vendor/b/b.go"), "", "a_test.go",
			"a.go go.mod vendor/b/b.go"},
		"nothing":                 {nil, Prose, "", ""},
		"no tests":                {files("a.go", "README.md"), NoTests, "", ""},
		"data of tests alone":     {files("a.go", "testdata/x"), NoTests, "", ""},
		"a helper of tests alone": {files("a.py", "tests/helper.py"), NoTests, "", ""},
		"tests that are deleted": {with(func(c *change) { c.after = "000000" }, "a_test.go", "a.go"), NoTests, "",
			""},
		"no code":                  {files("a_test.go", "README.md", ".github/workflows/ci.yml"), NoCode, "", ""},
		"code of another language": {files("a_test.go", "a.py"), NoCode, "", ""},
		"documents": {files("README.md", "LICENSE", "docs/a.rst", ".gitignore", "go.mod"), Prose, "",
			""},
		"Rust":          {files("src/lib.rs", "tests/it.rs"), OtherTongue, "", ""},
		"two languages": {files("a.go", "a_test.go", "b.py", "test_b.py"), Several, "", ""},
		"binary": {with(func(c *change) { c.binary = true }, "a.png", "a.go", "a_test.go"), Binary,
			"", ""},
		"a link": {with(func(c *change) { c.after = "120000" }, "l", "a.go", "a_test.go"), Odd, "",
			""},
		"a submodule": {with(func(c *change) { c.before = "160000" }, "l", "a.go", "a_test.go"), Odd, "",
			""},
		"a name with a quote":      {files("a'b.go", "a_test.go"), Odd, "", ""},
		"a name that is an option": {files("-exec.go", "a_test.go"), Odd, "", ""},
		"many files":               {files(many...), TooLarge, "", ""},
		"many lines": {with(func(c *change) { c.added, c.deleted = maxLines, 0 }, "a.go", "a_test.go"),
			TooLarge, "", ""},
		"lines enough": {with(func(c *change) { c.added, c.deleted = maxLines-2, 1 }, "a.go", "a_test.go"),
			"", "a_test.go", "a.go"},
	} {
		t.Run(name, func(t *testing.T) {
			p, reason := split(c.changes)
			if reason != c.reason ||
				reason == "" && (strings.Join(p.tests, " ") != c.tests || strings.Join(p.code, " ") != c.code) {
				t.Errorf("%q: tests %q, code %q", reason, p.tests, p.code)
			}
			if p.dependencies != strings.Contains(strings.Join(p.code, " "), "go.mod") {
				t.Errorf("dependencies: %v", p.dependencies)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	for name, c := range map[string]struct {
		files, tests string
		pytest       bool
		want, parser string
	}{
		"packages": {"go.mod a_test.go b/b_test.go b/c_test.go", "a_test.go b/b_test.go b/c_test.go", false,
			"go test -count=1 -v ./ ./b", "gotest"},
		"a module below": {"go.mod sub/go.mod sub/b/b_test.go", "sub/b/b_test.go", false,
			"go -C sub test -count=1 -v ./b", "gotest"},
		"the top of a module": {"sub/go.mod sub/b_test.go", "sub/b_test.go", false,
			"go -C sub test -count=1 -v ./", "gotest"},
		"two modules": {"go.mod sub/go.mod", "a_test.go sub/b_test.go", false, "", "gotest"},
		"pytest": {"a.py tests/test_a.py", "tests/test_a.py", true,
			"python3 -m pytest -rA tests/test_a.py", "pytest"},
		"unittest": {"a.py tests/test_a.py", "tests/test_a.py", false,
			"python3 -m unittest -v tests/test_a.py", "unittest"},
		"a folder src": {"src/a.py test_a.py", "test_a.py", true,
			`PYTHONPATH="$PWD/src:$PYTHONPATH" python3 -m pytest -rA test_a.py`, "pytest"},
		"a package src": {"src/__init__.py test_a.py", "test_a.py", true,
			"python3 -m pytest -rA test_a.py", "pytest"},
	} {
		t.Run(name, func(t *testing.T) {
			names := map[string]bool{}
			for _, file := range strings.Fields(c.files) {
				names[file] = true
			}
			p := parts{runnable: strings.Fields(c.tests), parser: "gotest"}
			if strings.HasSuffix(c.tests, ".py") {
				p.parser = "pytest"
			}
			if command, parser := p.command(names, c.pytest); command != c.want || parser != c.parser {
				t.Errorf("%q, %s", command, parser)
			}
		})
	}
}

func TestInstruction(t *testing.T) {
	const patch = "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1 +1,4 @@\n-\treturn old(n)\n+\t// Answer the sum (of all).\n+\tif  n < 0 {\n+\t\treturn sum(n, 7)\n+ok()\n" +
		"diff --git a/CHANGELOG.md b/CHANGELOG.md\n--- a/CHANGELOG.md\n+++ b/CHANGELOG.md\n@@ -1 +1 @@\n+- Take refuses (what is not there).\n"
	const good = "Refuse to take more than there is"
	for name, c := range map[string]struct{ message, want, reason string }{
		"a subject": {good + " (#12)\n", good + " (#12)", ""},
		"a body":    {good + "\n\nIt was negative.\n", good + "\n\nIt was negative.", ""},
		"trailers": {good +
			"\n\nWhy.\n\nSigned-off-by: A <a@b>\nCo-authored-by: B <b@c>\nChange-Id: I0123\n  folded\n(cherry picked from commit 0123abc)\n",
			good + "\n\nWhy.", ""},
		"a footer of a program": {good +
			"\n\nWhy.\n\n\U0001f916 Generated with [A Program](https://x.test)\n\nCo-Authored-By: A <a@b>\n",
			good + "\n\nWhy.", ""},
		"words that look like one": {good + "\n\nGenerated by the parser\nare more of them.",
			good + "\n\nGenerated by the parser\nare more of them.", ""},
		"a trailer with an issue": {good +
			"\n\nReviewed-by: A <a@b>\nFixes: #12\nCloses: https://x.test/issues/3\n",
			good + "\n\nFixes: #12\nCloses: https://x.test/issues/3", ""},
		"no trailers": {good + "\n\nNote: this is text.", good + "\n\nNote: this is text.", ""},
		"words among trailers": {good + "\n\nSigned-off-by: A\nand words",
			good + "\n\nSigned-off-by: A\nand words", ""},
		"a form": {good + "\n\n<!-- Say\nwhy -->\n- [ ] Bug\n- [x] Feature\n",
			good + "\n\n\n- [x] Feature", ""},
		"a subject like a trailer": {"Fixes: to take more than there is is refused",
			"Fixes: to take more than there is is refused", ""},
		"bytes that are no text": {good + "\x00\x1b[31m\xff", good + "[31m\ufffd", ""},
		"a line of the changelog": {good + "\n\nTake refuses (what is not there).",
			good + "\n\nTake refuses (what is not there).", ""},
		"a comment of the fix": {good + "\n\nAnswer the sum (of all).",
			good + "\n\nAnswer the sum (of all).", ""},
		"the line that was wrong": {good + "\n\nIt was return old(n).", good + "\n\nIt was return old(n).", ""},
		"too few words":           {"Fix thecrashthatmakesallofitbreak ##### 12 12 12 12", "", MessageShort},
		"too few letters":         {"a b c d e f g", "", MessageShort},
		"nothing":                 {"\n", "", MessageShort},
		"trailers alone": {"Fix\n\nSigned-off-by: An author with many names <a@example.com>", "",
			MessageShort},
		"too long":                    {good + strings.Repeat(" more", maxMessage/5), "", MessageLong},
		"a line of the fix":           {good + "\n\nNow it does\n\n    return sum(n, 7)\n", "", MessageFix},
		"the same with other spaces":  {good + " by return\tsum(n,  7)", "", MessageFix},
		"a patch":                     {good + "\n\n@@ -1,2 +3,4 @@\n+x\n", "", MessageFix},
		"a header of a patch":         {good + "\n\n  diff --git a/x b/x\n", "", MessageFix},
		"that another one is undone":  {"Revert \"Add it\"\n\nThis reverts commit 0123456789abcdef.", "", Reverts},
		"a short line that it shares": {good + ", which is ok()", good + ", which is ok()", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if text, reason := instruction(c.message, patch); text != c.want || reason != c.reason {
				t.Errorf("%q, %q", text, reason)
			}
		})
	}
}

// TestPulls: the merge of a pull request on the branch stands for it, with the message
// of its author and what its branch changed. Its commits become no tasks beside it.
// Other merges are left out.
func TestPulls(t *testing.T) {
	h := newHistory(t)
	h.commit("one", map[string]string{"a": "1"})
	h.git("branch", "-M", "trunk")
	h.git("checkout", "-q", "-b", "side")
	inner := h.commit("two", map[string]string{"b": "1"})
	h.git("checkout", "-q", "-b", "nested")
	deep := h.commit("three", map[string]string{"c": "1"})
	h.git("checkout", "-q", "side")
	h.git("merge", "-q", "--no-ff", "-m", "Merge pull request #8 from acme/nested\n\nIt is inside of another", "nested")
	h.git("checkout", "-q", "trunk")
	outside := h.commit("four", map[string]string{"d": "1"})
	h.git("merge", "-q", "--no-ff", "-m", "Merge pull request #7 from acme/side\n\nHave what a stock needs\n\nAnd why.",
		"side")
	pull := h.git("rev-parse", "HEAD")
	h.git("checkout", "-q", "-b", "plain")
	plain := h.commit("five", map[string]string{"e": "1"})
	h.git("checkout", "-q", "trunk")
	h.git("merge", "-q", "--no-ff", "-m", "Merge branch plain", "plain")

	objects, head, err := swebench.Open(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	im := &importer{maker: maker{objects: objects}}
	list, err := im.walk(t.Context(), head)
	within := map[string]string{}
	for _, c := range list {
		within[c.id] = c.within
		if c.pull != (c.id == pull) || c.pull && c.parent != outside {
			t.Errorf("%+v", c)
		}
	}
	if want := map[string]string{inner: pull, deep: pull, outside: "", pull: "", plain: "",
		h.git("rev-list", "--max-parents=0", "trunk"): ""}; err != nil || !maps.Equal(within, want) {
		t.Errorf("%v, %v, want %v", within, err, want)
	}
	at := slices.IndexFunc(list, func(c commit) bool { return c.pull })
	if message, err := im.message(t.Context(), list[at]); err != nil ||
		strings.TrimSpace(message) != "Have what a stock needs\n\nAnd why." {
		t.Errorf("%q, %v", message, err)
	}
	if changes, err := changesOf(t.Context(), objects, list[at]); err != nil || len(changes) != 2 {
		t.Errorf("%+v, %v", changes, err)
	}

	o := Options{Repository: h.dir, Dir: t.TempDir(), Jobs: 4}
	if err := os.Mkdir(filepath.Join(o.Dir, "stock-"+pull[:12]), 0o755); err != nil { // as if it had become a task
		t.Fatal(err)
	}
	if report, err := Import(t.Context(), o); err != nil || report.Dropped[Part] != 2 ||
		len(report.Tasks) != 1 || report.Found != 6 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := os.RemoveAll(filepath.Join(o.Dir, StateFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(o.Dir, "stock-"+pull[:12])); err != nil {
		t.Fatal(err)
	}
	if report, err := Import(t.Context(), o); err != nil || report.Dropped[Part] != 0 || len(report.Tasks) != 0 {
		t.Errorf("where it is no task: %+v, %v", report, err)
	}
}

// TestDeclared: an instruction tells of the declarations of a fix that its tests name, and of
// nothing that they stand for.
func TestDeclared(t *testing.T) {
	const patch = "--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,9 @@\n+func (r *Route) Use(all ...map[string]interface{}) (*Route, error) { return secret(r), nil }\n+func secret(r *Route) *Route {\n" +
		"-func Changed(a int) {\n+func Changed(a, b int) {\n+func Map[T any](list []T) []T {\n+\tfunc Inner() {\n+var Flag = \"secret\"\n+type Shape struct {\n func Old() {\n" +
		"--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,9 @@\n+class Pad(Base):\n+    async def pad(self, s: str, n=1) -> dict[str, int]: return secret\n+    def left(self): return secret(self)\n+def unused():\n"
	tests := "--- a/a_test.go\n+++ b/unused_test.go\n@@ -1 +1 @@ func secret\n-unused()\n Old()\n"
	for _, name := range []string{"x.Use(1)", "Changed(1, 2)", "Map(x)", "Inner", "Flag", "Shape{}",
		"Pad().pad()", "left"} {
		tests += "+\t" + name + "\n"
	}
	want := "\n\nTests use these declarations:\n"
	for _, line := range []string{
		"func (r *Route) Use(all ...map[string]interface{}) (*Route, error)", "func Changed(a, b int)",
		"func Map[T any](list []T) []T", "var Flag", "type Shape struct", "class Pad(Base)",
		"async def pad(self, s: str, n=1) -> dict[str, int]", "def left(self)",
	} {
		want += "\n    " + line
	}
	if got := declared(patch, tests, "gotest"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := declared(patch, "+++ b/Use_test.go\n Use()\n", "gotest"); got != "" {
		t.Error(got)
	}
}

// TestHostileHistory: nothing that a repository or this process's environment names is run to read
// a commit, and its paths are no patterns.
func TestHostileHistory(t *testing.T) {
	h := newHistory(t)
	h.commit("base", map[string]string{".gitattributes": "*.go diff=evil\n",
		"a.go": "package a\n", "b.go": "package a\n"})
	h.commit("two", map[string]string{"a.go": "package b\n", "b.go": "package b\n", ":(glob)*.go": "package c\n"})
	marker := filepath.Join(t.TempDir(), "marker")
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+marker+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"diff.external", "diff.evil.textconv", "diff.evil.command", "core.pager",
		"core.fsmonitor", "gpg.program"} {
		h.git("config", key, program)
	}
	t.Setenv("GIT_EXTERNAL_DIFF", program)
	objects, head, err := swebench.Open(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	im := &importer{maker: maker{objects: objects}}
	list, err := im.walk(t.Context(), head)
	if err != nil || len(list) != 2 || list[1].parent != "" {
		t.Fatalf("%+v, %v", list, err)
	}
	changes, err := changesOf(t.Context(), objects, list[0])
	if _, reason := split(changes); err != nil || len(changes) != 3 || reason != Odd {
		t.Errorf("%+v, %v, %q", changes, err, reason)
	}
	patch, err := patchOf(t.Context(), objects, list[0], []string{":(glob)*.go"})
	if err != nil || strings.Count(patch, "diff --git") != 1 || !strings.Contains(patch, "+package c") {
		t.Errorf("%s, %v", patch, err)
	}
	if message, err := im.message(t.Context(), list[0]); err != nil || strings.TrimSpace(message) != "two" {
		t.Errorf("%q, %v", message, err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program ran")
	}
}

// TestSince: commits before a day are not looked at.
func TestSince(t *testing.T) {
	h := newHistory(t)
	h.commit("one", map[string]string{"a": "1"})
	h.commit("two", map[string]string{"a": "2"})
	o := Options{Repository: h.dir, Dir: t.TempDir(), Since: h.at.Add(-time.Hour)}
	report, err := Import(t.Context(), o)
	if err != nil || report.Found != 1 || report.Dropped[Prose] != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	o.Since = time.Time{}
	if report, err = Import(t.Context(), o); err != nil || report.Found != 2 || report.Dropped[NoParent] != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestModFiles: a submodule is no go.mod, and one that is longer than what is
// read is the commit's doing.
func TestModFiles(t *testing.T) {
	h := newHistory(t)
	id := h.commit("base", map[string]string{"a/go.mod": "module a.test/a\n",
		"a/go.sum": strings.Repeat("a", maxModBytes)})
	// without it, Git would take the submodule out again
	if err := os.Mkdir(filepath.Join(h.dir, "go.mod"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.git("update-index", "--add", "--cacheinfo", "160000,"+id+",go.mod")
	head := h.commit("two", map[string]string{"b.go": "package a\n"})
	objects, _, err := swebench.Open(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	im := &importer{maker: maker{objects: objects}}
	names, err := treeOf(t.Context(), objects, head)
	if want := []string{"a/go.mod", "a/go.sum", "b.go"}; err != nil ||
		!slices.Equal(slices.Sorted(maps.Keys(names)), want) {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := im.modFiles(t.Context(), head, names); !errors.Is(err, errTooLong) {
		t.Error(err)
	}
	delete(names, "a/go.sum")
	if files, err := im.modFiles(t.Context(), head, names); err != nil ||
		string(files["a/go.mod"]) != "module a.test/a\n" {
		t.Errorf("%q, %v", files, err)
	}
}

// TestDone: what this machine did not have, or had no time for, is tried again.
func TestDone(t *testing.T) {
	for name, c := range map[string]struct {
		outcome Outcome
		want    bool
	}{
		"a task":           {Outcome{Task: "a"}, true},
		"another reason":   {Outcome{Reason: NoTests}, true},
		"as long as then":  {Outcome{Reason: Slow, Limit: 60}, true},
		"longer than then": {Outcome{Reason: Slow, Limit: 59}, false},
		"no modules":       {Outcome{Reason: Unfetched}, false},
		"an older Go":      {Outcome{Reason: NewerGo}, false},
		"slow modules":     {Outcome{Reason: SlowModules}, true},
	} {
		im := &importer{maker: maker{Options: Options{Timeout: time.Minute}},
			state: state{Commits: map[string]Outcome{"a": c.outcome}}, failed: []string{"a"}}
		if im.isDecided(commit{id: "a"}) != c.want || im.isDecided(commit{id: "b"}) {
			t.Error(name)
		}
		if r := im.report([]commit{{id: "a"}, {id: "b"}}); r.Left != 1 || len(r.Dropped) > 0 || len(r.Tasks) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestState: what cannot be read is refused, a task that was taken out of the folder stays out, and
// one that is there without a state counts.
func TestState(t *testing.T) {
	h := newHistory(t)
	first := h.commit("one", map[string]string{"a": "1"})
	second := h.commit("two", map[string]string{"a": "2"})
	o := Options{Repository: h.dir, Dir: t.TempDir()}
	file := filepath.Join(o.Dir, StateFile)
	for _, text := range []string{"", "{", "[]", `{"version": 1, "outcomes": {}}`, `{"version": 2}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), StateFile) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"version": 2, "outcomes": {%q: {"task": "stock-gone"}}}`, first),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(o.Dir, "stock-"+second[:12]), 0o755); err != nil {
		t.Fatal(err)
	}
	report, err := Import(t.Context(), o)
	if err != nil || report.Dropped[Removed] != 1 || !slices.Equal(report.Tasks, []string{"stock-" + second[:12]}) {
		t.Errorf("%+v, %v", report, err)
	}
	im := importer{maker: maker{Options: Options{Timeout: time.Minute}}, state: state{Commits: map[string]Outcome{
		"slow": {Reason: Slow, Limit: 60}, "slower": {Reason: Slow, Limit: 59}, "other": {Reason: Flaky},
	}}}
	if !im.isDecided(commit{id: "slow"}) || im.isDecided(commit{id: "slower"}) || !im.isDecided(commit{id: "other"}) ||
		im.isDecided(commit{id: "new"}) {
		t.Error("what took too long is tried again with more time, and nothing else is")
	}
}
