package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/bench/index/quality"
	"github.com/rondo-rl/rondo/bench/index/quality/functions"
	"github.com/rondo-rl/rondo/index/embed/table"
	"github.com/rondo-rl/rondo/index/words"
)

// origin is a line of the list: where code to learn from is.
type origin struct {
	language string // go or python
	name     string // a module, or a package
	version  string
	licence  string
}

func readList(list []byte) ([]origin, error) {
	var origins []origin
	for i, line := range strings.Split(string(list), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "go" && fields[0] != "python" {
			return nil, fmt.Errorf("line %d: %q: want `go MODULE@VERSION LICENCE` or `python PACKAGE@VERSION LICENCE`",
				i+1, line)
		}
		name, version, _ := strings.Cut(fields[1], "@")
		origins = append(origins, origin{fields[0], name, version, fields[2]})
	}
	return origins, nil
}

// example is a question and the text that answers it.
type example struct {
	question, text string
	group          string // its module and folder: examples of one group are told apart
}

// read gives the examples of all origins, each once, without what quality is measured with.
func read(ctx context.Context, list []byte, python []string) ([]example, table.Corpus, error) {
	corpus := table.Corpus{Examples: map[string]int{}, List: digest(list)}
	origins, err := readList(list)
	if err != nil {
		return nil, corpus, err
	}
	folders, err := find(ctx, origins, python)
	if err != nil {
		return nil, corpus, err
	}
	c := collector{corpus: &corpus, content: sha256.New()}
	if c.known, err = measured(ctx, quality.Go, quality.Python); err != nil {
		return nil, corpus, err
	}
	for i, o := range origins {
		err := functions.Walk(folders[i], nil, func(name string, content []byte) { c.file(o, name, content) })
		if err != nil {
			return nil, corpus, err
		}
		corpus.Sources++
	}
	corpus.Content = hex.EncodeToString(c.content.Sum(nil))
	return c.examples, corpus, nil
}

// collector takes the examples out of files.
type collector struct {
	known    map[[sha256.Size]byte]mark
	corpus   *table.Corpus
	content  hash.Hash
	examples []example
}

const (
	leastQuestion = 2 // words
	leastText     = 40
	mostText      = 4 << 10 // bytes: some more than a chunk
)

// file takes what is said of functions, the names of those of which nothing is said, and comments
// with the code below. A file that holds one of the functions that quality is measured with may be
// a copy, and gives nothing.
func (c *collector) file(o origin, name string, content []byte) {
	list := functions.Of(name, content)
	withheld := false
	for i := range list {
		f := &list[i]
		if c.known[f.TextDigest()] == measuredWith || f.Sentence != "" && c.known[f.SentenceDigest()] == measuredWith {
			c.corpus.Withheld++
			withheld = true
		}
	}
	if withheld {
		return
	}
	group := o.name + "/" + path.Dir(name)
	for i := range list {
		f := &list[i]
		if f.Sentence != "" {
			c.add(o.language+" functions", example{f.Question(), f.Embedded(), group})
			continue
		}
		rest := functions.Function{Sentence: f.Text, Name: f.Name} // its text without its name, that is
		owner, _, _ := strings.Cut(f.Symbol, ".")
		c.add(o.language+" names", example{f.Name, owner + "\n" + rest.Question(), group})
	}
	for _, r := range remarks(string(content)) {
		c.add(o.language+" remarks", example{r.comment, r.code, group})
	}
}

func (c *collector) add(kind string, e example) {
	e.text = e.text[:min(len(e.text), mostText)]
	if len(words.Of(e.question)) < leastQuestion || len(e.text) < leastText {
		return
	}
	sum := sha256.Sum256([]byte(strings.Join(words.Of(e.text), " ")))
	if c.known[sum] != 0 {
		return
	}
	c.known[sum] = seen
	c.content.Write(sum[:])
	c.corpus.Examples[kind]++
	c.examples = append(c.examples, e)
}

type mark uint8

const (
	seen mark = iota + 1
	measuredWith
)

// measured gives the digests of what quality is measured with.
func measured(ctx context.Context, sources ...func(context.Context) ([]functions.Function,
	error)) (map[[sha256.Size]byte]mark, error) {
	marks := map[[sha256.Size]byte]mark{}
	for _, source := range sources {
		list, err := source(ctx)
		if err != nil {
			return nil, fmt.Errorf("functions to keep out: %w", err)
		}
		for i := range list {
			marks[list[i].SentenceDigest()], marks[list[i].TextDigest()] = measuredWith, measuredWith
		}
	}
	return marks, nil
}

// find gives the folder of each origin: of modules as the go command has or fetches them, of
// packages below the given folders.
func find(ctx context.Context, origins []origin, python []string) ([]string, error) {
	var modules []string
	for _, o := range origins {
		if o.language == "go" {
			modules = append(modules, o.name+"@"+o.version)
		}
	}
	dirs, err := download(ctx, modules)
	if err != nil {
		return nil, err
	}
	folders := make([]string, len(origins))
	for i, o := range origins {
		if o.language == "go" {
			folders[i] = dirs[o.name+"@"+o.version]
		} else if folders[i], err = findPackage(o, python); err != nil {
			return nil, err
		}
	}
	return folders, nil
}

func download(ctx context.Context, modules []string) (map[string]string, error) {
	slices.SortFunc(modules, cmp.Compare)
	command := exec.CommandContext(ctx, "go", append([]string{"mod", "download", "-json"}, modules...)...)
	command.Stderr = os.Stderr
	command.Dir = os.TempDir()      // outside of any module
	out, failed := command.Output() // which says of each module what went wrong
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir, Error string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) && failed != nil {
			return nil, fmt.Errorf("go mod download: %w", failed)
		} else if errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		if m.Error != "" {
			return nil, fmt.Errorf("go mod download %s@%s: %s", m.Path, m.Version, m.Error)
		}
		dirs[m.Path+"@"+m.Version] = m.Dir
	}
}

func findPackage(o origin, folders []string) (string, error) {
	for _, folder := range folders {
		for _, form := range []string{".dist-info", ".egg-info"} {
			if _, err := os.Stat(filepath.Join(folder, o.name+"-"+o.version+form)); err == nil {
				return filepath.Join(folder, o.name), nil
			}
		}
	}
	return "", fmt.Errorf("package %s %s is in none of %s", o.name, o.version, strings.Join(folders, ", "))
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
