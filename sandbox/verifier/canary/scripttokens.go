package canary

import (
	"slices"
	"strings"
)

// scriptToken moves behind a token of JavaScript and answers its kind. before
// are the tokens before it.
func scriptToken(l *bracedLexer, before []lexeme) int {
	c := l.source[l.at]
	switch {
	case c == '"' || c == '\'':
		l.skipTo(c)
		return quotation
	case c == '`':
		l.template()
		return formatted
	case c == '/' && expression(before):
		l.pattern()
		return formatted
	case c >= '0' && c <= '9':
		for l.at < len(l.source) && (wordRune(rune(l.source[l.at])) || l.source[l.at] == '.') {
			l.at++
		}
		return number
	case scriptRune(c):
		for l.at < len(l.source) && scriptRune(l.source[l.at]) {
			l.at++
		}
		return word
	}
	l.at++
	if strings.HasPrefix(l.source[l.at-1:], "=>") {
		l.at++
	}
	return operator
}

func scriptRune(c byte) bool { return wordRune(rune(c)) || c == '$' || c == '#' || c == '@' || c > 127 }

// expression reports whether an expression can begin behind tokens, so that a slash begins a
// pattern and divides nothing.
func expression(tokens []lexeme) bool {
	if len(tokens) == 0 {
		return true
	}
	switch last := tokens[len(tokens)-1]; last.kind {
	case operator:
		return last.text != ")" && last.text != "]" && last.text != "}"
	case word:
		return slices.Contains(continuing, last.text)
	}
	return false
}

// skipTo moves behind a string or pattern that ends with a character on its line.
func (l *bracedLexer) skipTo(end byte) {
	class := false
	for l.at++; l.at < len(l.source) && l.source[l.at] != '\n'; l.at++ {
		switch c := l.source[l.at]; {
		case c == '\\' && l.at+1 < len(l.source) && l.source[l.at+1] != '\n':
			l.at++
		case end == '/' && (c == '[' || c == ']'):
			class = c == '['
		case c == end && !class:
			l.at++
			return
		}
	}
	l.broken = true
}

// pattern moves behind a regular expression and its flags.
func (l *bracedLexer) pattern() {
	for l.skipTo('/'); l.at < len(l.source) && wordRune(rune(l.source[l.at])); l.at++ {
	}
}

// template moves behind a template with the expressions in it.
func (l *bracedLexer) template() {
	for l.at++; l.at < len(l.source) && !l.broken; {
		switch rest := l.source[l.at:]; {
		case rest[0] == '`':
			l.at++
			return
		case strings.HasPrefix(rest, "${"):
			l.at += 2
			l.block(true)
		case rest[0] == '\n':
			l.newline()
		case rest[0] == '\\' && len(rest) > 1 && rest[1] != '\n':
			l.at += 2
		default:
			l.at++
		}
	}
	l.broken = true
}
