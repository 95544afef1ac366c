package index

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/bench/index/quality"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage/dir"
)

// Tree is what an index of a tree costs.
type Tree struct {
	Times         int      `json:"times"` // as large as Go's standard library
	Files         int      `json:"files"`
	Chunks        int64    `json:"chunks"`
	SourceBytes   int64    `json:"source_bytes"`
	FullMS        float64  `json:"full_ms"`
	FullCPU       float64  `json:"full_cpu_ms"` // of all processors together
	UnchangedMS   float64  `json:"unchanged_ms"`
	UnchangedCPU  float64  `json:"unchanged_cpu_ms"`
	BytesPerChunk float64  `json:"bytes_per_chunk"`
	Updates       []Update `json:"updates"`
	// GrepMS is what a search for one word in all files takes, by ripgrep or else by grep;
	// QueryMS one by the index.
	Grep    string  `json:"grep"`
	GrepMS  float64 `json:"grep_ms"`
	QueryMS float64 `json:"query_ms"`
}

// Update is what it takes until files that changed are found again: the median of some.
type Update struct {
	Files int     `json:"files"`
	MS    float64 `json:"ms"`
	CPU   float64 `json:"cpu_ms"`
}

// rounds of updates by the files that change in each.
var rounds = []struct{ files, times int }{{1, 5}, {10, 5}, {1000, 1}}

func (r *Result) trees(ctx context.Context, o Options, folder string, show func(string)) error {
	sizes := []int{1}
	if o.Times > 1 {
		sizes = append(sizes, o.Times)
	}
	for _, times := range sizes {
		t, err := measureTree(ctx, filepath.Join(folder, fmt.Sprintf("tree-%d", times)), times, show)
		if err != nil {
			return err
		}
		r.Trees = append(r.Trees, t)
	}
	return nil
}

func measureTree(ctx context.Context, folder string, times int, show func(string)) (Tree, error) {
	t := Tree{Times: times}
	source := filepath.Join(folder, "source")
	show(fmt.Sprintf("%d times Go's standard library: writing it", times))
	files, err := copies(ctx, source, times)
	if err != nil {
		return t, err
	}
	t.Files = len(files)
	if t.SourceBytes, err = bytesBelow(source); err != nil {
		return t, err
	}
	store, err := dir.Open(filepath.Join(folder, "store"))
	if err != nil {
		return t, err
	}
	defer store.Close()
	defer os.RemoveAll(folder)
	f := update.Folder{
		Index: update.Index{Store: store, Keys: seal.New(seal.Key{1}), Repo: "bench", Embedder: embed.Static()},
		Dir:   source, StateFile: filepath.Join(folder, "state"),
	}
	sync := func(what string) (took, error) {
		return measure(func() error {
			state, err := f.Sync(ctx, func(p update.Progress) {
				show(fmt.Sprintf("%d times: %s: %d of %d files", times, what, p.Done, p.Files))
			})
			t.Chunks = int64(state.Chunks)
			return err
		})
	}
	full, err := sync("first index")
	if err != nil {
		return t, err
	}
	size, err := bytesBelow(filepath.Join(folder, "store"))
	if err != nil {
		return t, err
	}
	t.BytesPerChunk = float64(size) / float64(max(1, t.Chunks))
	unchanged, err := sync("unchanged")
	if err != nil {
		return t, err
	}
	t.FullMS, t.FullCPU, t.UnchangedMS, t.UnchangedCPU = full.passed, full.processor,
		unchanged.passed, unchanged.processor
	if err := t.search(ctx, &f, source); err != nil {
		return t, err
	}
	next := 0
	for _, round := range rounds {
		var taken, processor []float64
		for range round.times {
			for range min(round.files, len(files)) {
				if err := edit(files[next%len(files)], next); err != nil {
					return t, err
				}
				next++
			}
			one, err := sync(fmt.Sprintf("%d files changed", round.files))
			if err != nil {
				return t, err
			}
			taken, processor = append(taken, one.passed), append(processor, one.processor)
		}
		t.Updates = append(t.Updates, Update{min(round.files, len(files)), percentile(taken, 0.5),
			percentile(processor, 0.5)})
	}
	return t, nil
}

// search asks the index, and reads all files for one word.
func (t *Tree) search(ctx context.Context, f *update.Folder, source string) error {
	base, err := f.Load(ctx)
	if err != nil {
		return err
	}
	var taken []float64
	for range 5 {
		began := time.Now()
		if _, err := f.Ask(ctx, base, "where are the headers of a request written", "", 10); err != nil {
			return err
		}
		taken = append(taken, milliseconds(time.Since(began)))
	}
	t.QueryMS = percentile(taken, 0.5)
	command := exec.CommandContext(ctx, "grep", "-rl", "WriteHeader", source)
	if _, err := exec.LookPath("rg"); err == nil {
		command = exec.CommandContext(ctx, "rg", "-l", "WriteHeader", source)
	}
	t.Grep = filepath.Base(command.Path)
	began := time.Now()
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	t.GrepMS = milliseconds(time.Since(began))
	return nil
}

// identifiers of four letters and more: shorter ones are keywords and the like.
var identifiers = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]{3,}`)

// copies writes the standard library so many times: the second and further ones with other
// identifiers, so that no chunk is like another.
func copies(ctx context.Context, to string, times int) ([]string, error) {
	list, err := quality.Go(ctx)
	if err != nil {
		return nil, err
	}
	root, err := quality.GoRoot(ctx)
	if err != nil {
		return nil, err
	}
	var files []string
	for copied := range times {
		done := map[string]bool{}
		for i := range list {
			name := list[i].Path
			if done[name] {
				continue
			}
			done[name] = true
			content, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return nil, err
			}
			if copied > 0 {
				content = identifiers.ReplaceAllFunc(content,
					func(word []byte) []byte { return fmt.Appendf(nil, "%sC%d", word, copied) })
			}
			at := filepath.Join(to, fmt.Sprintf("copy%d", copied), name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(at, content, fs.FileMode(0o644)); err != nil {
				return nil, err
			}
			files = append(files, at)
		}
	}
	return files, nil
}

// edit adds a function to a file.
func edit(name string, number int) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "\nfunc added%d() string {\n\treturn %q\n}\n", number,
		strings.Repeat(fmt.Sprint("added", number, " "), 3))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
