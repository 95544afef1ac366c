package tools

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// SearchTool is the name of the tool that searches by meaning.
const SearchTool = "codebase_search"

const (
	maxQuery      = 2000     // bytes of a question
	maxFoundText  = 24 << 10 // bytes of one answer
	maxFoundLines = 60       // lines of one part
)

// Search finds the parts of the workspace's files that answer a question, best first. A directory
// other than "", relative to the workspace, narrows it. An error is of the infrastructure.
type Search func(ctx context.Context, sb *sandbox.Sandbox, query, directory string) (Findings, error)

// Findings are what a search found.
type Findings struct {
	Parts []Part
	// Waited is how long it took until the index was there.
	Waited time.Duration
}

// Part is a range of lines of a file, counted from 1, the last included.
type Part struct {
	Path                string // relative to the workspace
	FirstLine, LastLine int
	Symbols             string // the declarations that it holds or lies in
}

type codebaseSearchArguments struct {
	Explanation       string   `json:"explanation"`
	Query             string   `json:"query"`
	TargetDirectories []string `json:"target_directories"`
	SearchOnlyPRs     bool     `json:"search_only_prs"`
}

// codebaseSearch is the tool itself. A run whose agents have it was given a search.
var codebaseSearch = decodedWork(func(ctx context.Context, w *work, a codebaseSearchArguments) (observation, error) {
	query := strings.TrimSpace(a.Query)
	switch {
	case query == "":
		return refusal("query is missing: ask a full question"), nil
	case len(query) > maxQuery:
		return refusal("query of %d bytes (limit %d)", len(query), maxQuery), nil
	case a.SearchOnlyPRs:
		return refusal("search_only_prs: pull requests are not indexed; search the code"), nil
	case len(a.TargetDirectories) > 1:
		return refusal("target_directories: name one, or none to search everything"), nil
	}
	directory := ""
	if len(a.TargetDirectories) == 1 {
		var ok bool
		if directory, ok = relativePath(w.sb.Workdir(), a.TargetDirectories[0]); !ok {
			return refusal("target_directories: %.200q is not a folder of the workspace; globs are not understood",
				a.TargetDirectories[0]), nil
		}
	}
	found, err := w.search(ctx, w.sb, query, directory)
	if err != nil {
		return observation{}, err
	}
	seen, err := present(ctx, w.sb, found)
	seen.waited = found.Waited
	return seen, err
})

// relativePath gives a folder's path relative to the workspace, "" for the workspace itself.
func relativePath(workdir, name string) (relative string, ok bool) {
	if strings.ContainsAny(name, "*?[\x00") {
		return "", false
	}
	clean := path.Clean(name)
	if path.IsAbs(clean) {
		if clean == workdir {
			return "", true
		}
		return strings.CutPrefix(clean, workdir+"/")
	}
	if clean == "." {
		return "", true
	}
	return clean, clean != ".." && !strings.HasPrefix(clean, "../")
}

// present shows what was found, with the text as it is in the sandbox now.
func present(ctx context.Context, sb *sandbox.Sandbox, found Findings) (observation, error) {
	var out strings.Builder
	for _, part := range found.Parts {
		if out.Len() > maxFoundText {
			break
		}
		data, err := sb.ReadFile(ctx, path.Join(sb.Workdir(), part.Path), maxRead)
		if errors.Is(err, sandbox.ErrClosed) || ctx.Err() != nil {
			return observation{}, errors.Join(err, ctx.Err())
		}
		if err != nil {
			continue // it was taken away, or is no file any more: the next call of this turn may have done that
		}
		lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		if part.FirstLine < 1 || part.FirstLine > len(lines) {
			continue
		}
		last := min(part.LastLine, len(lines), part.FirstLine+maxFoundLines-1)
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		fmt.Fprintf(&out, "%s:%d-%d", part.Path, part.FirstLine, part.LastLine)
		if part.Symbols != "" {
			fmt.Fprintf(&out, " %s", part.Symbols)
		}
		out.WriteString("\n" + numbered(lines, part.FirstLine-1, last, false))
		if rest := min(part.LastLine, len(lines)) - last; rest > 0 {
			fmt.Fprintf(&out, "[%d more lines]\n", rest)
		}
	}
	if out.Len() == 0 {
		return observation{content: "Nothing found."}, nil
	}
	return observation{content: out.String()}, nil
}
