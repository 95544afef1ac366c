package tools

import (
	"context"
	"errors"
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
		Pattern: a.Pattern, Glob: a.Glob, Mode: a.OutputMode, Type: a.Type, IgnoreCase: a.IgnoreCase, Multiline: a.Multiline,
		Before: max(a.Before, a.Context), After: max(a.After, a.Context), HeadLimit: a.HeadLimit, Label: label(sb.Workdir(), a.Path),
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
	return observation{content: string(out)}, nil
}

// label is how the searched path is called in the answer: relative to the workspace where it lies in it.
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
