package ignore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func root(t *testing.T, files map[string]string, exclude string) *Folder {
	t.Helper()
	rules, err := Root(files, exclude)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func child(t *testing.T, f *Folder, name string, files map[string]string) *Folder {
	t.Helper()
	c, err := f.Child(name, files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Git knows no .rondoignore, so its precedence is held to this table.
func TestOwnFilesStandAboveGits(t *testing.T) {
	top := root(t, map[string]string{
		GitFile:    "*.log\nvendor/\n/docs/*.md\n",
		CursorFile: "!keep.log\nsecret*\n*.tmp\n",
		RondoFile:  "!secret.go\nsub/here\n",
	}, "*.excluded\n!x.log\n")
	sub := child(t, top, "sub", map[string]string{GitFile: "!deep.log\nkeep.log\n", RondoFile: "!a.tmp\n"})
	docs := child(t, top, "docs", nil)
	deep := child(t, child(t, docs, "more", nil), "docs", map[string]string{CursorFile: "*.md\n"})
	for _, c := range []struct {
		in     *Folder
		name   string
		folder bool
		want   bool
	}{
		{top, "a.log", false, true},
		{top, "keep.log", false, false},  // brought back
		{top, "x.log", false, true},      // .gitignore stands above info/exclude
		{top, "a.excluded", false, true}, // info/exclude
		{top, "secret.txt", false, true}, // .cursorignore
		{top, "secret.go", false, false}, // .rondoignore stands above .cursorignore
		{top, "vendor", true, true},      // a folder
		{top, "vendor", false, false},    // a file of that name
		{top, ".git", true, true},        // always
		{top, ".git", false, true},       // a worktree's
		{top, ".rondo", true, true},      // a plane
		{sub, "deep.log", false, false},  // the nearer .gitignore
		{sub, "keep.log", false, false},  // but our files stand above every .gitignore
		{sub, "a.tmp", false, false},     // the nearer .rondoignore
		{sub, "b.tmp", false, true},      // that says nothing of it
		{sub, "here", true, true},        // a path from the root
		{top, "here", true, false},       // is no name
		{docs, "x.md", false, true},      // anchored
		{child(t, docs, "in", nil), "x.md", false, false},
		{deep, "x.md", false, true}, // in a folder below others that have no files
		{deep, "x.go", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.Ignored(c.name, c.folder); got != c.want {
				t.Errorf("%q in %q (folder %v): ignored is %v", c.name, c.in.path, c.folder, got)
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestAbove(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".git/info/exclude"), "*.excluded\n")
	write(t, filepath.Join(dir, GitFile), "*.o\n/pkg/lib/x\n/pkg/\n")
	write(t, filepath.Join(dir, "pkg", RondoFile), "lib/y\n")
	write(t, filepath.Join(dir, "pkg/lib", GitFile), "never read\n*.own\n")
	rules, err := ReadParents(filepath.Join(dir, "pkg/lib"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.o": true, "a.excluded": true, "x": true, "y": true,
		"z": false, "a.own": false} {
		t.Run(name, func(t *testing.T) {
			if got := rules.Ignored(name, false); got != want {
				t.Errorf("%s: ignored is %v", name, got)
			}
		})
	}
	if rules, err = rules.Own(map[string]string{GitFile: "*.own\n/z\n"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.own", "z", "x"} {
		if !rules.Ignored(name, false) {
			t.Errorf("%s is not ignored", name)
		}
	}
}

func TestOutsideOfARepository(t *testing.T) {
	rules, err := ReadParents(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if rules.Ignored("a", false) || !rules.Ignored(".git", true) {
		t.Error("rules where there are none")
	}
}

func TestExcludeOfAWorktree(t *testing.T) {
	dir := newRepository(t)
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	tree := filepath.Join(t.TempDir(), "tree")
	git("commit", "--quiet", "--allow-empty", "-m", "first")
	git("worktree", "add", "--quiet", "-b", "other", tree)
	write(t, filepath.Join(dir, ".git/info/exclude"), "*.excluded\n")
	rules, err := ReadParents(tree)
	if err != nil {
		t.Fatal(err)
	}
	if !rules.Ignored("a.excluded", false) {
		t.Error("the repository's exclude file does not count in its worktree")
	}
}

// Rules that cannot be read must not be taken for none.
func TestUnreadableRulesAreErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".git/info/exclude"), strings.Repeat("x", MaxFile+1))
	if _, err := ReadParents(dir); err == nil || !strings.Contains(err.Error(), "exclude") {
		t.Errorf("a huge exclude file: %v", err)
	}
	write(t, filepath.Join(dir, ".git/info/exclude"), "")
	write(t, filepath.Join(dir, GitFile), strings.Repeat("x\n", maxPatterns+1))
	if _, err := ReadParents(filepath.Join(dir, "sub")); err == nil || !strings.Contains(err.Error(), "patterns") {
		t.Errorf("too many patterns: %v", err)
	}
	write(t, filepath.Join(dir, "linked/.git"), "nonsense")
	if _, err := ReadParents(filepath.Join(dir, "linked")); err == nil {
		t.Error("a .git file that names nothing is accepted")
	}
	rules := root(t, nil, "")
	var err error
	for range 3 {
		if err == nil {
			rules, err = rules.Child("a", map[string]string{GitFile: strings.Repeat("x\n", maxPatterns)})
		}
	}
	if err == nil || !strings.Contains(err.Error(), "above") {
		t.Errorf("the sum of patterns has no bound: %v", err)
	}
}

func TestLinkedIgnoreFileIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".git/info/exclude"), "")
	write(t, filepath.Join(dir, "rules"), "*.o\n")
	if err := os.Symlink("rules", filepath.Join(dir, GitFile)); err != nil {
		t.Fatal(err)
	}
	rules, err := ReadParents(filepath.Join(dir, "sub"))
	if err != nil {
		t.Fatal(err)
	}
	if rules.Ignored("a.o", false) {
		t.Error("a linked ignore file counts; for Git it does not")
	}
}

// Git's own matcher takes exponential time for this.
func TestHostileGlobsEnd(t *testing.T) {
	start := time.Now()
	for _, glob := range []string{strings.Repeat("*a", 200) + "b", strings.Repeat("**/*a", 100) + "b",
		strings.Repeat("?*", 300) + "/b"} {
		rules := root(t, map[string]string{GitFile: glob + "\n/x/" + glob}, "")
		at := child(t, rules, "x", nil)
		for range 20 {
			at = child(t, at, strings.Repeat("a", 150), nil)
		}
		if at.Ignored(strings.Repeat("a", 250), false) {
			t.Errorf("%.20s… matches", glob)
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func BenchmarkIgnored(b *testing.B) {
	text := "node_modules/\n*.o\n*.pyc\n/build/\n!important.o\n**/dist/**\ndocs/**/*.html\n" +
		strings.Repeat("*.x[0-9]\nname\n", 40)
	rules, err := Root(map[string]string{GitFile: text}, "")
	if err != nil {
		b.Fatal(err)
	}
	if rules, err = rules.Child("pkg", nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		rules.Ignored("service.go", false)
	}
}
