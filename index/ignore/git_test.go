package ignore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names are what trees are made of: short, so that patterns hit, and with all that
// has a meaning in a pattern.
var names = []string{
	"a", "b", "c", "ab", "abc", "a.b", ".a", "b.o", "A", "aa", "a b", "a ", "[a]", "*", "a\\b", "\\", "-", "]", "!a",
	"#a", "é", "\xff\xfe", "?", "^", "a-b", "**", "\t", "a\r",
}

// pieces are what patterns are made of.
var pieces = []string{
	"a", "b", "c", "ab", "a", "b", ".", "o", "/", "/", "/", "*", "*", "**", "**/", "/**", "/**/", "?", "***",
	"[ab]", "[!a]", "[^a-b]", "[a-c]", "[[:alpha:]]", "[[:upper:]x]", "[]a]", "[!]]", "[a-]", "[--b]", `[\]a]`,
	`[a\-c]`, "[[:nope:]]", "[[a]", "[", "]", "[[:space:]]", "[c-a]", "[[:alpha:]-z]", "[/]", "[!/]",
	`\`, `\*`, `\a`, `\/`, `\ `, `\[`, "!", "#", " ", "-", "^", "é", "\xff", "\t", "\r", "[é]", "[[:punct:]]",
	"[a-c-z]", "[[:", "[[:]", "[\\",
}

func randomLine(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(5) == 0 {
		b.WriteString("!")
	}
	if r.IntN(6) == 0 {
		b.WriteString("/")
	}
	for range 1 + r.IntN(5) {
		switch r.IntN(3) {
		case 0:
			b.WriteString(names[r.IntN(len(names))])
		default:
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
	}
	b.WriteString([]string{"", "", "", "/", " ", "\r"}[r.IntN(6)])
	return b.String()
}

func randomFile(r *rand.Rand) string {
	var b strings.Builder
	if r.IntN(20) == 0 {
		b.WriteString("\ufeff")
	}
	for range r.IntN(5) {
		b.WriteString(randomLine(r) + "\n")
	}
	return strings.TrimSuffix(b.String(), []string{"\n", ""}[r.IntN(2)])
}

// grow makes a random tree with ignore files; all are its paths, folders with true.
func grow(t testing.TB, r *rand.Rand, root, at string, depth int, all map[string]bool) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, at), 0o755); err != nil {
		t.Fatal(err)
	}
	if text := randomFile(r); depth == 0 || r.IntN(3) == 0 {
		if err := os.WriteFile(filepath.Join(root, at, GitFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		all[path.Join(at, GitFile)] = false
	}
	for range 2 + r.IntN(4) {
		name := path.Join(at, names[r.IntN(len(names))])
		if _, there := all[name]; there {
			continue
		}
		folder := depth < 3 && r.IntN(2) == 0
		all[name] = folder
		if folder {
			grow(t, r, root, name, depth+1, all)
		} else if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// gitSays asks Git which of the paths it ignores.
func gitSays(t testing.TB, root string, all map[string]bool) map[string]bool {
	t.Helper()
	var in bytes.Buffer
	for name := range all {
		in.WriteString(name + "\x00")
	}
	cmd := exec.Command("git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "-z", "--stdin")
	cmd.Dir, cmd.Stdin = root, &in
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState.ExitCode() != 1 { // 1: none is ignored
		exit, _ := errors.AsType[*exec.ExitError](err)
		t.Fatalf("git check-ignore: %v\n%s", err, exit.Stderr)
	}
	ignored := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		ignored[name] = true
	}
	return ignored
}

// weSay walks the tree as an indexer does.
func weSay(t testing.TB, rules *Folder, root, at string, ignored map[string]bool) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, at))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := path.Join(at, entry.Name())
		switch {
		case rules.Ignored(entry.Name(), entry.IsDir()):
			markBelow(t, root, name, ignored)
		case entry.IsDir():
			files, err := ignoreFiles(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			child, err := rules.Child(entry.Name(), files)
			if err != nil {
				t.Fatal(err)
			}
			weSay(t, child, root, name, ignored)
		}
	}
}

func markBelow(t testing.TB, root, name string, ignored map[string]bool) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, name), func(full string, _ os.DirEntry, err error) error {
		if err == nil {
			ignored[strings.TrimPrefix(full, root+"/")] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func newRepository(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no git to compare with")
	}
	root := t.TempDir()
	if out, err := exec.Command("git", "init", "--quiet", root).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return root
}

// TestLikeGit compares with `git check-ignore` over thousands of random trees, each with ignore
// files of its own in its folders.
func TestLikeGit(t *testing.T) {
	rounds, trees := 4, 200
	if testing.Short() {
		rounds, trees = 1, 100
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(round), 6))
			root := newRepository(t)
			all := map[string]bool{}
			for i := range trees {
				grow(t, r, root, fmt.Sprintf("tree%d", i), 0, all)
			}
			exclude := "**/tree1*/*c*/\n!/tree2?/[a-b]\ntree3*/" + randomLine(r)
			if err := os.WriteFile(filepath.Join(root, ".git/info/exclude"), []byte(exclude), 0o644); err != nil {
				t.Fatal(err)
			}
			compare(t, root, all)
		})
	}
}

func compare(t *testing.T, root string, all map[string]bool) {
	t.Helper()
	want := gitSays(t, root, all)
	rules, err := ReadParents(root)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ignoreFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	if rules, err = rules.Own(own); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	weSay(t, rules, root, "", got)
	delete(got, ".git")
	wrong, hits := 0, 0
	for name := range all {
		if want[name] {
			hits++
		}
		if got[name] == want[name] {
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("%q: ignored is %v, for Git %v%s", name, got[name], want[name], rulesOf(root, name))
		}
	}
	t.Logf("%d paths, %d ignored by Git, %d differ", len(all), hits, wrong)
	if hits < len(all)/50 || hits > len(all)*49/50 {
		t.Errorf("%d of %d paths are ignored: these trees show nothing", hits, len(all))
	}
}

// rulesOf shows the ignore files that bear on a path.
func rulesOf(root, name string) string {
	var b strings.Builder
	parts := strings.Split(name, "/")
	for i := range parts {
		file := path.Join(path.Join(parts[:i]...), GitFile)
		if text, err := os.ReadFile(filepath.Join(root, file)); err == nil {
			fmt.Fprintf(&b, "\n\t%s: %q", file, text)
		}
	}
	return b.String()
}

// FuzzLikeGit compares one line against one path.
func FuzzLikeGit(f *testing.F) {
	for _, seed := range [][2]string{
		{"a**/b", "axx/y/b"}, {"**/b", "b"}, {"a/**", "a/b"}, {"*/b", "a/b"}, {`\!a`, "!a"},
		{"a/**/b", "a/b"}, {"[!a]/b", "c/b"},
	} {
		f.Add(seed[0], seed[1])
	}
	root := newRepository(f)
	f.Fuzz(func(t *testing.T, text, name string) {
		dir := filepath.Join(root, "at")
		if len(text) > 200 || !usable(name) {
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			return
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			return
		}
		if err := os.WriteFile(filepath.Join(dir, GitFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		full := path.Join("at", name)
		want := gitSays(t, root, map[string]bool{full: false})[full]
		rules, err := Root(nil, "")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		weSay(t, rules, root, "", got)
		if got[full] != want {
			t.Errorf("%q with %q: ignored is %v, for Git %v", name, text, got[full], want)
		}
	})
}

// usable says whether a fuzzed name can be a file's, next to an ignore file, in a
// folder that Git looks into.
func usable(name string) bool {
	parts := strings.Split(name, "/")
	return len(name) < 60 && path.Clean(name) == name && !strings.HasPrefix(name, "/") &&
		!strings.Contains(name, "\x00") &&
		parts[0] != GitFile && name != "." &&
		!slices.ContainsFunc(parts, func(s string) bool {
			return s == ".." ||
				strings.EqualFold(s, ".git") || s == GitFile
		})
}
