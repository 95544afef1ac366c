package policy

import (
	"slices"
	"strconv"
	"strings"
)

// mutation is one small change of a program at one line, made by a general operator. The operators are those of the mutation
// testing and program repair literature (Offutt's sufficient set: relational, arithmetic, logical, constant, absolute value;
// Le Goues et al., GenProg: delete, insert, swap; Jia and Harman's survey for the rest); none knows what is wrong with a program.
type mutation struct {
	op     string // the operator
	detail string // what it exchanged: "-ge>-gt"
	change replace
}

const maxMutations = 96 // a line

// mutator collects the mutations of one line.
type mutator struct {
	file  *file
	facts *fileFacts
	line  int
	text  string
	lexed []lexeme
	lang  language
	state *state
	out   []mutation
	seen  map[string]bool
}

// mutate applies all operators to a line of a file.
func (s *state) mutate(f *file, line int) []mutation {
	facts := f.derive()
	m := &mutator{
		file: f, facts: facts, line: line, text: f.lines[line], lexed: facts.lexed[line], lang: f.language(), state: s,
		seen: map[string]bool{f.lines[line]: true},
	}
	for i := range m.lexed {
		m.mutateLexeme(i)
	}
	if last := m.lexed[len(m.lexed)-1]; m.lang == code && isOperand(last) && last.class != numeral && strings.ContainsAny(m.text, "=") || strings.HasPrefix(strings.TrimSpace(m.text), "return ") {
		m.addOne(len(m.text))
	}
	m.quoting()
	m.negation()
	m.order()
	m.removal()
	m.constants()
	m.patterns()
	m.statements()
	if len(m.out) > maxMutations {
		m.out = m.out[:maxMutations]
	}
	return m.out
}

// put adds a mutation that rewrites the line.
func (m *mutator) put(op, detail, line string) {
	if m.seen[line] || len(line) > maxLine || strings.TrimSpace(line) == "" || !m.balanced(line) {
		return
	}
	m.seen[line] = true
	m.out = append(m.out, mutation{op, detail, replace{m.line, 1, []string{line}}})
}

// balanced tells whether a rewritten line opens and closes as many brackets and quotes as the old one: the cheapest of syntax checks.
func (m *mutator) balanced(line string) bool {
	const marks = "()[]{}\"'`"
	var before, after [len(marks)]int
	count := func(text string, into *[len(marks)]int) {
		for i := range len(text) {
			if k := strings.IndexByte(marks, text[i]); k >= 0 {
				into[k]++
			}
		}
	}
	count(m.text, &before)
	count(line, &after)
	for k := 0; k < 6; k += 2 {
		if before[k]-before[k+1] != after[k]-after[k+1] {
			return false
		}
	}
	return (before[6]-after[6])%2 == 0 && (before[7]-after[7])%2 == 0 && (before[8]-after[8])%2 == 0
}

func (m *mutator) exchange(op string, l lexeme, text string) {
	m.put(op, l.text+">"+text, substitute(m.text, l, text))
}

// families of operators that stand in each other's place.
var (
	testComparisons = []string{"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
	comparisons     = []string{"==", "!=", "<", "<=", ">", ">="}
	emptiness       = []string{"-z", "-n"}
	fileTests       = []string{"-e", "-f", "-d", "-s", "-r", "-w", "-x", "-L"}
	arithmetic      = []string{"+", "-", "*", "/", "%"}
	trims           = []string{"#", "##", "%", "%%"}
	defaults        = []string{":-", "-", ":+", "+", ":="}
	logical         = []string{"&&", "||"}
	steps           = []string{"++", "--"}
	redirections    = []string{">", ">>"}
	specials        = []string{"$@", "$*"}
	positions       = []string{"$1", "$2", "$3", "$4"}
	jumps           = []string{"continue", "break", "return"}
)

// assignments that are taken for each other.
var assignments = map[string][]string{"=": {"+=", ":="}, ":=": {"="}, "+=": {"-=", "="}, "-=": {"+=", "="}, "*=": {"+=", "/="}, "/=": {"*="}}

func (m *mutator) family(op string, l lexeme, family []string) bool {
	if !slices.Contains(family, l.text) {
		return false
	}
	for _, other := range family {
		if other != l.text {
			m.exchange(op, l, other)
		}
	}
	return true
}

func (m *mutator) mutateLexeme(i int) {
	l := m.lexed[i]
	switch l.class {
	case flag:
		m.mutateFlag(i)
	case numeral:
		m.mutateNumber(i)
	case name:
		m.mutateName(i)
	case variable:
		m.family("special", l, specials)
		m.renameVariable(i)
	case operator:
		m.mutateOperator(i)
	}
}

func (m *mutator) mutateOperator(i int) {
	l := m.lexed[i]
	inArithmetic := m.lang == code || m.isBracketed(i, "$((", "))") || m.isBracketed(i, "((", "))") || m.isBracketed(i, "'", "'")
	switch l.text {
	case "&&", "||":
		m.family("logical", l, logical)
	case "++", "--":
		m.family("step", l, steps)
	case "!":
		m.put("negate", "drop !", m.text[:l.start]+strings.TrimLeft(m.text[l.start+1:], " "))
	}
	if m.lang == shell && m.isBracketed(i, "${", "}") {
		if m.lexed[i-1].text != "${" {
			m.family("trim", l, trims)
			m.family("default", l, defaults)
		}
		return
	}
	spaced := i > 0 && i+1 < len(m.lexed) && m.lexed[i-1].class == space && m.lexed[i+1].class == space
	switch {
	case inArithmetic && slices.Contains(comparisons, l.text):
		m.family("compare", l, comparisons)
	case m.lang == shell && spaced && (l.text == "=" || l.text == "!=" || l.text == "=="):
		m.family("compare", l, []string{"=", "!="})
	case m.lang == shell && (l.text == ">" || l.text == ">>"):
		m.family("redirect", l, redirections)
	case inArithmetic && slices.Contains(arithmetic, l.text) && m.binary(i):
		m.family("arithmetic", l, arithmetic)
	case m.lang == code && spaced:
		for _, other := range assignments[l.text] {
			m.exchange("assign", l, other)
		}
	}
	if inArithmetic {
		m.offset(i)
	}
}

// isBracketed tells whether lexeme i lies between an opening and a closing mark on this line.
func (m *mutator) isBracketed(i int, open, shut string) bool {
	depth := 0
	for j := range i {
		switch t := m.lexed[j].text; {
		case open == shut && t == open:
			depth = 1 - depth
		case t == open:
			depth++
		case t == shut && depth > 0:
			depth--
		}
	}
	return depth > 0
}

// neighbour is the next lexeme in a direction that is no space, or the zero lexeme.
func (m *mutator) neighbour(i, step int) (lexeme, int) {
	for j := i + step; j >= 0 && j < len(m.lexed); j += step {
		if m.lexed[j].class != space {
			return m.lexed[j], j
		}
	}
	return lexeme{}, -1
}

func isOperand(l lexeme) bool {
	return l.class == name || l.class == variable || l.class == numeral || l.text == ")" || l.text == "]" || l.text == "}" || l.text == "))"
}

func (m *mutator) binary(i int) bool {
	before, _ := m.neighbour(i, -1)
	after, _ := m.neighbour(i, 1)
	return isOperand(before) && (isOperand(after) || after.text == "(" || after.text == "$((" || after.text == "$(" || after.text == "${" || after.text == "\"")
}

// offset adds or removes one at the end of an operand: the off-by-one operator.
func (m *mutator) offset(i int) {
	l := m.lexed[i]
	after, next := m.neighbour(i, 1)
	if (l.text == "+" || l.text == "-") && after.class == numeral && i > 0 {
		start := m.lexed[i].start
		m.put("offset", "drop "+l.text, strings.TrimRight(m.text[:start], " ")+m.text[m.lexed[next].start+len(after.text):])
	}
	before, _ := m.neighbour(i, -1)
	ends := slices.Contains(comparisons, l.text) || l.text == "]" || l.text == ":" || l.text == "))" || l.text == ";" || l.text == ")" || l.text == ","
	if !ends || !isOperand(before) || before.class == numeral || before.text == "))" || m.measured(i) {
		return
	}
	m.addOne(before.start + len(before.text))
}

// measured tells whether lexeme i closes the argument of a length, to which nothing can be added.
func (m *mutator) measured(i int) bool {
	if m.lexed[i].text != ")" {
		return false
	}
	start := m.operandEnding(i)
	return start >= 0 && (m.lexed[start].text == "len" || m.lexed[start].text == "cap")
}

func (m *mutator) addOne(at int) {
	for _, one := range []string{" + 1", " - 1"} {
		m.put("offset", "add"+one, m.text[:at]+one+m.text[at:])
	}
}

func (m *mutator) mutateNumber(i int) {
	l := m.lexed[i]
	n, err := strconv.Atoi(l.text)
	if err != nil || len(l.text) > 7 {
		return
	}
	width := 0
	if l.text[0] == '0' {
		width = len(l.text)
	}
	put := func(detail string, n int) {
		if n < 0 {
			return
		}
		text := strconv.Itoa(n)
		for len(text) < width {
			text = "0" + text
		}
		m.put("number", detail, substitute(m.text, l, text))
	}
	put("+1", n+1)
	put("-1", n-1)
	put("0", 0)
	put("1", 1)
	for k, other := range m.facts.numbers(m.line) {
		if k < 3 {
			m.put("number", "near", substitute(m.text, l, other))
		}
	}
	if n > 9 {
		for k, other := range m.state.digit {
			if k < 4 && len(other) > 1 {
				m.put("number", "seen", substitute(m.text, l, other))
			}
		}
	}
}
