// Package functions reads functions, and the sentences that say what they do, out of source trees:
// what the built-in embedder learns from, and what search is measured with.
package functions

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"go/doc"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/rondo-rl/rondo/index/source"
	"github.com/rondo-rl/rondo/index/words"
)

// Function is one that has a body.
type Function struct {
	Path     string // in its tree, with slashes
	Symbol   string // the name, behind its type's: Reader.Read
	Name     string
	Sentence string // the first one of its documentation, on one line
	Text     string // without the documentation
}

// Embedded is what an index embeds of the function: the line with the symbol, and the text.
func (f *Function) Embedded() string { return f.Symbol + "\n" + f.Text }

// Question is the sentence without the function's name.
func (f *Function) Question() string {
	var kept strings.Builder
	rest := f.Sentence
	for rest != "" {
		start := strings.IndexFunc(rest, nameRune)
		if start < 0 {
			kept.WriteString(rest)
			break
		}
		kept.WriteString(rest[:start])
		rest = rest[start:]
		end := strings.IndexFunc(rest, func(r rune) bool { return !nameRune(r) })
		if end < 0 {
			end = len(rest)
		}
		if rest[:end] != f.Name {
			kept.WriteString(rest[:end])
		}
		rest = rest[end:]
	}
	return strings.Join(strings.Fields(kept.String()), " ")
}

func nameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// SentenceDigest and TextDigest find the same function in two trees: the first by what it says of
// itself, the second by its words, so that a copy that was formatted anew or renamed its
// receiver's type is found, too.
func (f *Function) SentenceDigest() [sha256.Size]byte { return digest("sentence", f.Sentence) }

// TextDigest goes by the text from the function's name on.
func (f *Function) TextDigest() [sha256.Size]byte {
	text := f.Text
	if i := strings.Index(text, f.Name); i >= 0 {
		text = text[i:]
	}
	return digest("text", text)
}

func digest(of, text string) [sha256.Size]byte {
	return sha256.Sum256([]byte(of + "\x00" + strings.Join(words.Of(text), " ")))
}

const maxFile = 1 << 20

// Read gives the documented functions below a folder, in the order of their paths, of
// the files that Walk visits.
func Read(root string, skip func(folder string) bool) ([]Function, error) {
	var list []Function
	err := Walk(root, skip, func(name string, content []byte) {
		for _, f := range Of(name, content) {
			if f.Sentence != "" {
				list = append(list, f)
			}
		}
	})
	return list, err
}

// Of gives all functions of a file that have a body; Sentence is empty
// where nothing is said of one.
func Of(name string, content []byte) []Function {
	if path.Ext(name) == ".go" {
		return goFunctions(name, content)
	}
	return pythonFunctions(name, content)
}

// Walk visits the files in Go and Python below a folder that a person wrote and that are no tests,
// in the order of their paths, which have slashes. Skip is asked about folders, by their paths
// from the root, which is ".".
func Walk(root string, skip func(folder string) bool, visit func(name string, content []byte)) error {
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if base := path.Base(relative); base == "testdata" || base == "test" || base == "tests" ||
				base == "vendor" || skip != nil && skip(relative) {
				return fs.SkipDir
			}
			return nil
		}
		if ext := path.Ext(relative); !entry.Type().IsRegular() || test(relative) || ext != ".go" && ext != ".py" {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if len(content) <= maxFile && source.Classify(relative, content) == source.Indexed {
			visit(relative, content)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("functions below %s: %w", root, fs.ErrNotExist)
	}
	return err
}

func test(name string) bool {
	base := path.Base(name)
	return strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "test_") ||
		strings.HasSuffix(base, "_test.py") || base == "conftest.py"
}

// firstSentence of a comment, on one line; empty where it is a directive or a licence.
func firstSentence(comment string) string {
	paragraph, _, _ := strings.Cut(strings.TrimSpace(comment), "\n\n")
	var p doc.Package
	return p.Synopsis(paragraph)
}
