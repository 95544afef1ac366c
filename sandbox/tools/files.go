package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
)

const (
	maxRead      = 16 << 20 // bytes of a file that can be read or edited
	maxReadLines = 2000     // lines of one answer
	maxReadText  = 96 << 10 // bytes of one answer
	maxReadLine  = 4000     // bytes of one line
	maxNames     = 2000     // names of one listing
)

type readFileArguments struct {
	TargetFile string `json:"target_file"`
	Offset     int    `json:"offset"`
	Limit      int    `json:"limit"`
}

func readFile(ctx context.Context, sb *sandbox.Sandbox, a readFileArguments) (observation, error) {
	if a.TargetFile == "" {
		return refusal("target_file is missing"), nil
	}
	data, err := sb.ReadFile(ctx, a.TargetFile, maxRead)
	if err != nil {
		return fileRefusal("read", a.TargetFile, err)
	}
	if len(data) == 0 {
		return observation{content: "File is empty."}, nil
	}
	if bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		return refusal("read %s: it is not a text file", a.TargetFile), nil
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	from := max(a.Offset, 1) - 1
	if from >= len(lines) {
		return refusal("offset %d is past the end: %s has %d lines", a.Offset, a.TargetFile, len(lines)), nil
	}
	count := maxReadLines
	if a.Limit > 0 {
		count = min(a.Limit, maxReadLines)
	}
	return observation{content: numbered(lines, from, min(from+count, len(lines)), a.Limit <= 0 ||
		a.Limit > maxReadLines)}, nil
}

// numbered shows lines from (counted from 0) up to, as far as one answer goes.
func numbered(lines []string, from, to int, tellRest bool) string {
	var out strings.Builder
	for i := from; i < to; i++ {
		line := lines[i]
		if len(line) > maxReadLine {
			line = line[:maxReadLine] + " [...]"
		}
		if out.Len()+len(line) > maxReadText {
			to, tellRest = i, true
			break
		}
		fmt.Fprintf(&out, "%d|%s\n", i+1, line)
	}
	if tellRest && to < len(lines) {
		fmt.Fprintf(&out, "[lines %d to %d of %d; read on with offset %d]\n", from+1, to, len(lines), to+1)
	}
	return out.String()
}

// fileRefusal says which file, and why not, in the model's words; what is not
// its doing stays an error.
func fileRefusal(action, name string, err error) (observation, error) {
	if why := InsideFault(err); why != "" {
		return refusal("%s %s: %s", action, name, why), nil
	}
	return observation{}, err
}

type writeArguments struct {
	FilePath string  `json:"file_path"`
	Contents *string `json:"contents"`
}

func writeFile(ctx context.Context, sb *sandbox.Sandbox, a writeArguments) (observation, error) {
	if a.FilePath == "" || a.Contents == nil {
		return refusal("file_path and contents are needed"), nil
	}
	if err := sb.WriteFile(ctx, a.FilePath, []byte(*a.Contents), 0); err != nil {
		return fileRefusal("write", a.FilePath, err)
	}
	return observation{content: fmt.Sprintf("Wrote %s (%d bytes).", a.FilePath, len(*a.Contents))}, nil
}

type searchReplaceArguments struct {
	FilePath   string  `json:"file_path"`
	OldString  *string `json:"old_string"`
	NewString  *string `json:"new_string"`
	ReplaceAll bool    `json:"replace_all"`
}

func searchReplace(ctx context.Context, sb *sandbox.Sandbox, a searchReplaceArguments) (observation, error) {
	switch {
	case a.FilePath == "" || a.OldString == nil || a.NewString == nil:
		return refusal("file_path, old_string and new_string are needed"), nil
	case *a.OldString == "":
		return refusal("old_string is empty; use write to make a file"), nil
	case *a.OldString == *a.NewString:
		return refusal("old_string and new_string are the same: nothing would change"), nil
	}
	data, err := sb.ReadFile(ctx, a.FilePath, maxRead)
	if errors.Is(err, fs.ErrNotExist) {
		return refusal("no such file: %s", a.FilePath), nil
	}
	if err != nil {
		return fileRefusal("edit", a.FilePath, err)
	}
	found := bytes.Count(data, []byte(*a.OldString))
	switch {
	case found == 0:
		return refusal("old_string was not found in %s: 0 matches%s", a.FilePath,
			nearMiss(string(data), *a.OldString)), nil
	case found > 1 && !a.ReplaceAll:
		return refusal("old_string is not unique in %s: %d matches; give more of the lines around it, or set replace_all",
			a.FilePath, found), nil
	}
	if size := len(data) + found*(len(*a.NewString)-len(*a.OldString)); size > maxRead {
		return refusal("%s would grow to %d bytes (limit %d)", a.FilePath, size, maxRead), nil
	}
	data = bytes.ReplaceAll(data, []byte(*a.OldString), []byte(*a.NewString))
	if err := sb.WriteFile(ctx, a.FilePath, data, 0); err != nil {
		return fileRefusal("write", a.FilePath, err)
	}
	return observation{content: fmt.Sprintf("Edited %s: %d replaced.", a.FilePath, found)}, nil
}

// nearMiss says how a text that is not in a file differs from one that is, where that is
// white space at the ends or the beginnings of lines alone; "" otherwise. Each look
// takes one pass over the file.
func nearMiss(file, text string) string {
	for _, look := range []struct {
		alike func(line string) string
		why   string
	}{
		{func(line string) string { return strings.TrimRight(line, "\r") }, lineEnds(file, text)},
		{func(line string) string { return strings.TrimRight(line, " \t\r") }, "lines there end in other white space"},
		{func(line string) string { return strings.Trim(line, " \t\r") }, indentation(file, text)},
	} {
		in, of := eachLine(file, look.alike), eachLine(text, look.alike)
		if at := strings.Index(in, of); at >= 0 && strings.TrimSpace(of) != "" {
			return fmt.Sprintf("; it would match at line %d, but %s", 1+strings.Count(in[:at], "\n"), look.why)
		}
	}
	return ""
}

func eachLine(text string, change func(string) string) string {
	var out strings.Builder
	out.Grow(len(text))
	for line := range strings.Lines(text) {
		whole, ended := strings.CutSuffix(line, "\n")
		out.WriteString(change(whole))
		if ended {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// lineEnds says whose lines end in CRLF.
func lineEnds(file, text string) string {
	const crlf = "\r\n"
	switch inFile, inText := strings.Contains(file, crlf), strings.Contains(text, crlf); {
	case inFile && !inText:
		return `lines there end in \r\n (CRLF), those of old_string in \n (LF)`
	case inText && !inFile:
		return `lines there end in \n (LF), those of old_string in \r\n (CRLF)`
	}
	return `lines there end in \r\n (CRLF) in other places than those of old_string`
}

// indentation says whose lines begin with tabs.
func indentation(file, text string) string {
	switch inFile, inText := strings.Contains(file, "\t"), strings.Contains(text, "\t"); {
	case inFile && !inText:
		return "lines there are indented with tabs, or otherwise than those of old_string"
	case inText && !inFile:
		return "lines there are indented with spaces, those of old_string with tabs"
	}
	return "lines there are indented otherwise"
}

type listDirArguments struct {
	TargetDirectory string   `json:"target_directory"`
	IgnoreGlobs     []string `json:"ignore_globs"`
}

func listDir(ctx context.Context, sb *sandbox.Sandbox, a listDirArguments) (observation, error) {
	if a.TargetDirectory == "" {
		a.TargetDirectory = "."
	}
	entries, complete, err := sb.List(ctx, a.TargetDirectory)
	if err != nil {
		return fileRefusal("list", a.TargetDirectory, err)
	}
	var out strings.Builder
	shown := 0
	for _, entry := range entries {
		if strings.HasPrefix(entry, ".") || ignored(strings.TrimSuffix(entry, "/"), a.IgnoreGlobs) {
			continue
		}
		if shown++; shown > maxNames {
			complete = false
			break
		}
		out.WriteString(entry + "\n")
	}
	if !complete {
		out.WriteString("[there are more]\n")
	}
	if out.Len() == 0 {
		return observation{content: "Folder is empty."}, nil
	}
	return observation{content: out.String()}, nil
}

func ignored(name string, globs []string) bool {
	for _, glob := range globs {
		if match, _ := path.Match(strings.TrimPrefix(glob, "**/"), name); match {
			return true
		}
	}
	return false
}

type deleteFileArguments struct {
	TargetFile  string `json:"target_file"`
	Explanation string `json:"explanation"`
}

func deleteFile(ctx context.Context, sb *sandbox.Sandbox, a deleteFileArguments) (observation, error) {
	if a.TargetFile == "" {
		return refusal("target_file is missing"), nil
	}
	if err := sb.Remove(ctx, a.TargetFile); err != nil {
		return fileRefusal("delete", a.TargetFile, err)
	}
	return observation{content: fmt.Sprintf("Deleted %s.", a.TargetFile)}, nil
}
