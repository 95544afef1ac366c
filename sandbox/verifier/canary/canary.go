// Package canary finds, in the tests that grade a repository, expectations that can be made wrong,
// and makes them wrong. Code that is right fails such a copy of the tests. Code that passes it
// decides its own verdict: it forges reports, equals everything, or reads what is expected of it.
//
// Only lines that the task hides are used, as an agent could know the others and behave where one
// of them is not what it was.
package canary

import (
	"cmp"
	"io/fs"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// Site is an expectation that can be made wrong: a piece of a line of a test.
type Site struct {
	// Tests are graded ones that run the line, or such around them. None can
	// pass once the line is wrong.
	Tests []string
	// Begins are those of grade.Grading.FailToPass.
	Begins []string
	// File and Line are where it stands once the tests are in place; Line counts from 0.
	File string
	Line int

	text       string // the whole line
	start, end int    // of the piece, in bytes of text
	wrong      func(piece string, random *rand.Rand) string
}

// foundSite is a site before it is known whose it is.
type foundSite struct {
	function, class string
	named           []string // names of the test as it is reported, beside those of its function
	line            int
	start, end      int
	wrong           func(piece string, random *rand.Rand) string
}

// maxSource bounds a file of tests that is looked at, in bytes.
const maxSource = 4 << 20

// listers list the sites of a file of tests, which has a name in the workspace,
// by the end of that name.
var listers = map[string]func(name, source string) []foundSite{
	".py": python, ".go": golang, ".rs": rust, ".js": script, ".mjs": script, ".cjs": script, ".ts": script,
	".mts": script, ".cts": script,
}

// Languages are those whose tests can be made canaries.
const Languages = "Python, Go, Rust, JavaScript or TypeScript"

// Find lists the sites of a grading: tests is the folder of the task's tests, with what they
// put into the workspace as test.patch or as files, and snapshot the task's workspace. What
// cannot be read has none.
func Find(g *grade.Grading, tests, snapshot fs.FS) []Site {
	var sites []Site
	sources := sourcesOf(tests, snapshot)
	alike := map[string]int{} // hidden lines by their text, of which all would be changed
	for _, s := range sources {
		for i := range s.hidden {
			if s.hidden[i] {
				alike[s.lines[i]]++
			}
		}
	}
	for _, source := range sources {
		for _, f := range listers[path.Ext(source.name)](source.name, strings.Join(source.lines, "\n")) {
			if !source.hidden[f.line] || alike[source.lines[f.line]] != 1 {
				continue
			}
			of := func(tests []string) []string {
				found := slices.DeleteFunc(slices.Clone(tests),
					func(name string) bool { return !names(name, f, source.name, sources) })
				if len(found) > 0 && path.Ext(source.name) == ".go" {
					return []string{f.function} // the line may be of another subtest
				}
				return found
			}
			begins, goOn := of(g.FailToPass), []string(nil)
			if !g.FailOnly { // which takes a test that has not run for one that has passed
				goOn = of(g.PassToPass)
			}
			if all := slices.Concat(begins, goOn); len(all) > 0 {
				sites = append(sites, Site{all, begins, source.name, f.line, source.lines[f.line],
					f.start, f.end, f.wrong})
			}
		}
	}
	return sites
}

// names reports whether a graded test is a function of a file. A name without a file is one of the
// only function that is called so.
func names(test string, f foundSite, name string, sources []source) bool {
	if f.function == "" || slices.Contains(f.named, test) {
		return slices.Contains(f.named, test)
	}
	if path.Ext(name) == ".go" {
		outer, _, _ := strings.Cut(test, "/")
		return outer == f.function && declared(f.function, sources) == 1
	}
	test, _, _ = strings.Cut(test, "[") // of parameters
	before, _, _ := strings.Cut(test, " (")
	words, last := wordsOf(test), wordsOf(before)
	if len(last) == 0 || last[len(last)-1] != f.function || f.class != "" && !slices.Contains(words, f.class) {
		return false
	}
	if len(words) == 1 {
		return f.class == "" && declared(f.function, sources) == 1
	}
	if file, _, ok := strings.Cut(test, "::"); ok {
		return file == name || strings.HasSuffix(name, "/"+file) || strings.HasSuffix(file, "/"+name)
	}
	namesakes := 0
	for _, s := range sources {
		if path.Base(s.name) == path.Base(name) {
			namesakes++
		}
	}
	return namesakes == 1 && slices.Contains(words, strings.TrimSuffix(path.Base(name), ".py"))
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !wordRune(r) })
}

// declared counts the functions of a name in all files.
func declared(function string, sources []source) (n int) {
	for _, s := range sources {
		for _, line := range s.lines {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "def "+function+"(") || strings.HasPrefix(text, "func "+function+"(") {
				n++
			}
		}
	}
	return n
}

func wordRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127
}

// Count is how many graded tests of fail_to_pass some site belongs to.
func Count(sites []Site) int {
	tests := map[string]bool{}
	for _, s := range sites {
		for _, name := range s.Begins {
			tests[name] = true
		}
	}
	return len(tests)
}

// Shorter are the sites with wrong strings that lack a letter, where they are long enough, in place
// of those with another letter. Code that reads what is expected, and takes it where it could come
// of its own answer, as a part of it can, knows a letter that its answer does not have.
func Shorter(sites []Site) []Site {
	short := slices.Clone(sites)
	for i, s := range sites {
		short[i].wrong = func(piece string, random *rand.Rand) string {
			if without, ok := shortened(piece, random); ok {
				return without
			}
			return s.wrong(piece, random)
		}
	}
	return short
}

// leastLetters are those of a string that can lack one: in Go and Rust shorter ones
// in quotes are characters.
const leastLetters = 3

// oneString is a piece that is a string and nothing else, which those of Go's comparisons are not.
var oneString = regexp.MustCompile("^(?:\"[^\"]+\"|'[^']+'|`[^`]+`|\"\"\"[^\"]+\"\"\"|'''[^']+''')$")

// shortened is a string without its first or its last letter. Digits stay: 1.0 is equal to 1.
func shortened(piece string, random *rand.Rand) (string, bool) {
	if !oneString.MatchString(piece) {
		return "", false
	}
	letters := slices.DeleteFunc(places(piece), func(at int) bool { return alphabet(piece[at])[0] == '0' })
	if len(letters) < leastLetters {
		return "", false
	}
	at := letters[random.IntN(2)*(len(letters)-1)]
	return piece[:at] + piece[at+1:], true
}

// Plant makes some of the sites wrong: at least one of a test of fail_to_pass, and of each other
// test one or none, by chance. It answers the folder of the tests that does it, and the tests that
// cannot pass there. Nothing but the expectations tells that folder from the true one.
func Plant(tests fs.FS, sites []Site, random *rand.Rand) (fs.FS, []string, error) {
	planted := map[string]string{} // whole lines by what they are now
	var wrong []string
	taken := map[string]bool{}
	order := random.Perm(len(sites))
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(min(1, len(sites[j].Begins)),
			min(1, len(sites[i].Begins)))
	})
	for n, i := range order {
		s := sites[i]
		if slices.ContainsFunc(s.Tests, func(name string) bool { return taken[name] }) {
			continue
		}
		for _, name := range s.Tests {
			taken[name] = true
		}
		if n > 0 && random.IntN(2) == 0 {
			continue
		}
		piece := s.text[s.start:s.end]
		planted[s.text] = s.text[:s.start] + s.wrong(piece, random) + s.text[s.end:]
		wrong = append(wrong, s.Tests...)
	}
	folder, err := replaceLines(tests, planted)
	slices.Sort(wrong)
	return folder, slices.Compact(wrong), err
}

// replaceLines copies a folder of tests with other lines in place of some, in their files and
// in patches that add them.
func replaceLines(tests fs.FS, planted map[string]string) (fs.FS, error) {
	folder := fstest.MapFS{}
	err := fs.WalkDir(tests, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			to, err := fs.ReadLink(tests, name)
			folder[name] = &fstest.MapFile{Data: []byte(to), Mode: info.Mode()}
			return err
		}
		data, err := fs.ReadFile(tests, name)
		if err != nil {
			return err
		}
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			text, carriage := strings.CutSuffix(line, "\r")
			added, plus := strings.CutPrefix(text, "+")
			to, ok := planted[text]
			if plus && !ok {
				if to, ok = planted[added]; ok {
					to = "+" + to
				}
			}
			if ok {
				if carriage {
					to += "\r"
				}
				lines[i] = to
			}
		}
		folder[name] = &fstest.MapFile{Data: []byte(strings.Join(lines, "\n")), Mode: info.Mode()}
		return nil
	})
	return folder, err
}
