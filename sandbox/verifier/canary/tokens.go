package canary

import "strings"

// Kinds of a lexeme.
const (
	operator = iota
	word
	number
	quotation
	formatted // a string with expressions in it
)

// lexeme is one of a Python file. Its line and columns count from 0, in bytes.
type lexeme struct {
	kind          int
	text          string
	line, endLine int
	column        int // of its line's beginning, for the first of a statement the indentation
	start, end    int
}

// lexer reads tokens. It is made for files that Python can read; of others it makes something.
type lexer struct {
	source   string
	at       int
	line     int
	lineFrom int
}

// logicalLines are the statements of a file, each with at least one lexeme.
func logicalLines(source string) (lines [][]lexeme) {
	l := lexer{source: source}
	var line []lexeme
	depth := 0
	for l.at < len(l.source) {
		switch c := l.source[l.at]; {
		case c == '\n':
			if depth <= 0 && len(line) > 0 {
				lines, line = append(lines, line), nil
			}
			l.newline()
		case c == '\\' && strings.HasPrefix(l.source[l.at+1:], "\n"):
			l.at++
			l.newline()
		case c == ' ' || c == '\t' || c == '\r' || c == '\f':
			l.at++
		case c == '#':
			for l.at < len(l.source) && l.source[l.at] != '\n' {
				l.at++
			}
		default:
			t := l.next()
			depth = max(0, depth+bracket(t))
			line = append(line, t)
		}
	}
	if len(line) > 0 {
		lines = append(lines, line)
	}
	return lines
}

func (l *lexer) newline() {
	l.at++
	l.line++
	l.lineFrom = l.at
}

func (l *lexer) next() lexeme {
	from, line, lineFrom := l.at, l.line, l.lineFrom
	kind := l.take()
	return lexeme{kind: kind, text: l.source[from:l.at], line: line, endLine: l.line, column: from - lineFrom,
		start: from - lineFrom, end: l.at - lineFrom}
}

// take moves behind a lexeme and answers its kind.
func (l *lexer) take() int {
	rest := l.source[l.at:]
	prefix := 0
	for prefix < len(rest) && prefix < 3 && strings.IndexByte("bBuUrRfFtT", rest[prefix]) >= 0 {
		prefix++
	}
	if prefix < len(rest) && (rest[prefix] == '"' || rest[prefix] == '\'') {
		l.at += prefix
		l.quoted()
		if strings.ContainsAny(rest[:prefix], "fFtT") {
			return formatted
		}
		return quotation
	}
	c := rune(rest[0])
	switch {
	case c >= '0' && c <= '9' || c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		for l.at < len(l.source) && (wordRune(rune(l.source[l.at])) || l.source[l.at] == '.') {
			l.at++
		}
		return number
	case wordRune(c):
		for l.at < len(l.source) && wordRune(rune(l.source[l.at])) {
			l.at++
		}
		return word
	}
	for _, op := range []string{"**=", "//=", ">>=", "<<=", "==", "!=", "<=", ">=", ":=", "->", "**", "//",
		"+=", "-=", "*=", "/="} {
		if strings.HasPrefix(rest, op) {
			l.at += len(op)
			return operator
		}
	}
	l.at++
	return operator
}

// quoted moves behind a string.
func (l *lexer) quoted() {
	quote := l.source[l.at : l.at+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(l.source[l.at:], long) {
		quote = long
	}
	for l.at += len(quote); l.at < len(l.source); {
		switch {
		case strings.HasPrefix(l.source[l.at:], quote):
			l.at += len(quote)
			return
		case l.source[l.at] == '\\' && l.at+1 < len(l.source):
			l.at++
			if l.source[l.at] == '\n' {
				l.newline()
			} else {
				l.at++
			}
		case l.source[l.at] == '\n':
			l.newline()
			if len(quote) == 1 {
				return // Python would refuse it
			}
		default:
			l.at++
		}
	}
}
