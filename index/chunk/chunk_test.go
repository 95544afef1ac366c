package chunk

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// check holds the chunks of a file to what is promised of any, and gives them back.
func check(t testing.TB, path string, content []byte) []Chunk {
	t.Helper()
	chunks, err := Split(path, content)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	at, lines, valid := 0, 1, utf8.Valid(content)
	for i, c := range chunks {
		if c.Start < at || c.End <= c.Start || c.End > len(content) || c.End-c.Start > Max {
			t.Fatalf("%s: chunk %d has bytes %d to %d, the one before ends at %d", path, i, c.Start, c.End, at)
		}
		if !isBlank(content[at:c.Start]) {
			t.Fatalf("%s: %q is in no chunk", path, cutBytes(content[at:c.Start], 80))
		}
		lines += bytes.Count(content[at:c.Start], []byte("\n"))
		if c.FirstLine != lines {
			t.Fatalf("%s: chunk %d begins in line %d, not %d", path, i, lines, c.FirstLine)
		}
		lines += bytes.Count(content[c.Start:c.End], []byte("\n"))
		if c.LastLine != lines {
			t.Fatalf("%s: chunk %d ends in line %d, not %d", path, i, lines, c.LastLine)
		}
		if isBlank(content[c.Start:c.End]) || !utf8.ValidString(c.Text) ||
			valid && c.Text != string(content[c.Start:c.End]) {
			t.Fatalf("%s: the text of chunk %d is %q", path, i, c.Text)
		}
		if !utf8.ValidString(c.Symbols) || len(c.Symbols) > maxSymbols ||
			strings.ContainsAny(c.Symbols, "\n\r\x00\x1b") {
			t.Fatalf("%s: the symbols of chunk %d is %q", path, i, c.Symbols)
		}
		at = c.End
	}
	if !isBlank(content[at:]) {
		t.Fatalf("%s: %q is in no chunk", path, cutBytes(content[at:], 80))
	}
	return chunks
}

// sources are the files of a kind that the machine has, up to a number of bytes.
func sources(t testing.TB, root string, most int, extensions ...string) map[string][]byte {
	t.Helper()
	files, sum := map[string][]byte{}, 0
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !entry.Type().IsRegular() ||
			!slices.Contains(extensions, filepath.Ext(name)) {
			return nil // what cannot be read is none of this test's matter
		}
		info, err := entry.Info()
		if err != nil || info.Size() > 1<<20 {
			return nil
		}
		if sum += int(info.Size()); sum > most {
			return fs.SkipAll
		}
		files[name], err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func goRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestRealSources holds to the promises on whatever sources the machine has;
// those of Go it has always.
func TestRealSources(t *testing.T) {
	most := 6 << 20
	if testing.Short() {
		most = 1 << 20
	}
	root := goRoot(t)
	for _, c := range []struct {
		name, root string
		must       bool
		extensions []string
	}{
		{"Go", filepath.Join(root, "src"), true, []string{".go"}},
		{"assembly, text, HTML", root, false, []string{".s", ".txt", ".html", ".md", ".js", ".c", ".h", ".py",
			".sh", ".bash", ".json"}},
		{"Python", "/usr/lib/python3", false, []string{".py", ".pyi"}},
		{"JavaScript", "/usr/share/nodejs", false, []string{".js", ".ts", ".mjs", ".css"}},
		{"JavaScript", "/usr/lib/node_modules", false, []string{".js", ".ts", ".mjs", ".css", ".md"}},
		{"C and C++", "/usr/include", false, []string{".h", ".hpp", ".c"}},
		{"shell, Perl, Ruby, PHP", "/usr/share", false, []string{".sh", ".bash", ".rb", ".php", ".pl", ".java", ".rs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := sources(t, c.root, most, c.extensions...)
			if c.must && len(files) < 10 {
				t.Fatalf("only %d files below %s", len(files), c.root)
			}
			sum, n, named := 0, 0, 0
			for name, content := range files {
				relative, _ := filepath.Rel(c.root, name)
				for _, chunk := range check(t, relative, content) {
					sum += chunk.End - chunk.Start
					n++
					if chunk.Symbols != "" {
						named++
					}
				}
			}
			t.Logf("%d files, %d chunks of %d bytes on average, %d %% with a symbol", len(files), n,
				sum/max(n, 1), named*100/max(n, 1))
			if n > 1000 && (sum/n < 250 || sum/n > Max) {
				t.Errorf("chunks have %d bytes on average", sum/n)
			}
			if c.name == "Go" && named < n*9/10 {
				t.Errorf("only %d of %d chunks have a symbol", named, n)
			}
		})
	}
}

// TestTornSources cuts real files at random places and swaps parts, so that no
// structure is left to rely on.
func TestTornSources(t *testing.T) {
	files := sources(t, filepath.Join(goRoot(t), "src", "net"), 1<<20, ".go")
	r := rand.New(rand.NewPCG(1, 2))
	extensions := []string{"go", "py", "js", "java", "c", "rs", "sh", "php", "rb", "css", "md", "txt"}
	for name, content := range files {
		torn := bytes.Clone(content)
		for range 3 {
			a, b := r.IntN(len(torn)+1), r.IntN(len(torn)+1)
			torn = slices.Concat(torn[min(a, b):], torn[:min(a, b)])
			torn = append(torn, "\"'`/*<<EOF\xff\xf0{(["[r.IntN(16):]...)
		}
		for _, e := range extensions {
			check(t, name+"."+e, torn)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for i, seed := range []string{
		"package a\n\n// F is.\nfunc F() {}\n", "def f():\n    '''x\n'''\n", "a = /x[/]/; `a${`b`}c`\n",
		"'a' 'b r#\"x\"# /* /* */ */", "cat <<EOF\nx\nEOF\n",
		"# h\n\n```\n# no\n```\n", "\xff\xfe\x00", strings.Repeat("é", 2000),
		"#if 0\n#define A \\\n b\n#endif\n", "R\"x(\n)x\"",
	} {
		f.Add(uint8(i), []byte(seed))
	}
	extensions := []string{"go", "py", "js", "java", "c", "rs", "sh", "php", "rb", "css", "md", "txt"}
	f.Fuzz(func(t *testing.T, kind uint8, content []byte) {
		path := "f." + extensions[int(kind)%len(extensions)]
		first := check(t, path, content)
		if again := check(t, path, content); !slices.Equal(first, again) {
			t.Error("the same file came out otherwise")
		}
	})
}

// Hostile files must take linear time, or nearly.
func TestHostileFiles(t *testing.T) {
	n := 1 << 18
	for name, unit := range map[string]string{
		"a.go":   "package a\nvar x = " + strings.Repeat("(", 1000) + "\n",
		"b.go":   "}\n",
		"c.js":   "/[",
		"d.js":   "`${",
		"e.sh":   "cat <<A1\n",
		"f.rs":   "r#",
		"g.rs":   "'",
		"h.c":    "R\"(",
		"i.py":   "'''",
		"j.py":   " (",
		"k.md":   "```\n~~~\n",
		"l.txt":  "\n x\n",
		"m.c":    "a\n",
		"n.js":   "{\n",
		"o.java": "x(\\\n",
		"p.rs":   "/*",
		"q.php":  "#\n//",
		"r.js":   "a=function(\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			check(t, name, []byte(strings.Repeat(unit, n/len(unit))))
			if took := time.Since(start); took > 60*time.Second {
				t.Errorf("%s took %v", name, took)
			}
		})
	}
	deep := "package a\n\nvar x = " + strings.Repeat("func() { x := ", 20_000)
	check(t, "deep.go", []byte(deep))
	var steps strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&steps, "%sx\n", strings.Repeat(" ", i%700))
	}
	check(t, "steps.py", []byte(steps.String()))
}

func TestLimits(t *testing.T) {
	if _, err := Split("a.txt", make([]byte, MaxFile+1)); err == nil {
		t.Error("a file over the limit is cut")
	}
	for _, content := range []string{"", "\n", " \t\r\n\n"} {
		if chunks := check(t, "a.go", []byte(content)); len(chunks) != 0 {
			t.Errorf("%q has %d chunks", content, len(chunks))
		}
	}
	path := strings.Repeat("long/", 200) + "\x1b[31m\n\xff.go"
	check(t, path, []byte("package a\n"))
}

func TestEmbedded(t *testing.T) {
	a := Chunk{Symbols: "h", Text: "text", Start: 1, FirstLine: 1}
	b := Chunk{Symbols: "h", Text: "text", Start: 9, FirstLine: 3}
	if a.Embedded() != b.Embedded() {
		t.Error("what is embedded depends on the place")
	}
	for _, other := range []Chunk{{Symbols: "ht", Text: "ext"}, {Symbols: "h", Text: "texts"}, {Text: "htext"}} {
		if other.Embedded() == a.Embedded() {
			t.Errorf("%+v is embedded as another one", other)
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	kinds := []struct {
		name, root string
		extensions []string
	}{
		{"Go", filepath.Join(goRoot(b), "src/net"), []string{".go"}},
		{"Python", "/usr/lib/python3", []string{".py"}},
		{"JavaScript", "/usr/lib/node_modules", []string{".js"}},
		{"C", "/usr/include", []string{".h"}},
	}
	for _, kind := range kinds {
		files := sources(b, kind.root, 4<<20, kind.extensions...)
		sum := int64(0)
		for _, content := range files {
			sum += int64(len(content))
		}
		if sum == 0 {
			continue
		}
		b.Run(kind.name+"/read", func(b *testing.B) {
			b.SetBytes(sum)
			for b.Loop() {
				for name := range files {
					if _, err := os.ReadFile(name); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(kind.name+"/split", func(b *testing.B) {
			b.SetBytes(sum)
			for b.Loop() {
				for name, content := range files {
					if _, err := Split(name, content); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
