package source

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// Reason says why a file is not indexed; the zero value is that it is.
type Reason uint8

// Reasons to skip an entry. The order is kept on disk: new ones go to the end.
const (
	Indexed   Reason = iota
	Ignored          // by an ignore file
	TooLarge         // over the limit of a file's size
	Binary           // no text
	Generated        // says of itself that a program wrote it
	Minified         // lines that nobody reads
	LockFile         // versions and digests, written by a package manager
	Link             // a symbolic link: what it names is indexed where it is, if it is in the tree
	Special          // a device, a pipe, a socket
	BadName          // a name that is too long, or in a snapshot not UTF-8
	TooDeep          // below more folders than the limit
	reasons
)

var reasonNames = [reasons]string{
	"indexed", "ignored", "too large", "binary", "generated", "minified", "lock file", "symbolic link", "special file", "unusable name", "too deep",
}

func (r Reason) String() string {
	if r < reasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Valid reports whether this version knows the reason.
func (r Reason) Valid() bool { return r < reasons }

// MarshalText and UnmarshalText make the name its form in JSON, as a value and as a key.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText refuses a name that is not one of a reason.
func (r *Reason) UnmarshalText(text []byte) error {
	for i, name := range reasonNames {
		if name == string(text) {
			*r = Reason(i)
			return nil
		}
	}
	return fmt.Errorf("%.40q is not a known reason to skip a file", text)
}

// Version changes when Classify decides otherwise than before, so that what was remembered of a file does not count any more.
const Version = 1

var lockFiles = map[string]bool{
	"package-lock.json": true, "npm-shrinkwrap.json": true, "yarn.lock": true, "pnpm-lock.yaml": true, "bun.lock": true, "bun.lockb": true,
	"deno.lock": true, "go.sum": true, "go.work.sum": true, "Cargo.lock": true, "poetry.lock": true, "Pipfile.lock": true, "uv.lock": true,
	"pdm.lock": true, "composer.lock": true, "Gemfile.lock": true, "mix.lock": true, "Podfile.lock": true, "pubspec.lock": true,
	"flake.lock": true, "Package.resolved": true, "packages.lock.json": true, "gradle.lockfile": true, "MODULE.bazel.lock": true,
	".terraform.lock.hcl": true,
}

// ByName gives the reason that a name alone is, so that the file need not be read.
func ByName(name string) Reason {
	base := path.Base(name)
	lower := strings.ToLower(base)
	switch {
	case lockFiles[base]:
		return LockFile
	case strings.HasSuffix(lower, ".min.js"), strings.HasSuffix(lower, ".min.css"), strings.HasSuffix(lower, ".min.mjs"):
		return Minified
	case strings.HasSuffix(lower, ".js.map"), strings.HasSuffix(lower, ".css.map"), strings.HasSuffix(lower, ".pb.go"):
		return Generated
	}
	return Indexed
}

// Classify says whether a file's content is worth indexing.
func Classify(name string, content []byte) Reason {
	if r := ByName(name); r != Indexed {
		return r
	}
	switch {
	case binary(content):
		return Binary
	case generated(content):
		return Generated
	case minified(name, content):
		return Minified
	}
	return Indexed
}

// binary goes by NUL bytes, as Git does, and by what is neither UTF-8 nor one of the encodings that keep ASCII as it is: there
// most bytes are letters.
func binary(content []byte) bool {
	if bytes.IndexByte(content, 0) >= 0 {
		return true
	}
	head := content[:min(len(content), 8<<10)]
	odd := 0
	for i := 0; i < len(head); {
		c := head[i]
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRune(head[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			odd++
		} else if c < ' ' && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != '\b' && c != 0x1b {
			odd++
		}
		i++
	}
	return odd > len(head)/3
}

// headLines is how far down a file says that it is generated: a licence may be above.
const headLines = 50

func generated(content []byte) bool {
	head := content[:min(len(content), 8<<10)]
	for range headLines {
		line, rest, more := bytes.Cut(head, []byte("\n"))
		if says(line) {
			return true
		}
		if !more {
			break
		}
		head = rest
	}
	return false
}

// comments begin a comment somewhere. A marker counts in comments alone: a program that writes generated files has it in strings.
var comments = []string{"//", "#", "/*", "*", "--", "<!--", ";", "%", `"""`}

func says(line []byte) bool {
	line = bytes.TrimSpace(line)
	if len(line) > 400 {
		return false
	}
	comment := false
	for _, start := range comments {
		comment = comment || bytes.HasPrefix(line, []byte(start))
	}
	if !comment {
		return false
	}
	if i := bytes.Index(line, []byte("@generated")); i >= 0 {
		end := i + len("@generated")
		return end == len(line) || !letterOrDigit(line[end])
	}
	lower := bytes.ToLower(line)
	has := func(text string) bool { return bytes.Contains(lower, []byte(text)) }
	return has("do not edit") && (has("generated by") || has("code generated") || has("autogenerated") || has("auto-generated") || has("automatically generated")) ||
		has("generated by the protocol buffer compiler") || has("generated by the grpc") || has("this file is auto-generated") ||
		has("this file is automatically generated") || has("this file was automatically generated") || has("<auto-generated")
}

func letterOrDigit(c byte) bool {
	return c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9' || c == '_'
}

// Mean bytes of a line from which on a file was not written by hand. Scripts and style sheets are what is minified; prose has a
// paragraph to a line.
const (
	minifiedScript = 200
	minifiedOther  = 600
	minifiedFrom   = 4 << 10 // a short file may be one long line
)

func minified(name string, content []byte) bool {
	if len(content) < minifiedFrom {
		return false
	}
	mean := len(content) / (bytes.Count(content, []byte("\n")) + 1)
	switch LanguageOf(name, content) {
	case JavaScript, CSS:
		return mean > minifiedScript
	case Markdown:
		return false
	}
	return mean > minifiedOther && !strings.HasSuffix(name, ".txt")
}
