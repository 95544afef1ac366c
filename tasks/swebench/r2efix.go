package swebench

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// r2eCommit is a commit as R2E-Gym has parsed it.
type r2eCommit struct {
	Files []r2eDiff `json:"file_diffs"`
}

type r2eDiff struct {
	Header struct {
		File r2ePath `json:"file"`
		Misc *string `json:"misc_line"` // such as "new file mode 100644"
	} `json:"header"`
	Binary bool     `json:"is_binary_file"`
	Minus  *r2ePath `json:"minus_file"`
	Plus   *r2ePath `json:"plus_file"`
	Hunks  []struct {
		Descriptor struct {
			Old     r2eRange `json:"old_range"`
			New     r2eRange `json:"new_range"`
			Section string   `json:"section"`
		} `json:"descriptor"`
		Group struct {
			Lines []struct {
				Content string `json:"content"`
				Type    string `json:"type"`
			} `json:"all_lines"`
		} `json:"line_group"`
	} `json:"hunks"`
}

type r2ePath struct {
	Path string `json:"path"`
}

type r2eRange struct {
	Start  int  `json:"start"`
	Length *int `json:"length"`
}

func (r r2eRange) String() string {
	if r.Length == nil {
		return fmt.Sprint(r.Start)
	}
	return fmt.Sprintf("%d,%d", r.Start, *r.Length)
}

// r2eSigns begin the lines of a patch.
var r2eSigns = map[string]string{"context": " ", "added": "+", "deleted": "-", "note": `\ `}

// fixOf is the patch of a commit's files but its tests. It is "" where a file that is no text
// belongs to it: the task has no solution then.
func fixOf(parsed string) (string, error) {
	var commit r2eCommit
	if err := json.Unmarshal([]byte(parsed), &commit); err != nil {
		return "", fmt.Errorf("parsed_commit_content: %w", err)
	}
	var patch strings.Builder
	for _, file := range commit.Files {
		if file.ofTests() {
			continue
		}
		if file.Binary {
			return "", nil
		}
		if err := file.write(&patch); err != nil {
			return "", fmt.Errorf("parsed_commit_content: %.100q: %w", file.Header.File.Path, err)
		}
	}
	return patch.String(), nil
}

// ofTests is R2E-Gym's own rule.
func (d r2eDiff) ofTests() bool {
	name := d.Header.File.Path
	return strings.HasSuffix(name, "_test.py") || strings.HasPrefix(path.Base(name), "test_") ||
		slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
			return slices.Contains([]string{"tests",
				"Tests", "test", "Test"}, part)
		})
}

func (d r2eDiff) write(patch *strings.Builder) error {
	fmt.Fprintf(patch, "diff --git a/%[1]s b/%[1]s\n", d.Header.File.Path)
	if d.Header.Misc != nil && *d.Header.Misc != "" {
		patch.WriteString(*d.Header.Misc + "\n")
	}
	if d.Minus != nil && d.Plus != nil {
		fmt.Fprintf(patch, "--- %s\n+++ %s\n", d.Minus.Path, d.Plus.Path)
	}
	for _, hunk := range d.Hunks {
		fmt.Fprintf(patch, "@@ -%s +%s @@", hunk.Descriptor.Old, hunk.Descriptor.New)
		if hunk.Descriptor.Section != "" {
			patch.WriteString(" " + hunk.Descriptor.Section)
		}
		patch.WriteByte('\n')
		for _, line := range hunk.Group.Lines {
			sign, known := r2eSigns[line.Type]
			if !known {
				return fmt.Errorf("a line of the type %.20q", line.Type)
			}
			patch.WriteString(sign + line.Content + "\n")
		}
	}
	return nil
}
