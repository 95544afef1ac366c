package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
)

type grepArguments struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	Glob       string `json:"glob"`
	OutputMode string `json:"output_mode"`
	After      int    `json:"-A"`
	Before     int    `json:"-B"`
	Context    int    `json:"-C"`
	IgnoreCase bool   `json:"-i"`
	Type       string `json:"type"`
	HeadLimit  int    `json:"head_limit"`
	Multiline  bool   `json:"multiline"`
}

func grep(ctx context.Context, sb *sandbox.Sandbox, a grepArguments) (observation, error) {
	if a.Pattern == "" {
		return refusal("pattern is missing"), nil
	}
	query := sandbox.Grep{
		Pattern: a.Pattern, Glob: a.Glob, Mode: a.OutputMode, Type: a.Type,
		IgnoreCase: a.IgnoreCase, Multiline: a.Multiline,
		Before: max(a.Before, a.Context), After: max(a.After, a.Context), HeadLimit: a.HeadLimit,
		Label: label(sb.Workdir(), a.Path),
	}
	out, err := sb.Grep(ctx, a.Path, query)
	if errors.Is(err, sandbox.ErrInvalid) {
		return refusal("%s", reason(err)), nil
	}
	if err != nil {
		return fileRefusal("search", a.Path, err)
	}
	if len(out) == 0 {
		return observation{content: "No matches."}, nil
	}
	return observation{content: string(out), hurried: bytes.HasSuffix(out,
		[]byte("the time for one search is over]\n"))}, nil
}

// maxFound bounds the paths that one search for files shows.
const maxFound = 500

type globArguments struct {
	GlobPattern     string `json:"glob_pattern"`
	TargetDirectory string `json:"target_directory"`
}

func globFileSearch(ctx context.Context, sb *sandbox.Sandbox, a globArguments) (observation, error) {
	if a.GlobPattern == "" {
		return refusal("glob_pattern is missing"), nil
	}
	names, complete, err := sb.Glob(ctx, a.TargetDirectory, a.GlobPattern, maxFound)
	if errors.Is(err, sandbox.ErrInvalid) {
		return refusal("%s", reason(err)), nil
	}
	if err != nil {
		return fileRefusal("search", a.TargetDirectory, err)
	}
	if len(names) == 0 && complete {
		return observation{content: "No files found."}, nil
	}
	var out strings.Builder
	folder := label(sb.Workdir(), a.TargetDirectory)
	for _, name := range names {
		out.WriteString(path.Join(folder, name) + "\n")
	}
	if !complete {
		fmt.Fprintf(&out, "[%d shown; there are more]\n", len(names))
	}
	return observation{content: out.String()}, nil
}

// label is how the searched path is called in the answer: relative to the
// workspace where it is in it.
func label(workdir, searched string) string {
	clean := path.Clean(searched)
	if relative, inside := strings.CutPrefix(clean, workdir+"/"); inside {
		return relative
	}
	if clean == "." || clean == workdir {
		return ""
	}
	return clean
}

// reason drops the part of an error that says in which sandbox it happened.
func reason(err error) string {
	text := err.Error()
	if _, rest, found := strings.Cut(text, "invalid"); found {
		return "invalid" + rest
	}
	return text
}
