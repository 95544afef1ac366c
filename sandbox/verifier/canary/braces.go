package canary

import "strings"

// bracedLexer reads the tokens of a file in a language with braces, of which take reads one. What
// it is not sure of makes it broken.
type bracedLexer struct {
	source   string
	take     func(l *bracedLexer, before []lexeme) (kind int)
	at       int
	line     int
	lineFrom int
	broken   bool
}

// block reads tokens to the end, or within a template to the bracket that closes an expression.
func (l *bracedLexer) block(template bool) (tokens []lexeme) {
	var open []string
	for l.at < len(l.source) && !l.broken {
		rest := l.source[l.at:]
		switch c := rest[0]; {
		case c == '\n':
			l.newline()
			continue
		case c == ' ' || c == '\t' || c == '\r' || c == '\f':
			l.at++
			continue
		case strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "#!") && l.at == 0:
			l.at += len(rest)
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				l.at += end - len(rest)
			}
			continue
		case strings.HasPrefix(rest, "/*"):
			l.comment()
			continue
		}
		from, line, lineFrom := l.at, l.line, l.lineFrom
		kind := l.take(l, tokens)
		t := lexeme{kind: kind, text: l.source[from:l.at], line: line, endLine: l.line,
			start: from - lineFrom, end: l.at - l.lineFrom}
		switch bracket(t) {
		case 1:
			open = append(open, closing[t.text])
		case -1:
			if len(open) == 0 {
				l.broken = l.broken || !template || t.text != "}"
				return tokens
			}
			l.broken = l.broken || open[len(open)-1] != t.text
			open = open[:len(open)-1]
		}
		tokens = append(tokens, t)
	}
	l.broken = l.broken || template || len(open) > 0
	return tokens
}

var closing = map[string]string{"(": ")", "[": "]", "{": "}"}

func (l *bracedLexer) newline() {
	l.at++
	l.line++
	l.lineFrom = l.at
}

func (l *bracedLexer) comment() {
	end := strings.Index(l.source[l.at+2:], "*/")
	if end < 0 || strings.Contains(l.source[l.at+2:l.at+2+end], "/*") { // which nests in some languages
		l.broken = true
		return
	}
	for end += l.at + 4; l.at < end; {
		if l.source[l.at] == '\n' {
			l.newline()
		} else {
			l.at++
		}
	}
}
