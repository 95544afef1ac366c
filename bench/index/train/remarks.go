package main

import "strings"

// remark is a comment with the code below it.
type remark struct{ comment, code string }

const (
	leastRemark = 4 // words between spaces
	leastLines  = 2 // of code
	mostLines   = 16
)

// remarks finds comments of whole lines within functions: those that are indented, and the lines
// below them up to a blank one, the next comment, or the end of the block.
func remarks(content string) []remark {
	var list []remark
	lines := strings.Split(content, "\n")
	for i := 0; i < len(lines); i++ {
		text, width, ok := commented(lines[i])
		if !ok || width == 0 {
			continue
		}
		for i+1 < len(lines) {
			more, w, ok := commented(lines[i+1])
			if !ok || w != width {
				break
			}
			text += " " + more
			i++
		}
		var code []string
		for j := i + 1; j < len(lines) && len(code) < mostLines; j++ {
			_, w, isComment := commented(lines[j])
			if isComment || strings.TrimSpace(lines[j]) == "" || w < width {
				break
			}
			code = append(code, lines[j])
		}
		if sentence, _, _ := strings.Cut(text, ". "); len(strings.Fields(sentence)) >= leastRemark &&
			len(code) >= leastLines {
			list = append(list, remark{sentence, strings.Join(code, "\n")})
		}
	}
	return list
}

// commented gives the text of a line that is a comment, and how far any line is indented.
func commented(line string) (text string, width int, ok bool) {
	trimmed := strings.TrimLeft(line, " \t")
	width = len(line) - len(trimmed)
	for _, start := range []string{"// ", "# "} {
		if text, ok := strings.CutPrefix(trimmed, start); ok {
			return strings.TrimSpace(text), width, true
		}
	}
	return "", width, false
}
