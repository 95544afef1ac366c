package scorer

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
)

// measure adds to the verifier's components what the run's scoring asks for of
// the rollout and its change.
func measure(s runfile.Scoring, r *events.Rollout, w work, components map[string]float64) (map[string]float64, error) {
	components = maps.Clone(components)
	if s.Effort != nil {
		measureEffort(r, components)
	}
	if s.Hygiene() {
		e, err := edits(w)
		if err != nil {
			return nil, err
		}
		e.measure(components)
	}
	return s.Derive(components), nil
}

func measureEffort(r *events.Rollout, components map[string]float64) {
	tokens, seconds := int64(0), 0.0
	own := r.Taken()[r.Copied:] // what a fork has of its origin was no effort of its own
	for _, turn := range own {
		tokens = events.AddTokens(tokens, int64(turn.CompletionTokens))
		for _, result := range r.Tools.Answer(turn.Turn).Results {
			// an answer that was known took its time once
			seconds += max(0, result.DurationMS, result.OriginalMS) / 1000
		}
	}
	components[runfile.EffortTurns], components[runfile.EffortTokens], components[runfile.EffortToolSeconds] = float64(
		len(own)), float64(tokens), seconds
}

// litter are names that tools and editors leave behind and that no repository means to hold.
var litter = regexp.MustCompile(`(\.(orig|rej|bak|tmp|swp|swo|pyc)|~|(^|/)(\.DS_Store|core|nohup\.out|a\.out))$`)

// edited is one text file before and after; a binary one, or one above a size, is left out.
type edited struct {
	name          string
	before, after []byte
}

// change is what a rollout did to the files of its workspace.
type change struct {
	files []edited
	added []string // all names that were not there before
}

// maxEdited bounds what is compared of one file, in bytes, and maxFiles how many are.
const (
	maxEdited = 1 << 20
	maxFiles  = 2000
)

// work is what a rollout has left of its workspace, as a change against the snapshot, with what of
// it the stages of its task have brought.
type work struct {
	snapshot, change sandbox.Source
	brought          map[string]originalFile
}

// edits compares what the agent was given with what its work makes of it.
func edits(w work) (change, error) {
	var c change
	paths, err := sandbox.Contents(w.change)
	if err != nil || len(paths) == 0 {
		return c, err
	}
	given, err := sandbox.Tree(maxEdited, w.snapshot, nil)
	if err != nil {
		return c, err
	}
	after, err := sandbox.Tree(maxEdited, w.snapshot, w.change)
	if err != nil {
		return c, err
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		if !fs.ValidPath(name) { // it is not UTF-8
			continue
		}
		old, ok := w.brought[name]
		if !ok {
			if old, err = beforeIn(given, name); err != nil {
				return c, err
			}
		}
		now, err := textOf(after, name)
		if err != nil {
			return c, err
		}
		if !old.there {
			c.added = append(c.added, name)
		}
		if !bytes.Equal(old.text, now) && len(c.files) < maxFiles && !strings.HasPrefix(name, ".git/") {
			c.files = append(c.files, edited{name, old.text, now})
		}
	}
	return c, nil
}

// beforeIn is a path as a tree has it.
func beforeIn(tree fs.FS, name string) (originalFile, error) {
	text, err := textOf(tree, name)
	_, missing := fs.Lstat(tree, name)
	return originalFile{text, !errors.Is(missing, fs.ErrNotExist)}, err
}

// textOf is a file's text, nil where there is no text file.
func textOf(tree fs.FS, name string) ([]byte, error) {
	info, err := fs.Lstat(tree, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(tree, name)
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, err
	}
	return data, err
}

func (c change) measure(components map[string]float64) {
	lines, blank := 0, 0
	for _, f := range c.files {
		removed, added := differing(f.before, f.after)
		lines += len(removed) + len(added)
		blank += whitespaceOnly(removed, added)
	}
	left := 0
	for _, name := range c.added {
		if litter.MatchString(path.Clean(name)) {
			left++
		}
	}
	components[runfile.HygieneLines], components[runfile.HygieneLitter] = float64(lines), float64(left)
	components[runfile.HygieneWhitespace] = 0
	if lines > 0 {
		components[runfile.HygieneWhitespace] = float64(blank) / float64(lines)
	}
}

// differing are the lines that one text has and the other has not, counted: a line that moves is no
// difference. It takes time in proportion to the texts, however they differ.
func differing(before, after []byte) (removed, added []string) {
	count := map[string]int{}
	for line := range strings.Lines(string(before)) {
		count[line]--
	}
	for line := range strings.Lines(string(after)) {
		count[line]++
	}
	for line, n := range count {
		for ; n < 0; n++ {
			removed = append(removed, line)
		}
		for ; n > 0; n-- {
			added = append(added, line)
		}
	}
	return removed, added
}

// whitespaceOnly counts the lines of both sides that are the same but for
// white space, and blank ones.
func whitespaceOnly(removed, added []string) int {
	bare := func(line string) string { return strings.Join(strings.Fields(line), "") }
	gone := map[string]int{}
	blank := 0
	for _, line := range removed {
		if key := bare(line); key == "" {
			blank++
		} else {
			gone[key]++
		}
	}
	for _, line := range added {
		key := bare(line)
		switch {
		case key == "":
			blank++
		case gone[key] > 0:
			gone[key]--
			blank += 2
		}
	}
	return blank
}
