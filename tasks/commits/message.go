package commits

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Reasons of a commit's message.
const (
	MessageShort = "message of less than 6 words or 30 characters"
	MessageLong  = "message of more than 16 KiB"
	MessageFix   = "message holds lines of the fix"
	Reverts      = "reverts another commit"
)

// Bounds of an instruction, and of a line of code that is told from words.
const (
	minWords    = 6
	minLetters  = 30
	maxMessage  = 16 << 10
	minCodeLine = 12 // characters
)

var (
	trailer = regexp.MustCompile(`(?i)^(?:[a-z-]+-(?:by|on|to|url|id|from)|cc|link|bug|issue|fixes|closes|refs|resolves|pr): *\S`)
	picked  = regexp.MustCompile(`^\((?:cherry picked|backported) from commit [0-9a-f]+\)$`)
	// of the program that wrote the commit
	footer    = regexp.MustCompile(`(?i)^[^\pL]*(?:generated|created|written|made) (?:with|by) \S.{0,120}$`)
	issue     = regexp.MustCompile(`#\d|/issues/\d`)
	patchLine = regexp.MustCompile(`(?m)^\s*(?:diff --git |@@ -\d+|index [0-9a-f]{7,}\.\.)`)
	// template is what the form of a pull request has and its author did not choose.
	template = regexp.MustCompile(`(?s:<!--.*?-->)|(?m:^[ \t]*[-*] \[ \].*\n?)`)
	comments = []string{"//", "/*", "*", "#", `"""`, "'''"}
)

// instruction makes a task's instruction of a commit's message: its subject and its body without
// trailers, but for those that name an issue. The reason says why there is none.
func instruction(message, patch string) (text, reason string) {
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, template.ReplaceAllString(strings.ToValidUTF8(message, "\ufffd"), ""))
	paragraphs := strings.Split(strings.TrimSpace(message), "\n\n")
	for last := len(paragraphs) - 1; last > 0 && paragraphs[last] != ""; last-- {
		if paragraphs[last] = withoutTrailers(paragraphs[last]); paragraphs[last] != "" {
			break
		}
	}
	text = strings.TrimSpace(strings.Join(paragraphs, "\n\n"))
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return !strings.ContainsFunc(word,
			unicode.IsLetter)
	})
	switch {
	case len(text) > maxMessage:
		return "", MessageLong
	case strings.Contains(text, "This reverts commit "):
		return "", Reverts
	case len(words) < minWords || len([]rune(text)) < minLetters:
		return "", MessageShort
	case patchLine.MatchString(text) || holdsFix(text, patch):
		return "", MessageFix
	}
	return text, ""
}

// withoutTrailers takes the lines out of a last paragraph that say who and
// where, if it has no others.
func withoutTrailers(paragraph string) string {
	var kept []string
	trailers := 0
	for line := range strings.Lines(paragraph) {
		line = strings.TrimRight(line, "\n")
		named := trailer.MatchString(line)
		switch {
		case named && issue.MatchString(line):
			kept = append(kept, line)
		case named, picked.MatchString(line), footer.MatchString(line):
		case trailers > 0 && strings.TrimLeft(line, " \t") != line: // it goes on with the one before
			continue
		default:
			return paragraph
		}
		trailers++
	}
	return strings.Join(kept, "\n")
}

// holdsFix reports whether a line of code that the patch adds stands in a text,
// whatever its spaces are.
func holdsFix(text, patch string) bool {
	text = spaced(text)
	for _, line := range addedCode(patch) {
		if strings.Contains(text, line) {
			return true
		}
	}
	return false
}

func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

// addedCode are the lines of source that a patch adds and that cannot be a sentence: with a sign of
// code, of some length, and no comment.
func addedCode(patch string) (lines []string) {
	source, inside := false, false
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "diff --git "):
			inside = false
		case strings.HasPrefix(line, "@@ "):
			inside = true
		case !inside && strings.HasPrefix(line, "+++ "):
			source = !slices.Contains(proseEndings, path.Ext(strings.TrimSpace(line)))
		case inside && source && strings.HasPrefix(line, "+"):
			added := spaced(line[1:])
			comment := slices.ContainsFunc(comments, func(sign string) bool { return strings.HasPrefix(added, sign) })
			if !comment && len(added) >= minCodeLine && strings.ContainsAny(added, "=([{") {
				lines = append(lines, added)
			}
		}
	}
	return lines
}

// declaration is a line of Go or Python that declares a name, but for what the name stands for.
var declaration = regexp.MustCompile(`^(?:func (?:\([^)]*\) )?(\w+)[\[(].*?(?: \{|$)|(?:type|var|const) (\w+)\b(?: (?:struct|interface)\b)?|` +
	`\s*(?:async )?def (\w+)\(.*\)(?:\s*->[^:]*)?:|class (\w+)\b[^:]*:)`)

// keywords are followed by brackets, and declare nothing.
var keywords = []string{"if", "for", "while", "switch", "catch", "function", "with"}

// Bounds of what an instruction tells of a fix's declarations.
const (
	maxDeclared    = 20
	maxDeclaration = 300 // bytes of one
)

// declared tells of the declarations that a fix adds or changes and that the lines which its tests
// add name: nobody could guess them. "" is none.
func declared(patch, tests, parser string) string {
	declaration, behind := declaration, " {:"
	if parser == "node" {
		declaration, behind = scriptDeclaration, " {=>"
	}

	used := map[string]bool{}
	for line := range strings.Lines(tests) {
		if strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "+++ ") {
			maps.Copy(used, wordsOf("+"+line[1:]))
		}
	}
	var list []string
	for line := range strings.Lines(patch) {
		added, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "+")
		m := declaration.FindStringSubmatch(added)
		if !found || m == nil || !used[cmp.Or(m[1:]...)] || slices.Contains(keywords, cmp.Or(m[1:]...)) ||
			len(m[0]) > maxDeclaration {
			continue
		}
		one := strings.TrimRight(strings.TrimSpace(m[0]), behind)
		if !slices.Contains(list, one) && len(list) < maxDeclared {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return "\n\nTests use these declarations:\n\n    " + strings.Join(list, "\n    ")
}

// nameOf is a repository's name by its folder, as a part of the names of tasks.
func nameOf(source string) string {
	name := strings.TrimSuffix(path.Base(source), ".git")
	name = strings.TrimLeft(notInNames.ReplaceAllString(name, "-"), "._-")
	return fmt.Sprintf("%.60s", cmp.Or(name, "repository"))
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]`)
