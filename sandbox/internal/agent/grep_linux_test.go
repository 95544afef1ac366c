package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := writeFile(filepath.Join(dir, name), []byte(content), 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGrep(t *testing.T) {
	dir := tree(t, map[string]string{
		"a.go":          "package a\n\nfunc One() {}\nfunc Two() {}\n// end\n",
		"b/c.txt":       "one\r\nTwo\nthree\n",
		"b/d.go":        "func Three() {\n}\n",
		"no-newline.sh": "func last",
		".hidden":       "func hidden",
		".git/config":   "func git",
		"binary":        "func\x00binary",
		"x,y.md":        "comma",

		"b/node_modules/p/i.js": "func packed",
	})
	tests := []struct {
		name  string
		query wire.Grep
		want  string
	}{
		{"content", wire.Grep{Pattern: `^func \w+`},
			"a.go:3:func One() {}\na.go:4:func Two() {}\nb/d.go:1:func Three() {\nno-newline.sh:1:func last\n"},
		{"files", wire.Grep{Pattern: "func", Mode: "files_with_matches"}, "a.go\nb/d.go\nno-newline.sh\n"},
		{"count", wire.Grep{Pattern: "func", Mode: "count"}, "a.go:2\nb/d.go:1\nno-newline.sh:1\n"},
		{"ignore case", wire.Grep{Pattern: "TWO", IgnoreCase: true}, "a.go:4:func Two() {}\nb/c.txt:2:Two\n"},
		{"line end", wire.Grep{Pattern: "one$"}, "b/c.txt:1:one\n"},
		{"glob by name", wire.Grep{Pattern: "func", Glob: "*.go"},
			"a.go:3:func One() {}\na.go:4:func Two() {}\nb/d.go:1:func Three() {\n"},
		{"glob by path", wire.Grep{Pattern: "func", Glob: "b/*.{go,txt}"}, "b/d.go:1:func Three() {\n"},
		{"glob with comma", wire.Grep{Pattern: "comma", Glob: "x,y.*"}, "x,y.md:1:comma\n"},
		{"type", wire.Grep{Pattern: "func", Type: "sh"}, "no-newline.sh:1:func last\n"},
		{"context", wire.Grep{Pattern: "Two", Before: 1, After: 1},
			"a.go-3-func One() {}\na.go:4:func Two() {}\na.go-5-// end\n--\nb/c.txt-1-one\nb/c.txt:2:Two\nb/c.txt-3-three\n"},
		{"context of neighbours", wire.Grep{Pattern: "^func", Glob: "a.go", Before: 1, After: 1},
			"a.go-2-\na.go:3:func One() {}\na.go:4:func Two() {}\na.go-5-// end\n"},
		{"several lines", wire.Grep{Pattern: `One.*?Two`, Multiline: true},
			"a.go:3:func One() {}\na.go:4:func Two() {}\n"},
		{"head limit", wire.Grep{Pattern: "func", HeadLimit: 1},
			"a.go:3:func One() {}\n[at least 1 shown; there may be more: head_limit is 1]\n"},
		{"label", wire.Grep{Pattern: "Three", Label: "src"}, "src/b/d.go:1:func Three() {\n"},
		{"nothing", wire.Grep{Pattern: "nowhere"}, ""},
		{"packages", wire.Grep{Pattern: "packed", Glob: "b/node_modules/**"}, "b/node_modules/p/i.js:1:func packed\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.query.MaxBytes, test.query.DeadlineSeconds = 1<<20, 60
			got, err := grep(dir, test.query)
			if err != nil || string(got) != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestGrepRefuses(t *testing.T) {
	dir := tree(t, map[string]string{"a": "a"})
	for name, query := range map[string]wire.Grep{
		"empty pattern": {}, "bad pattern": {Pattern: "("},
		"long pattern": {Pattern: strings.Repeat("a", maxPattern+1)},
		"bad mode":     {Pattern: "a", Mode: "all"}, "bad type": {Pattern: "a", Type: "cobol"},
		"bad glob":        {Pattern: "a", Glob: "{a"},
		"repetition bomb": {Pattern: "((a{1000}){1000}){1000}"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := grep(dir, query); !errors.Is(err, wire.ErrInvalid) {
				t.Errorf("%s: %q, %v; want ErrInvalid", name, out, err)
			}
		})
	}
	if _, err := grep(filepath.Join(dir, "nowhere"), wire.Grep{Pattern: "a"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder not there: %v", err)
	}
}

func TestGrepIsBounded(t *testing.T) {
	dir := tree(t, map[string]string{"a": strings.Repeat(strings.Repeat("x", 2000)+"\n", 2000)})
	out, err := grep(dir, wire.Grep{Pattern: "x", HeadLimit: 1 << 30, MaxBytes: 10_000, DeadlineSeconds: 60})
	if err != nil || len(out) > 11_000 || !strings.Contains(string(out), "there may be more") {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

// FuzzGlob: no pattern may hang or panic, and one without special characters matches itself only.
func FuzzGlob(f *testing.F) {
	for _, seed := range []string{"*.go", "src/**/*.{ts,tsx}", "[!a]?", "{a,{b,c}}", "**", "\\*", "[", "a]b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, glob string) {
		expression, err := compileGlob(glob)
		if err != nil {
			return
		}
		if glob != "" && !strings.ContainsAny(glob, `*?[]{}\/`+"\n") && strings.ToValidUTF8(glob, "") == glob &&
			!expression.MatchString(glob) {
			t.Errorf("%q does not match itself", glob)
		}
	})
}

// TestSearchesPassPackages: files of packages are found where a search is for them.
func TestSearchesPassPackages(t *testing.T) {
	dir := tree(t, map[string]string{"a.js": "x", "node_modules/p/a.js": "x", "b/node_modules/q/a.js": "x"})
	for name, c := range map[string]struct{ below, pattern, want string }{
		"of the project": {"", "*.js", "a.js"},
		"by a pattern":   {"", "**/node_modules/*/*.js", "b/node_modules/q/a.js node_modules/p/a.js"},
		"by a folder":    {"node_modules", "*.js", "p/a.js"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(dir, c.below)
			data, _, err := glob(root, wire.Grep{Glob: c.pattern, HeadLimit: 10,
				MaxBytes: 1 << 20, DeadlineSeconds: 60})
			names := strings.Fields(strings.ReplaceAll(string(data), "\x00", " "))
			slices.Sort(names)
			if strings.Join(names, " ") != c.want || err != nil {
				t.Errorf("found %q, %v, want %q", names, err, c.want)
			}
			out, err := grep(root, wire.Grep{Pattern: "x", Glob: c.pattern, Mode: "files_with_matches",
				MaxBytes: 1 << 20, DeadlineSeconds: 60})
			if got := strings.Join(strings.Fields(string(out)), " "); got != c.want || err != nil {
				t.Errorf("searched %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
