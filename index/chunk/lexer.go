package chunk

import (
	"bytes"
	"strings"

	"github.com/rondo-rl/rondo/index/source"
)

// lexer goes over a file once and says for each line how many brackets are open at its beginning,
// and whether that lies in a string or a comment. It knows no grammar, so nothing is wrong for it:
// what it misreads costs a worse cut.
type lexer struct {
	*syntax
	text  []byte
	at    int
	lines []line
	next  int // the next line to describe
	depth int
	// templates are the depths at which the ${ of open template strings stand.
	templates []int
	heredoc   []byte // the word that ends the text that begins with the next line
	last      byte   // the last byte of code that is not blank: tells a division from a regular expression
	word      int    // where the last word began
	continued bool   // a backslash ended the line
	endless   bool   // a heredoc did not end: what looks like one is none in this file
}

// lex fills in depth, fixed, attached and blank for all lines.
func lex(language source.Language, content []byte, lines []line) {
	l := lexer{syntax: syntaxes[language], text: content, lines: lines}
	for l.at < len(l.text) {
		l.beginLine()
		l.step()
	}
	l.markFixed(len(l.text))
}

// beginLine describes the line that begins here, in code. Lines that begin in something else
// are described by skipTo.
func (l *lexer) beginLine() {
	l.markFixed(l.at) // those that began within what was skipped
	if l.next == len(l.lines) || l.lines[l.next].start != l.at {
		return
	}
	line := &l.lines[l.next]
	l.next++
	for _, word := range l.top {
		if l.has(word) {
			l.depth = 0
		}
	}
	line.depth, line.fixed = l.depth, l.continued
	l.continued = false
	text := bytes.TrimLeft(l.text[line.start:line.end], " \t")
	switch {
	case len(text) == 0:
	case text[0] == '}' || text[0] == ')' || text[0] == ']':
		line.fixed = true
	case l.decorators != "" && text[0] == l.decorators[0], l.comment(text):
		line.attached = true
	}
}

// comment reports whether a line begins with a comment.
func (l *lexer) comment(text []byte) bool {
	for _, c := range l.comments {
		if bytes.HasPrefix(text, []byte(c)) {
			return true
		}
	}
	for _, b := range l.blocks {
		if bytes.HasPrefix(text, []byte(b[0])) {
			return true
		}
	}
	return false
}

// step reads one token, or one byte of what is none.
func (l *lexer) step() {
	c := l.text[l.at]
	switch {
	case c == '\n':
		l.at++
		if l.heredoc != nil {
			l.skipHeredoc()
		}
		return
	case blankByte(c):
		l.at++
		return
	case l.skipComment(c):
		return
	case l.skipString(c):
		l.last = '"'
		return
	}
	switch c {
	case '{', '(', '[':
		l.depth++
	case '}', ')', ']':
		l.depth = max(l.depth-1, 0)
		if n := len(l.templates); c == '}' && n > 0 && l.templates[n-1] == l.depth {
			l.templates = l.templates[:n-1]
			l.at++
			l.skipTemplate()
			return
		}
	case '\\':
		l.at++ // whatever it escapes
		if l.at < len(l.text) && l.text[l.at] == '\n' {
			l.continued = true
			return
		}
	case '<':
		if l.heredocs {
			l.findHeredoc()
		}
	}
	if !wordByte(l.last) || l.at == 0 || !wordByte(l.text[l.at-1]) {
		l.word = l.at
	}
	l.last = c
	l.at++
}

func wordByte(c byte) bool {
	return c|32 >= 'a' && c|32 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

func (l *lexer) has(text string) bool { return bytes.HasPrefix(l.text[l.at:], []byte(text)) }

// skipTo goes behind the next end, or to the end of the file.
func (l *lexer) skipTo(from int, end string) {
	if i := bytes.Index(l.text[min(from, len(l.text)):], []byte(end)); i >= 0 {
		l.at = from + i + len(end)
	} else {
		l.at = len(l.text)
	}
}

func (l *lexer) skipComment(c byte) bool {
	for _, start := range l.comments {
		if c != start[0] || !l.has(start) ||
			l.wordHash && l.at > 0 && !blankByte(l.text[l.at-1]) && l.text[l.at-1] != ';' {
			continue
		}
		if i := bytes.IndexByte(l.text[l.at:], '\n'); i >= 0 {
			l.at += i // the newline stays: it may begin a heredoc's text
		} else {
			l.at = len(l.text)
		}
		return true
	}
	for _, b := range l.blocks {
		if c != b[0][0] || !l.has(b[0]) {
			continue
		}
		if !l.nested {
			l.skipTo(l.at+len(b[0]), b[1])
			return true
		}
		for open := 0; l.at < len(l.text); {
			switch {
			case l.has(b[0]):
				open++
				l.at += len(b[0])
			case l.has(b[1]):
				open--
				l.at += len(b[1])
			default:
				l.at++
			}
			if open == 0 {
				break
			}
		}
		return true
	}
	return false
}

func (l *lexer) skipString(c byte) bool {
	switch {
	case l.triple && (c == '"' || c == '\'') && l.has(strings.Repeat(string(c), 3)):
		l.skipTriple(c)
	case l.cppRaw && c == '"' && l.at > 0 && l.text[l.at-1] == 'R':
		return l.skipCppRaw()
	case l.rustRaw && (c == 'r' || c == '\''):
		return l.skipRust(c)
	case l.raw != 0 && c == l.raw:
		l.skipTo(l.at+1, string(c))
	case l.template && c == '`':
		l.at++
		l.skipTemplate()
	case l.regexps && c == '/' && l.valueMayStand():
		return l.skipRegexp()
	case strings.IndexByte(l.quotes, c) >= 0:
		l.skipQuoted(c, false)
	case strings.IndexByte(l.multiline, c) >= 0:
		l.skipQuoted(c, true)
	default:
		return false
	}
	return true
}

// skipQuoted goes behind a string; one of a single line ends with it at the latest.
func (l *lexer) skipQuoted(quote byte, multiline bool) {
	for l.at++; l.at < len(l.text); l.at++ {
		switch c := l.text[l.at]; {
		case c == '\\' && !(l.heredocs && quote == '\''): // a shell's single quotes know no backslash
			l.at++
		case c == quote:
			l.at++
			return
		case c == '\n' && !multiline:
			return
		}
	}
	l.at = min(l.at, len(l.text))
}

func (l *lexer) skipTriple(quote byte) {
	end := []byte{quote, quote, quote}
	for l.at += 3; l.at < len(l.text); l.at++ {
		if l.text[l.at] == '\\' {
			l.at++
		} else if bytes.HasPrefix(l.text[l.at:], end) {
			l.at += 3
			return
		}
	}
	l.at = min(l.at, len(l.text))
}

// skipTemplate goes on in a template string, to its end or into the next ${.
func (l *lexer) skipTemplate() {
	for ; l.at < len(l.text); l.at++ {
		switch c := l.text[l.at]; {
		case c == '\\':
			l.at++
		case c == '`':
			l.at++
			l.last = '"'
			return
		case c == '$' && l.has("${"):
			l.templates = append(l.templates, l.depth)
			l.depth++
			l.at += 2
			l.last = '{'
			return
		}
	}
	l.at = min(l.at, len(l.text))
}

// beforeValue are words after which a slash begins a regular expression.
var beforeValue = map[string]bool{"return": true, "typeof": true, "case": true, "in": true, "of": true, "delete": true,
	"void": true, "throw": true, "new": true,
	"else": true, "do": true, "await": true, "yield": true}

func (l *lexer) valueMayStand() bool {
	if wordByte(l.last) {
		end := l.word
		for end < l.at && wordByte(l.text[end]) {
			end++
		}
		return end-l.word <= 6 && beforeValue[string(l.text[l.word:end])]
	}
	return l.last != ')' && l.last != ']' && l.last != '}' && l.last != '"'
}

func (l *lexer) skipRegexp() bool {
	class := false
	const longest = 1000 // so that a hostile line takes linear time
	for i := l.at + 1; i < min(len(l.text), l.at+longest); i++ {
		switch c := l.text[i]; {
		case c == '\n':
			return false // a division after all
		case c == '\\':
			i++
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			l.at = i + 1
			return true
		}
	}
	return false
}

func (l *lexer) skipRust(c byte) bool {
	rest := l.text[l.at:]
	if c == '\'' {
		// 'a' and '\n' are characters, 'a without an end is a lifetime.
		switch {
		case len(rest) > 2 && rest[1] == '\\':
			l.skipQuoted('\'', false)
		case len(rest) > 2 && bytes.IndexByte(rest[2:min(len(rest), 7)], '\'') >= 0 &&
			(rest[2] == '\'' || rest[1] >= 0x80):
			l.at += 2 + bytes.IndexByte(rest[2:], '\'') + 1
		default:
			l.at++
		}
		return true
	}
	if l.at > 0 && wordByte(l.text[l.at-1]) && l.text[l.at-1] != 'b' {
		return false
	}
	hashes := 0
	for 1+hashes < len(rest) && rest[1+hashes] == '#' && hashes < 255 {
		hashes++
	}
	if 1+hashes >= len(rest) || rest[1+hashes] != '"' {
		return false
	}
	l.skipTo(l.at+hashes+2, `"`+strings.Repeat("#", hashes))
	return true
}

func (l *lexer) skipCppRaw() bool {
	rest := l.text[l.at+1:]
	open := bytes.IndexByte(rest[:min(len(rest), 17)], '(')
	if open < 0 {
		l.skipQuoted('"', false)
		return true
	}
	l.skipTo(l.at+1+open+1, ")"+string(rest[:open])+`"`)
	return true
}

// findHeredoc remembers the word of <<WORD, <<-WORD or <<'WORD'; <<< is none.
func (l *lexer) findHeredoc() {
	if l.endless || !l.has("<<") || l.has("<<<") {
		return
	}
	i := l.at + 2
	for i < len(l.text) && strings.IndexByte("-~ '\"\\", l.text[i]) >= 0 {
		i++
	}
	from := i
	for i < len(l.text) && wordByte(l.text[i]) {
		i++
	}
	if i > from && (l.text[from] > '9' || l.text[from] < '0') {
		l.heredoc = l.text[from:i]
	}
	l.at++ // the second of <<
}

// skipHeredoc goes from the line after <<WORD to the one that holds the word alone.
func (l *lexer) skipHeredoc() {
	word := l.heredoc
	l.heredoc = nil
	for i := l.at; i < len(l.text); {
		end := len(l.text)
		if n := bytes.IndexByte(l.text[i:], '\n'); n >= 0 {
			end = i + n + 1
		}
		if bytes.Equal(bytes.TrimSpace(l.text[i:end]), word) {
			if l.at < i {
				l.markFixed(i)
			}
			l.at = end - 1
			if end == len(l.text) && l.text[end-1] != '\n' {
				l.at = end
			}
			l.markFixed(l.at)
			return
		}
		i = end
	}
	l.endless = true // and the text goes on as code
}

// markFixed describes the lines that begin before a byte as parts of something.
func (l *lexer) markFixed(before int) {
	for l.next < len(l.lines) && l.lines[l.next].start < before {
		l.lines[l.next].depth, l.lines[l.next].fixed = l.depth, true
		l.next++
	}
}
