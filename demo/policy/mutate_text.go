package policy

import (
	"regexp"
	"strings"
)

const maxConstants = 8 // a line

var separators = []string{" ", ",", ":", ";", "-", "_", "/", ".", "\\n", "\\t", ""}

// constants puts another text in the place of a short string constant: a common separator, or one that stands near.
func (m *mutator) constants() {
	count := 0
	for _, span := range quoted(m.text) {
		body := m.text[span[0]:span[1]]
		if strings.ContainsAny(body, "$`") {
			continue
		}
		if len(body) <= 2 {
			for _, other := range separators {
				m.put("text", "separator", m.text[:span[0]]+other+m.text[span[1]:])
			}
		}
		if end, ok := strings.CutSuffix(body, `\n`); ok {
			m.put("text", "no newline", m.text[:span[0]]+end+m.text[span[1]:])
		} else if strings.Contains(body, "%") {
			m.put("text", "newline", m.text[:span[1]]+`\n`+m.text[span[1]:])
		}
		m.eachConstant(func(other string) bool {
			if other == body || len(other) > 24 || count >= maxConstants {
				return count < maxConstants
			}
			count++
			m.put("text", "near", m.text[:span[0]]+other+m.text[span[1]:])
			return true
		})
	}
}

// eachConstant visits the string constants of the lines around, nearest first, and those that failing tests quote.
func (m *mutator) eachConstant(visit func(string) bool) {
	for distance := range 12 {
		for _, line := range []int{m.line - distance, m.line + distance} {
			if line < 0 || line >= len(m.file.lines) || distance == 0 && line != m.line {
				continue
			}
			for _, span := range quoted(m.file.lines[line]) {
				if body := m.file.lines[line][span[0]:span[1]]; !strings.ContainsAny(body, "$`") && !visit(body) {
					return
				}
			}
		}
	}
	for _, other := range m.state.quote {
		if !visit(other) {
			return
		}
	}
}

var (
	sedCommand = regexp.MustCompile(`s([/|,:#])([^/|,:#]*)([/|,:#])([^/|,:#]*)([/|,:#])([gIp0-9]*)`)
	matching   = regexp.MustCompile(`\b(grep|egrep|sed|awk|expr|regexp|Match\w*|re\.\w+|case|tr|gsub|sub|split|match)\b|=~|~`)
	bracketSet = regexp.MustCompile(`\[\^?[^\]\s\[]{1,30}\]`)
	ranges     = []string{"a-z", "A-Z", "0-9", "_", "-", ".", " "}
)

// patterns changes regular expressions and sets: anchors, repetition, what a set holds, whether a substitution is global.
func (m *mutator) patterns() {
	if !matching.MatchString(m.text) {
		return
	}
	for _, at := range sedCommand.FindAllStringSubmatchIndex(m.text, -1) {
		flags := m.text[at[12]:at[13]]
		if strings.Contains(flags, "g") {
			m.put("pattern", "not global", m.text[:at[12]]+strings.ReplaceAll(flags, "g", "")+m.text[at[13]:])
		} else {
			m.put("pattern", "global", m.text[:at[12]]+"g"+flags+m.text[at[13]:])
		}
		m.anchor(at[4], at[5])
	}
	for _, span := range quoted(m.text) {
		if body := m.text[span[0]:span[1]]; body != "" && !strings.HasPrefix(body, "s/") {
			m.anchor(span[0], span[1])
		}
	}
	for i, l := range m.lexed {
		switch l.text {
		case "*", "+", "?":
			if i > 0 && m.lexed[i-1].class != space {
				m.put("pattern", "drop "+l.text, substitute(m.text, l, ""))
				for _, other := range []string{"*", "+", "\\+", "?"} {
					m.put("pattern", l.text+">"+other, substitute(m.text, l, other))
				}
			}
		case ".":
			if i > 0 && !strings.HasSuffix(m.lexed[i-1].text, "\\") {
				m.put("pattern", "escape", substitute(m.text, l, "\\."))
			}
		case "\\":
			m.put("pattern", "unescape", substitute(m.text, l, ""))
		}
	}
	for _, span := range bracketSet.FindAllStringIndex(m.text, -1) {
		m.set(span[0]+1, span[1]-1)
	}
	if strings.Contains(m.text, "tr ") {
		for _, span := range quoted(m.text) {
			m.set(span[0], span[1])
		}
	}
}

func (m *mutator) anchor(start, end int) {
	body := m.text[start:end]
	if strings.HasPrefix(body, "^") {
		m.put("pattern", "drop ^", m.text[:start]+m.text[start+1:])
	} else {
		m.put("pattern", "add ^", m.text[:start]+"^"+m.text[start:])
	}
	if strings.HasSuffix(body, "$") {
		m.put("pattern", "drop $", m.text[:end-1]+m.text[end:])
	} else {
		m.put("pattern", "add $", m.text[:end]+"$"+m.text[end:])
	}
}

// set changes a set of characters: it adds or drops a range, or turns the set around.
func (m *mutator) set(start, end int) {
	body := m.text[start:end]
	for _, part := range ranges {
		if strings.Contains(body, part) && len(body) > len(part) {
			m.put("set", "drop "+part, m.text[:start]+strings.Replace(body, part, "", 1)+m.text[end:])
		} else {
			m.put("set", "add "+part, m.text[:start]+body+part+m.text[end:])
		}
	}
	if m.text[start-1] != '[' {
		return
	}
	if strings.HasPrefix(body, "^") || strings.HasPrefix(body, "!") {
		m.put("set", "not inverse", m.text[:start]+body[1:]+m.text[end:])
	} else {
		m.put("set", "inverse", m.text[:start]+"^"+m.text[start:])
	}
}

// statements deletes a line or swaps it with the next, as GenProg does. Lines that open or close a block stay.
func (m *mutator) statements() {
	add := func(detail string, change replace) { m.out = append(m.out, mutation{"line", detail, change}) }
	if !simple(m.facts.plain[m.line]) {
		return
	}
	add("delete", replace{m.line, 1, nil})
	if next := m.line + 1; next < len(m.file.lines) && m.movable(next) {
		add("swap with the next", replace{m.line, 2, []string{m.file.lines[next], m.text}})
	}
	if previous := m.line - 1; previous >= 0 && m.movable(previous) && !simple(m.facts.plain[previous]) {
		add("swap with the last", replace{previous, 2, []string{m.text, m.file.lines[previous]}})
	}
}

// movable tells whether another line can change places with this one, and that it makes a difference.
func (m *mutator) movable(line int) bool {
	return m.facts.plain[line] != "" && !isComment(m.facts.plain[line]) && m.file.lines[line] != m.text
}

// simple tells a statement on its own from the beginning or end of a block.
func simple(plain string) bool {
	first, _, _ := strings.Cut(plain, " ")
	switch first {
	case "if", "elif", "else", "for", "while", "until", "case", "func", "}", "fi", "done", "esac", "switch", "default:", "do", "then", "in", ";;":
		return false
	}
	for _, end := range []string{"{", "(", "\\", "|", "&&", "||", ")", ";;", "do", "then"} {
		if strings.HasSuffix(plain, end) {
			return end == ")" && strings.Contains(plain, "(")
		}
	}
	return true
}
