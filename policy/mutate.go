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

// mutations lists what can be changed at a line of a file.
func (s *state) mutations(f *file, line int) []mutation {
	facts := f.derive()
	m := &mutator{
		file: f, facts: facts, line: line, text: f.lines[line], lexed: facts.lexed[line], lang: f.language(), state: s,
		seen: map[string]bool{f.lines[line]: true},
	}
	for i := range m.lexed {
		m.mutateLexeme(i)
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
	if m.seen[line] || len(line) > maxLine || strings.TrimSpace(line) == "" {
		return
	}
	m.seen[line] = true
	m.out = append(m.out, mutation{op, detail, replace{m.line, 1, []string{line}}})
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
	assignments     = []string{"=", "+=", "-=", "*=", ":="}
	trims           = []string{"#", "##", "%", "%%"}
	defaults        = []string{":-", "-", ":+", "+", ":="}
	logical         = []string{"&&", "||"}
	steps           = []string{"++", "--"}
	redirections    = []string{">", ">>"}
	specials        = []string{"$@", "$*"}
	positions       = []string{"$1", "$2", "$3", "$4"}
	jumps           = []string{"continue", "break", "return"}
)

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
		if !m.family("position", l, positions) {
			m.family("special", l, specials)
		}
		m.renameVariable(i)
	case operator:
		m.mutateOperator(i)
	}
}

func (m *mutator) mutateOperator(i int) {
	l := m.lexed[i]
	inArithmetic := m.lang == code || m.inside(i, "$((", "))") || m.inside(i, "((", "))") || m.inside(i, "'", "'")
	switch l.text {
	case "&&", "||":
		m.family("logical", l, logical)
	case "++", "--":
		m.family("step", l, steps)
	case "!":
		m.put("negate", "drop !", strings.Replace(m.text[:l.start], "! ", "!", 0)+strings.TrimLeft(m.text[l.start+1:], " "))
	}
	if m.lang == shell && m.inside(i, "${", "}") {
		m.family("trim", l, trims)
		m.family("default", l, defaults)
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
		m.family("assign", l, assignments)
	}
	if inArithmetic {
		m.offset(i)
	}
}

// inside tells whether lexeme i lies between an opening and a closing mark on this line.
func (m *mutator) inside(i int, open, shut string) bool {
	depth := 0
	for j := 0; j < i; j++ {
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
	if !ends || !isOperand(before) || before.class == numeral || before.text == "))" {
		return
	}
	at := before.start + len(before.text)
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
	put("*10", n*10)
	put("/10", n/10)
	put("*2", n*2)
	for k, other := range m.state.digit {
		if k < 6 {
			m.put("number", "seen", substitute(m.text, l, other))
		}
	}
	if m.lang == shell && i > 0 && m.lexed[i-1].text != "+" && m.lexed[i-1].class == space {
		m.put("number", "sign", substitute(m.text, l, "+"+l.text))
		m.put("number", "sign", substitute(m.text, l, "-"+l.text))
	}
}

// letters of flags that filters commonly take; the ones seen in the conversation's files come first.
const flagLetters = "nrufdskcevwxqialtE"

func (m *mutator) mutateFlag(i int) {
	l := m.lexed[i]
	if m.family("compare", l, testComparisons) || m.family("empty", l, emptiness) && m.testBracket() {
		return
	}
	if m.testBracket() && m.family("filetest", l, fileTests) {
		return
	}
	if l.text == "-a" || l.text == "-o" {
		m.family("logical", l, []string{"-a", "-o"})
	}
	m.put("flag", "drop", m.text[:l.start]+strings.TrimLeft(m.text[l.start+len(l.text):], " "))
	letters := l.text[1:]
	if len(letters) > 4 {
		return
	}
	for k := range letters {
		if len(letters) > 1 {
			m.put("flag", "without "+letters[k:k+1], substitute(m.text, l, "-"+letters[:k]+letters[k+1:]))
		}
	}
	for _, c := range flagLetters {
		letter := string(c)
		if strings.Contains(letters, letter) {
			continue
		}
		m.put("flag", "with "+letter, substitute(m.text, l, l.text+letter))
		if len(letters) == 1 {
			m.put("flag", letters+">"+letter, substitute(m.text, l, "-"+letter))
		}
	}
	if upper := strings.ToUpper(letters); upper != letters {
		m.put("flag", "upper", substitute(m.text, l, "-"+upper))
	} else {
		m.put("flag", "lower", substitute(m.text, l, "-"+strings.ToLower(letters)))
	}
}

func (m *mutator) testBracket() bool {
	return strings.Contains(m.text, "[ ") || strings.Contains(m.text, "test ")
}
