package policy

import (
	"regexp"
	"slices"
	"strings"
)

// quoting adds or drops the quotes around a shell expansion.
func (m *mutator) quoting() {
	if m.lang != shell {
		return
	}
	for i, l := range m.lexed {
		if l.class != variable {
			continue
		}
		before, after := "", ""
		if i > 0 {
			before = m.lexed[i-1].text
		}
		if i+1 < len(m.lexed) {
			after = m.lexed[i+1].text
		}
		if before == `"` && after == `"` {
			m.put("quote", "drop", m.text[:l.start-1]+l.text+m.text[l.start+len(l.text)+1:])
		} else if before != `"` && after != `"` && !m.isBracketed(i, `"`, `"`) && !m.isBracketed(i, "((", "))") {
			m.put("quote", "add", substitute(m.text, l, `"`+l.text+`"`))
		}
	}
	for _, span := range quoted(m.text) {
		if body := m.text[span[0]:span[1]]; m.text[span[0]-1] == '\'' && strings.Contains(body, "$") && !strings.Contains(body, `"`) {
			m.put("quote", "double", m.text[:span[0]-1]+`"`+body+`"`+m.text[span[1]+1:])
		}
	}
}

var (
	shellTest   = regexp.MustCompile(`(^|[ \t(;|&])(\[ |\[\[ |test )`)
	shellBranch = regexp.MustCompile(`^(\s*)(if|while|until|elif) (! )?`)
	codeBranch  = regexp.MustCompile(`^(\s*(?:\} else )?if )(.*; )?([^;{]+)( \{)$`)
	returned    = regexp.MustCompile(`^(\s*return )([^,]+)$`)
)

// negation turns a condition around.
func (m *mutator) negation() {
	if m.lang == shell {
		for _, at := range shellTest.FindAllStringSubmatchIndex(m.text, -1) {
			if !strings.HasPrefix(m.text[at[5]:], "!") {
				m.put("negate", "[ !", m.text[:at[5]]+"! "+m.text[at[5]:])
			}
		}
		if at := shellBranch.FindStringSubmatchIndex(m.text); at != nil && at[6] < 0 && !m.testBracket() {
			m.put("negate", "if !", m.text[:at[5]]+" !"+m.text[at[5]:])
		}
		if strings.Contains(m.text, "while ") {
			m.put("negate", "until", strings.Replace(m.text, "while ", "until ", 1))
		} else if strings.Contains(m.text, "until ") {
			m.put("negate", "while", strings.Replace(m.text, "until ", "while ", 1))
		}
		return
	}
	if at := codeBranch.FindStringSubmatchIndex(m.text); at != nil && !m.compares() {
		m.put("negate", "!(", m.text[:at[6]]+"!("+m.text[at[6]:at[7]]+")"+m.text[at[7]:])
	}
	if at := returned.FindStringSubmatchIndex(m.text); at != nil && !m.compares() {
		m.put("negate", "return !", m.text[:at[4]]+"!("+m.text[at[4]:]+")")
	}
}

func (m *mutator) compares() bool {
	for i := range m.lexed {
		if slices.Contains(comparisons, m.lexed[i].text) {
			return true
		}
	}
	return false
}

// order swaps neighbours: the arguments of a call, the words of a command, the operands of an operator; and it moves brackets.
func (m *mutator) order() {
	for i, l := range m.lexed {
		if l.class == operator && slices.Contains([]string{",", "-", "/", "%"}, l.text) {
			m.swapAround(i, l.text)
		}
	}
	m.swapWords()
	m.brackets()
}

// swapWords exchanges neighbouring arguments of a shell command.
func (m *mutator) swapWords() {
	if m.lang != shell || m.testBracket() {
		return
	}
	words := strings.Split(m.text, " ")
	for k := 1; k+1 < len(words) && len(words) <= 12; k++ {
		a, b := words[k], words[k+1]
		plain := func(word string) bool {
			return word != "" && !keywords[word] && !strings.Contains("|&;<>(){}[]=", word[:1]) && !strings.HasSuffix(word, ";")
		}
		if before := words[k-1]; !plain(a) || !plain(b) || a == b || before == "" || before == "|" || before == "&&" || before == "||" || before == "if" || before == "while" {
			continue
		}
		swapped := slices.Clone(words)
		swapped[k], swapped[k+1] = b, a
		m.put("swap", "words", strings.Join(swapped, " "))
	}
}

// swapAround exchanges the operand that ends before lexeme i with the one that begins after it.
func (m *mutator) swapAround(i int, what string) {
	_, left := m.neighbour(i, -1)
	_, right := m.neighbour(i, 1)
	if left < 0 || right < 0 {
		return
	}
	a, b := m.operandEnding(left), m.operandBeginning(right)
	if a < 0 || b < 0 {
		return
	}
	aEnd, bEnd := m.lexed[left].start+len(m.lexed[left].text), m.lexed[b].start+len(m.lexed[b].text)
	first, middle, second := m.text[m.lexed[a].start:aEnd], m.text[aEnd:m.lexed[right].start], m.text[m.lexed[right].start:bEnd]
	if first == second || keywords[first] || keywords[second] {
		return
	}
	m.put("swap", what, m.text[:m.lexed[a].start]+second+middle+first+m.text[bEnd:])
}

// operandEnding finds where the operand that ends at lexeme i begins: a name with its selectors, a quoted text, a number.
func (m *mutator) operandEnding(i int) int {
	l := m.lexed[i]
	if l.text == `"` || l.text == "'" {
		for j := i - 1; j >= 0; j-- {
			if m.lexed[j].text == l.text {
				return j
			}
		}
		return -1
	}
	if l.text == ")" || l.text == "]" || l.text == "}" {
		depth := 0
		for j := i; j >= 0; j-- {
			switch m.lexed[j].text {
			case ")", "]", "}":
				depth++
			case "(", "[", "${", "$(":
				depth--
			}
			if depth == 0 {
				if j > 0 && m.lexed[j-1].class == name {
					return m.operandEnding(j - 1)
				}
				return j
			}
		}
		return -1
	}
	if l.class == operator || l.class == space || l.class == flag {
		return -1
	}
	for i >= 2 && m.lexed[i-1].text == "." && m.lexed[i-2].class == name {
		i -= 2
	}
	return i
}

func (m *mutator) operandBeginning(i int) int {
	l := m.lexed[i]
	if l.text == `"` || l.text == "'" {
		for j := i + 1; j < len(m.lexed); j++ {
			if m.lexed[j].text == l.text {
				return j
			}
		}
		return -1
	}
	if l.text == "(" || l.text == "${" || l.text == "$(" {
		return m.closing(i)
	}
	if l.class == operator || l.class == space || l.class == flag {
		return -1
	}
	for i+2 < len(m.lexed) && m.lexed[i+1].text == "." && m.lexed[i+2].class == name {
		i += 2
	}
	if i+1 < len(m.lexed) && (m.lexed[i+1].text == "(" || m.lexed[i+1].text == "[") && l.class == name {
		return m.closing(i + 1)
	}
	return i
}

func (m *mutator) closing(i int) int {
	depth := 0
	for j := i; j < len(m.lexed); j++ {
		switch m.lexed[j].text {
		case "(", "[", "${", "$(":
			depth++
		case ")", "]", "}":
			depth--
		}
		if depth == 0 {
			return j
		}
	}
	return -1
}

// brackets sets brackets around the operands of a weak operator before a strong one, or takes a pair away.
func (m *mutator) brackets() {
	for i, l := range m.lexed {
		if l.text == "(" && (i == 0 || m.lexed[i-1].class != name) {
			if end := m.closing(i); end > i+1 {
				m.put("bracket", "drop", m.text[:l.start]+m.text[l.start+1:m.lexed[end].start]+m.text[m.lexed[end].start+1:])
			}
		}
		arithmeticHere := m.lang == code || m.isBracketed(i, "$((", "))")
		if (l.text == "+" || l.text == "-") && arithmeticHere && m.binary(i) {
			_, left := m.neighbour(i, -1)
			_, right := m.neighbour(i, 1)
			a, b := m.operandEnding(left), m.operandBeginning(right)
			if a >= 0 && b >= 0 {
				end := m.lexed[b].start + len(m.lexed[b].text)
				m.put("bracket", "add", m.text[:m.lexed[a].start]+"("+m.text[m.lexed[a].start:end]+")"+m.text[end:])
			}
		}
	}
}

// removal takes out a part: one word of a command, one side of a logical operator, one stage of a pipeline, a statement on the line.
func (m *mutator) removal() {
	for _, separator := range []string{" && ", " || ", " | ", "; "} {
		parts := strings.Split(m.text, separator)
		if len(parts) < 2 || len(parts) > 5 {
			continue
		}
		for k := range parts {
			rest := slices.Delete(slices.Clone(parts), k, k+1)
			text := strings.Join(rest, separator)
			if k == 0 {
				indent := m.text[:len(m.text)-len(strings.TrimLeft(m.text, " \t"))]
				text = indent + strings.TrimLeft(text, " \t")
			}
			m.put("remove", strings.TrimSpace(separator), text)
		}
	}
	if m.lang != shell {
		return
	}
	words := strings.Split(m.text, " ")
	for k := 1; k < len(words) && len(words) <= 10 && !m.testBracket(); k++ {
		if len(words[k]) > 1 && words[k][0] != '-' && words[k][0] != '#' && !keywords[words[k]] {
			m.put("remove", "word", strings.Join(slices.Delete(slices.Clone(words), k, k+1), " "))
		}
	}
}
