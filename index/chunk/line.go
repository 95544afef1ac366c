package chunk

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// line is a line of a file, and what is known of the place before it.
type line struct {
	start, end int // bytes; the end is that of its newline
	depth      int // of nesting
	cost       int // of a cut before it
	blank      bool
	fixed      bool   // no good place for a cut: it goes on with what the line before began
	attached   bool   // a comment or a decorator: it belongs to what follows
	declares   bool   // a declaration begins here, with the comment before it
	name       string // of what the line declares
	scope      string // name with those of what it lies in
}

const (
	deepest = 60      // deeper nesting is none that a cut should tell apart
	noCut   = 1 << 20 // the cost of a fixed line
)

func linesOf(content []byte) []line {
	lines := make([]line, 0, bytes.Count(content, []byte("\n"))+1)
	for start := 0; start < len(content); {
		end := len(content)
		if i := bytes.IndexByte(content[start:], '\n'); i >= 0 {
			end = start + i + 1
		}
		lines = append(lines, line{start: start, end: end, blank: isBlank(content[start:end])})
		start = end
	}
	return lines
}

func isBlank(text []byte) bool {
	for _, c := range text {
		if !blankByte(c) {
			return false
		}
	}
	return true
}

func blankByte(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// lineAt finds the line that holds a byte.
func lineAt(lines []line, at int) int {
	return sort.Search(len(lines), func(i int) bool { return lines[i].end > at })
}

// price sets scopes and costs once depths and declarations are known.
func price(lines []line) {
	setScopes(lines)
	for i := len(lines) - 1; i > 0; i-- { // what is attached takes the cut before the line that it belongs to
		above, l := &lines[i-1], &lines[i]
		if above.attached && !above.fixed && !l.fixed && !l.blank && above.depth == l.depth {
			above.declares = above.declares || l.declares
			l.declares, l.fixed = false, true
		}
	}
	for i := range lines {
		l := &lines[i]
		l.depth = min(l.depth, deepest)
		switch {
		case l.fixed || l.blank:
			l.cost = noCut
		case l.declares || i > 0 && lines[i-1].blank:
			l.cost = 2 * l.depth
		default:
			l.cost = 2*l.depth + 1
		}
	}
}

// setScopes gives each line the names of the declarations that it is in.
func setScopes(lines []line) {
	type open struct {
		depth int
		scope string
	}
	var stack []open
	for i := range lines {
		l := &lines[i]
		if !l.blank && !l.fixed {
			for len(stack) > 0 && stack[len(stack)-1].depth >= l.depth {
				stack = stack[:len(stack)-1]
			}
		}
		if len(stack) > 0 {
			l.scope = stack[len(stack)-1].scope
		}
		if l.name == "" {
			continue
		}
		l.name = cutRunes(l.name, maxName)
		if l.scope == "" {
			l.scope = l.name
		} else if len(l.scope) < 3*maxName {
			l.scope += "." + l.name
		}
		if len(stack) < deepest {
			stack = append(stack, open{l.depth, l.scope})
		}
	}
}

const maxName = 80

// cutRunes shortens a text to at most n bytes, at a rune's beginning.
func cutRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
