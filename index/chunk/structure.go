package chunk

import (
	"bytes"
	"strings"

	"github.com/rondo-rl/rondo/index/source"
)

// bracedStructure goes by brackets.
func bracedStructure(language source.Language, content []byte, lines []line) {
	for i := range lines {
		lines[i].fixed, lines[i].attached = false, false
	}
	lex(language, content, lines)
	for i := range lines {
		l := &lines[i]
		if l.blank || l.fixed || l.attached {
			continue
		}
		l.name = declared(language, l.depth, codeOf(content, lines, i))
		l.declares = l.name != ""
	}
}

// codeOf is the text of a line, and where it ends in none of the marks that end a head, that of
// the next with the bracket.
func codeOf(content []byte, lines []line, i int) string {
	text := bytes.TrimSpace(content[lines[i].start:lines[i].end])
	if len(text) > 0 && i+1 < len(lines) && bytes.IndexByte([]byte(";{},"), text[len(text)-1]) < 0 {
		if next := bytes.TrimSpace(content[lines[i+1].start:lines[i+1].end]); len(next) > 0 && next[0] == '{' {
			return cutRunes(string(text), 300) + " {"
		}
	}
	return cutRunes(string(text), 300)
}

// closers begin lines that end what an indented block began, or go on with it.
var closers = map[string]bool{
	"end": true, "fi": true, "done": true, "esac": true, "else": true, "elif": true, "elsif": true,
	"then": true, "do": true,
	"except": true, "finally": true, "rescue": true, "ensure": true, "when": true,
}

// indentedStructure goes by indentation, and by brackets where a line is within some.
func indentedStructure(language source.Language, content []byte, lines []line) {
	lex(language, content, lines)
	var widths []int // of the blocks that are open
	for i := range lines {
		l := &lines[i]
		if l.blank {
			continue
		}
		if language != source.Shell && l.depth > 0 { // in Python and Ruby an open bracket means a statement goes on
			l.fixed = true
		}
		if l.fixed {
			l.depth = len(widths)
			continue
		}
		text := content[l.start:l.end]
		width := indentation(text)
		for len(widths) > 0 && widths[len(widths)-1] >= width {
			widths = widths[:len(widths)-1]
		}
		l.depth = len(widths)
		widths = append(widths, width)
		word, _, _ := strings.Cut(string(cutBytes(bytes.TrimSpace(text), 20)), " ")
		if closers[strings.TrimRight(word, ":;")] {
			l.fixed = true
		}
		if !l.fixed && !l.attached {
			l.name = declared(language, l.depth, codeOf(content, lines, i))
			l.declares = l.name != ""
		}
	}
}

func cutBytes(text []byte, n int) []byte { return text[:min(len(text), n)] }

// indentation counts columns; a tab goes to the next multiple of eight, as in Python.
func indentation(text []byte) int {
	width := 0
	for _, c := range text {
		switch c {
		case ' ':
			width++
		case '\t':
			width += 8 - width%8
		default:
			return width
		}
	}
	return width
}

// markdownStructure goes by headings, then by paragraphs; fenced code is not torn.
func markdownStructure(content []byte, lines []line) {
	const paragraph, within = 10, 11 // deeper than any heading
	var fence []byte
	for i := range lines {
		l := &lines[i]
		text := bytes.TrimSpace(content[l.start:l.end])
		l.depth = within
		if i > 0 && lines[i-1].blank {
			l.depth = paragraph
		}
		mark := fenceOf(text)
		switch {
		case fence != nil:
			l.fixed = true
			if bytes.HasPrefix(text, fence) && len(bytes.Trim(text, string(fence[:1]))) == 0 {
				fence = nil
			}
		case mark != nil:
			fence = mark
		default:
			if level, name := heading(text); level > 0 {
				l.depth, l.name, l.declares = level-1, name, true
			}
		}
	}
}

func fenceOf(text []byte) []byte {
	for _, c := range []byte("`~") {
		n := len(text) - len(bytes.TrimLeft(text, string(c)))
		if n >= 3 && bytes.IndexByte(text[n:], '`') < 0 {
			return text[:n]
		}
	}
	return nil
}

func heading(text []byte) (level int, name string) {
	rest := bytes.TrimLeft(text, "#")
	level = len(text) - len(rest)
	if level < 1 || level > 6 || len(rest) == 0 || rest[0] != ' ' && rest[0] != '\t' {
		return 0, ""
	}
	return level, cutRunes(string(bytes.TrimSpace(bytes.TrimRight(rest, "# \t"))), maxName)
}

// textStructure goes by blank lines, then by lines that are not indented.
func textStructure(content []byte, lines []line) {
	for i := range lines {
		if text := content[lines[i].start:lines[i].end]; !lines[i].blank {
			lines[i].depth = 1 + min(indentation(text)/2, 20)
		}
	}
}
