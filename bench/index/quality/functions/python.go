package functions

import (
	"bytes"
	"slices"
	"strings"
)

// statement is a logical line of Python: it goes on within brackets and
// strings, and behind a backslash.
type statement struct {
	start, end int // bytes of the file, from the first that is no indentation
	indent     int
}

// pythonFunctions goes by indentation; what is no Python gives nothing, or little. Functions within
// functions belong to those.
func pythonFunctions(path string, content []byte) []Function {
	type scope struct {
		indent   int
		name     string
		function bool
	}
	var open []scope
	var list []Function
	lines := statements(content)
	for i, s := range lines {
		for len(open) > 0 && open[len(open)-1].indent >= s.indent {
			open = open[:len(open)-1]
		}
		text := string(content[s.start:s.end])
		text = strings.TrimPrefix(text, "async ")
		word, rest, _ := strings.Cut(text, " ")
		if word != "def" && word != "class" {
			continue
		}
		rest = strings.TrimSpace(rest)
		end := strings.IndexFunc(rest, func(r rune) bool { return !nameRune(r) })
		if end <= 0 {
			continue
		}
		name, symbol, nested := rest[:end], rest[:end], false
		for _, around := range slices.Backward(open) {
			nested = nested || around.function
			symbol = around.name + "." + symbol
		}
		open = append(open, scope{indent: s.indent, name: name, function: word == "def"})
		if word == "class" || nested || i+1 == len(lines) || lines[i+1].indent <= s.indent {
			continue
		}
		first, last := lines[i+1], lines[i+1]
		for j := i + 2; j < len(lines) && lines[j].indent > s.indent; j++ {
			last = lines[j]
		}
		f := Function{Path: path, Symbol: symbol, Name: name, Text: string(content[s.start:last.end])}
		if comment, ok := stringLiteral(content[first.start:first.end]); ok {
			if last == first {
				continue // documentation alone
			}
			f.Sentence = firstSentence(comment)
			f.Text = string(content[s.start:first.start]) +
				strings.TrimLeft(string(content[first.end:last.end]), " \t\r\n")
		}
		list = append(list, f)
	}
	return list
}

// statements leaves out blank lines and comments.
func statements(content []byte) []statement {
	var list []statement
	for at := 0; at < len(content); {
		indent := 0
		for at < len(content) && (content[at] == ' ' || content[at] == '\t') {
			if indent++; content[at] == '\t' {
				indent = (indent + 7) &^ 7
			}
			at++
		}
		end := statementEnd(content, at)
		if text := bytes.TrimSpace(content[at:end]); len(text) > 0 && text[0] != '#' {
			list = append(list, statement{start: at, end: at + len(bytes.TrimRight(content[at:end], " \t\r\n")),
				indent: indent})
		}
		at = end + 1
	}
	return list
}

func statementEnd(content []byte, at int) int {
	for depth := 0; at < len(content); at++ {
		switch content[at] {
		case '#':
			for at+1 < len(content) && content[at+1] != '\n' {
				at++
			}
		case '\\':
			at++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '"', '\'':
			at = stringEnd(content, at) - 1
		case '\n':
			if depth <= 0 {
				return at
			}
		}
	}
	return len(content)
}

// stringEnd is where the string ends that begins with the quote at a position.
func stringEnd(content []byte, at int) int {
	quote := content[at : at+1]
	if triple := bytes.Repeat(quote, 3); bytes.HasPrefix(content[at:], triple) {
		quote = triple
	}
	for at += len(quote); at < len(content); at++ {
		switch {
		case content[at] == '\\':
			at++
		case bytes.HasPrefix(content[at:], quote):
			return at + len(quote)
		case content[at] == '\n' && len(quote) == 1:
			return at
		}
	}
	return len(content)
}

// stringLiteral is what a statement says that is one string and nothing else.
func stringLiteral(text []byte) (string, bool) {
	text = bytes.TrimLeft(text, "rRuU")
	if len(text) < 2 || text[0] != '"' && text[0] != '\'' || stringEnd(text, 0) != len(text) {
		return "", false
	}
	lines := strings.Split(strings.Trim(string(text), `"'`), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line) // what is indented is no code, as it would be in Go
	}
	return strings.Join(lines, "\n"), true
}
