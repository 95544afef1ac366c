// Package quality measures how well an index finds functions by what is said of them: by the first
// sentence of their documentation, without their name. What is searched has no documentation in it.
package quality

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/bench/index/quality/functions"
	"github.com/rondo-rl/rondo/index/words"
)

// Set is what is searched, and what is asked.
type Set struct {
	Functions []functions.Function
	Questions []Question
}

// Question has one right answer.
type Question struct {
	Text   string
	Answer int // of the functions
}

// leastWords of a question: fewer say nothing.
const leastWords = 3

// New asks up to a count of questions about functions. They are drawn by a hash, so the same
// functions give the same questions, and a question that is another function's, too, is not asked:
// platforms have functions that say the same.
func New(list []functions.Function, count int) *Set {
	type candidate struct {
		Question
		order [sha256.Size]byte
	}
	said := map[string]int{}
	keys := make([]string, len(list))
	for i := range list {
		if w := words.Of(list[i].Question()); len(w) >= leastWords {
			keys[i] = strings.Join(w, " ")
			said[keys[i]]++
		}
	}
	var candidates []candidate
	for i := range list {
		if f := &list[i]; said[keys[i]] == 1 && !strings.HasPrefix(f.Sentence, "Deprecated") {
			candidates = append(candidates, candidate{
				Question{Text: f.Question(), Answer: i},
				sha256.Sum256([]byte(f.Path + "\x00" + f.Symbol + "\x00" + keys[i])),
			})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(bytes.Compare(a.order[:], b.order[:]), cmp.Compare(a.Answer, b.Answer))
	})
	s := &Set{Functions: list}
	for _, c := range candidates[:min(count, len(candidates))] {
		s.Questions = append(s.Questions, c.Question)
	}
	return s
}

// Go gives the functions of Go's standard library without its commands, whose
// place the go command says.
func Go(ctx context.Context) ([]functions.Function, error) {
	root, err := GoRoot(ctx)
	if err != nil {
		return nil, err
	}
	return functions.Read(root, func(folder string) bool { return folder == "cmd" })
}

// GoRoot is the folder of Go's standard library.
func GoRoot(ctx context.Context) (string, error) {
	root, err := said(ctx, "go", "env", "GOROOT")
	return filepath.Join(root, "src"), err
}

// Python gives the functions of Python's standard library, whose place python3 says.
func Python(ctx context.Context) ([]functions.Function, error) {
	root, err := said(ctx, "python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))")
	if err != nil {
		return nil, err
	}
	return functions.Read(root, func(folder string) bool {
		switch path.Base(folder) {
		case "site-packages", "dist-packages", "idlelib", "lib2to3", "ensurepip", "__pycache__":
			return true
		}
		return false
	})
}

func said(ctx context.Context, command string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, command, args...).Output()
	return strings.TrimSpace(string(out)), err
}
