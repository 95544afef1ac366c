package agent

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

const (
	maxPattern     = 4096
	maxGrepFile    = 8 << 20
	maxGrepFiles   = 50_000
	maxContext     = 50
	maxLine        = 500 // bytes of one line that are shown
	binaryProbe    = 8 << 10
	defaultMatches = 200
)

// errEnough stops the walk when nothing more would be shown.
var errEnough = errors.New("enough")

var fileTypes = map[string][]string{
	"c": {".c", ".h"}, "cpp": {".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp"}, "css": {".css"}, "go": {".go"},
	"html": {".html", ".htm"},
	"java": {".java"}, "js": {".js", ".jsx", ".mjs", ".cjs"}, "json": {".json"}, "md": {".md"},
	"py": {".py", ".pyi"}, "ruby": {".rb"},
	"rust": {".rs"}, "sh": {".sh", ".bash"}, "toml": {".toml"}, "ts": {".ts", ".tsx"}, "txt": {".txt"},
	"yaml": {".yaml", ".yml"},
}

type search struct {
	wire.Grep
	expression *regexp.Regexp
	glob       *regexp.Regexp
	extensions []string
	root       string
	deadline   time.Time

	out      bytes.Buffer
	shown    int
	files    int
	cutShort string // why not all is shown
}

// packagesFolder holds what is not the project's own. A search below it, or one whose pattern
// names it, looks into it.
const packagesFolder = "node_modules"

// hasPackages reports whether a search that begins at a folder, for files of a pattern,
// looks into packagesFolder.
func hasPackages(root, pattern string) bool {
	return strings.Contains(root+"/", "/"+packagesFolder+"/") || strings.Contains(pattern, packagesFolder)
}

// grep searches one file, or all text files below a folder but hidden ones and those of packages,
// in the order of their paths.
func grep(root string, query wire.Grep) ([]byte, error) {
	s := &search{Grep: query, root: root, deadline: time.Now().Add(time.Duration(query.DeadlineSeconds) * time.Second)}
	s.Before, s.After = min(max(s.Before, 0), maxContext), min(max(s.After, 0), maxContext)
	if s.HeadLimit <= 0 {
		s.HeadLimit = defaultMatches
	}
	if err := s.compile(); err != nil {
		return nil, err
	}
	top, err := openPlain(root, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	info, err := top.Stat()
	top.Close()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = filepath.WalkDir(root, s.visit)
	} else {
		err = s.file(root)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if s.cutShort != "" {
		fmt.Fprintf(&s.out, "[at least %d shown; there may be more: %s]\n", s.shown, s.cutShort)
	}
	return s.out.Bytes(), nil
}

func (s *search) compile() (err error) {
	if len(s.Pattern) == 0 || len(s.Pattern) > maxPattern {
		return fmt.Errorf("%w: pattern of %d bytes (1 to %d)", wire.ErrInvalid, len(s.Pattern), maxPattern)
	}
	flags := "(?m"
	if s.IgnoreCase {
		flags += "i"
	}
	if s.Multiline {
		flags += "s"
	}
	if s.expression, err = regexp.Compile(flags + ")" + s.Pattern); err != nil {
		return fmt.Errorf("%w pattern: %w", wire.ErrInvalid, err)
	}
	if s.Glob != "" {
		if s.glob, err = compileGlob(s.Glob); err != nil {
			return err
		}
	}
	if s.Type != "" {
		if s.extensions = fileTypes[s.Type]; s.extensions == nil {
			return fmt.Errorf("%w: unknown file type %q", wire.ErrInvalid, s.Type)
		}
	}
	switch s.Mode = cmp.Or(s.Mode, "content"); s.Mode {
	case "content", "files_with_matches", "count":
		return nil
	}
	return fmt.Errorf("%w: output_mode %q (content, files_with_matches or count)", wire.ErrInvalid, s.Mode)
}

// compileGlob translates *, ?, **, [...] and {a,b}. Without a slash the pattern is for the
// file's name, at any depth.
func compileGlob(glob string) (*regexp.Regexp, error) {
	if len(glob) > maxPattern {
		return nil, fmt.Errorf("%w: glob of %d bytes (limit %d)", wire.ErrInvalid, len(glob), maxPattern)
	}
	if !strings.Contains(glob, "/") {
		glob = "**/" + glob
	}
	var out strings.Builder
	out.WriteString("^")
	braces := 0
	for rest := strings.TrimPrefix(glob, "/"); rest != ""; {
		token, translated := globToken(rest, braces > 0)
		out.WriteString(translated)
		rest = rest[len(token):]
		braces += strings.Count(token, "{") - strings.Count(token, "}")
	}
	expression, err := regexp.Compile(out.String() + "$")
	if err != nil {
		return nil, fmt.Errorf("%w glob %q", wire.ErrInvalid, glob)
	}
	return expression, nil
}

func globToken(rest string, inBraces bool) (token, translated string) {
	for _, known := range []struct{ token, translated string }{
		{"**/", "(?:.*/)?"}, {"**", ".*"}, {"*", "[^/]*"}, {"?", "[^/]"}, {"{", "(?:"}, {"}", ")"}, {",", "|"},
	} {
		if strings.HasPrefix(rest, known.token) && (inBraces || known.token != "," && known.token != "}") {
			return known.token, known.translated
		}
	}
	if end := strings.IndexByte(rest, ']'); rest[0] == '[' && end > 0 {
		return rest[:end+1], strings.Replace(rest[:end+1], "[!", "[^", 1)
	}
	if len(rest) > 1 && rest[0] == '\\' {
		return rest[:2], regexp.QuoteMeta(rest[1:2])
	}
	return rest[:1], regexp.QuoteMeta(rest[:1])
}

func (s *search) visit(name string, found fs.DirEntry, err error) error {
	if err != nil {
		return nil // not readable, or gone: as if it were not there
	}
	if name == s.root {
		return nil
	}
	if strings.HasPrefix(found.Name(), ".") || name == procFolder ||
		found.Name() == packagesFolder && !hasPackages(s.root, s.Glob) {
		if found.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if !found.Type().IsRegular() || !s.wants(name) {
		return nil
	}
	if s.files++; s.files > maxGrepFiles {
		return s.stop(fmt.Sprintf("more than %d files", maxGrepFiles))
	}
	return s.file(name)
}

func (s *search) wants(name string) bool {
	relative := strings.TrimPrefix(strings.TrimPrefix(name, s.root), "/")
	if s.glob != nil && !s.glob.MatchString(relative) {
		return false
	}
	if s.extensions == nil {
		return true
	}
	for _, extension := range s.extensions {
		if path.Ext(name) == extension {
			return true
		}
	}
	return false
}

// label is what the caller calls the file.
func (s *search) label(name string) string {
	if name == s.root {
		return s.Label
	}
	relative := strings.TrimPrefix(strings.TrimPrefix(name, s.root), "/")
	return path.Join(s.Label, relative)
}

func (s *search) stop(why string) error {
	s.cutShort = why
	return errEnough
}

func (s *search) file(name string) error {
	if time.Now().After(s.deadline) {
		return s.stop("the time for one search is over")
	}
	file, info, err := openRegular(name, os.O_RDONLY, 0)
	if err != nil || info.Size() > maxGrepFile {
		return nil
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxGrepFile))
	if err != nil || bytes.IndexByte(data[:min(len(data), binaryProbe)], 0) >= 0 {
		return nil
	}
	lines := s.matches(data)
	if len(lines) == 0 {
		return nil
	}
	switch s.Mode {
	case "files_with_matches":
		return s.show("%s\n", s.label(name))
	case "count":
		return s.show("%s:%d\n", s.label(name), len(lines))
	}
	return s.content(s.label(name), data, lines)
}

// span is one match, by lines counted from 0, both ends included.
type span struct{ first, last int }

// matches finds the lines that match: line by line, or over the whole text when the search is
// for several lines at once.
func (s *search) matches(data []byte) []span {
	var found []span
	if s.Multiline {
		line, at := 0, 0
		for _, m := range s.expression.FindAllIndex(data, s.HeadLimit+1) {
			line += bytes.Count(data[at:m[0]], []byte("\n"))
			at = m[0]
			found = append(found, span{line, line + bytes.Count(bytes.TrimSuffix(data[m[0]:m[1]], []byte("\n")),
				[]byte("\n"))})
		}
		return found
	}
	number := 0
	for line := range bytes.Lines(data) {
		if s.expression.Match(bytes.TrimRight(line, "\r\n")) {
			found = append(found, span{number, number})
		}
		number++
	}
	return found
}

// content shows the matching lines as path:line:text, and context lines with dashes; groups that do
// not touch are parted by "--".
func (s *search) content(name string, data []byte, found []span) error {
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	shownTo := -1
	for i, m := range found {
		last := min(m.last, len(lines)-1)
		from, to := max(m.first-s.Before, shownTo+1), min(last+s.After, len(lines)-1)
		if i+1 < len(found) {
			to = min(to, max(found[i+1].first-1, last)) // the next match shows the rest
		}
		if s.Before+s.After > 0 && s.out.Len() > 0 && from > shownTo+1 ||
			s.Before+s.After > 0 && s.out.Len() > 0 && shownTo < 0 {
			s.out.WriteString("--\n")
		}
		for line := from; line <= to; line++ {
			separator := "-"
			if line >= m.first && line <= last {
				separator = ":"
			}
			fmt.Fprintf(&s.out, "%s%s%d%s%s\n", name, separator, line+1, separator, shorten(lines[line]))
		}
		shownTo = max(shownTo, to)
		if err := s.counted(); err != nil {
			return err
		}
	}
	return nil
}

func shorten(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > maxLine {
		return append(bytes.Clone(line[:maxLine]), " [...]"...)
	}
	return line
}

func (s *search) show(format string, arguments ...any) error {
	fmt.Fprintf(&s.out, format, arguments...)
	return s.counted()
}

// counted stops the search when enough is shown.
func (s *search) counted() error {
	s.shown++
	if s.shown >= s.HeadLimit {
		return s.stop(fmt.Sprintf("head_limit is %d", s.HeadLimit))
	}
	if s.out.Len() >= s.MaxBytes {
		return s.stop(fmt.Sprintf("output of %d bytes", s.out.Len()))
	}
	return nil
}
