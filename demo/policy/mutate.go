package policy

import (
	"slices"
	"strconv"
	"strings"
)

// mutation is one small change of a program at one line, made by a general operator. The operators
// are those of the mutation testing literature (Offutt's sufficient set: relational, arithmetic,
// logical, constant) and those of names; none knows what is wrong with a program.
type mutation struct {
	op     string // the operator
	detail string // what it exchanged: "-ge>-gt"
	change replace
}

const (
	maxMutations = 96 // a line
	maxRenames   = 10 // a name
)

// mutator collects the mutations of one line.
type mutator struct {
	facts *fileFacts
	line  int
	text  string
	lexed []lexeme
	lang  language
	out   []mutation
	seen  map[string]bool
}

// mutate applies all operators to a line of a file.
func mutate(f *file, line int) []mutation {
	facts := f.derive()
	m := &mutator{
		facts: facts, line: line, text: f.lines[line], lexed: facts.lexed[line], lang: f.language(),
		seen: map[string]bool{f.lines[line]: true},
	}
	for i, l := range m.lexed {
		switch l.class {
		case flag:
			m.family("compare", l, testComparisons)
		case numeral:
			m.mutateNumber(l)
		case variable:
			m.renameVariable(i)
			m.mutateQuotes(i)
		case name:
			m.mutateName(i)
		case operator:
			m.mutateOperator(i)
		}
	}
	last := m.lexed[len(m.lexed)-1]
	assigned := m.lang == code && isOperand(last) && last.class != numeral && strings.Contains(m.text, "=")
	if assigned || strings.HasPrefix(strings.TrimSpace(m.text), "return ") {
		m.addOne(len(m.text))
	}
	return m.out[:min(len(m.out), maxMutations)]
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
	arithmetic      = []string{"+", "-", "*", "/", "%"}
	assignments     = []string{"=", "+=", "-="}
	trims           = []string{"#", "##", "%", "%%"}
	logical         = []string{"&&", "||"}
	words           = []string{"and", "or"}
)

func (m *mutator) family(op string, l lexeme, family []string) {
	if !slices.Contains(family, l.text) {
		return
	}
	for _, other := range family {
		if other != l.text {
			m.exchange(op, l, other)
		}
	}
}

func (m *mutator) mutateOperator(i int) {
	l := m.lexed[i]
	m.family("logical", l, logical)
	if m.lang == shell && m.isBracketed(i, "${", "}") {
		if m.lexed[i-1].text != "${" {
			m.family("trim", l, trims)
		}
		return
	}
	computed := m.lang == code || m.isBracketed(i, "$((", "))") || m.isBracketed(i, "((", "))") ||
		m.isBracketed(i, "'", "'")
	spaced := i > 0 && i+1 < len(m.lexed) && m.lexed[i-1].class == space && m.lexed[i+1].class == space
	switch {
	case computed && slices.Contains(comparisons, l.text):
		m.family("compare", l, comparisons)
	case m.lang == shell && spaced && (l.text == "=" || l.text == "!="):
		m.family("compare", l, []string{"=", "!="})
	case computed && m.binary(i):
		m.family("arithmetic", l, arithmetic)
	}
	if m.lang == code && spaced {
		m.family("assign", l, assignments)
	}
	if computed {
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
func (m *mutator) neighbour(i, step int) lexeme {
	for j := i + step; j >= 0 && j < len(m.lexed); j += step {
		if m.lexed[j].class != space {
			return m.lexed[j]
		}
	}
	return lexeme{}
}

func isOperand(l lexeme) bool {
	return l.class == name || l.class == variable || l.class == numeral ||
		slices.Contains([]string{")", "]", "}", "))"}, l.text)
}

func (m *mutator) binary(i int) bool {
	after := m.neighbour(i, 1)
	return isOperand(m.neighbour(i, -1)) &&
		(isOperand(after) || slices.Contains([]string{"(", "$((", "$(", "${", "\""}, after.text))
}

// offset adds or removes one at the end of an operand: the off-by-one operator.
func (m *mutator) offset(i int) {
	before := m.neighbour(i, -1)
	ends := slices.Contains(comparisons, m.lexed[i].text) ||
		slices.Contains([]string{"]", ":", "))", ";", ")", ","}, m.lexed[i].text)
	if ends && isOperand(before) && before.class != numeral && before.text != "))" {
		m.addOne(before.start + len(before.text))
	}
}

func (m *mutator) addOne(at int) {
	for _, one := range []string{" + 1", " - 1"} {
		m.put("offset", "add"+one, m.text[:at]+one+m.text[at:])
	}
}

func (m *mutator) mutateNumber(l lexeme) {
	n, err := strconv.Atoi(l.text)
	if err != nil || len(l.text) > 7 {
		return
	}
	for _, other := range []int{n + 1, n - 1, 0, 1} {
		if other >= 0 {
			m.put("number", strconv.Itoa(other-n), substitute(m.text, l, strconv.Itoa(other)))
		}
	}
}

// mutateQuotes adds or drops the quotes around a shell variable.
func (m *mutator) mutateQuotes(i int) {
	l, before, after := m.lexed[i], "", ""
	if i > 0 {
		before = m.lexed[i-1].text
	}
	if i+1 < len(m.lexed) {
		after = m.lexed[i+1].text
	}
	switch {
	case m.lang != shell:
	case before == `"` && after == `"`:
		m.put("quote", "drop", m.text[:l.start-1]+l.text+m.text[l.start+len(l.text)+1:])
	case before != `"` && after != `"` && !m.isBracketed(i, `"`, `"`) && !m.isBracketed(i, "((", "))"):
		m.put("quote", "add", substitute(m.text, l, `"`+l.text+`"`))
	}
}

// mutateName exchanges a word: a logical one, or a shell variable in an expansion or in arithmetic.
func (m *mutator) mutateName(i int) {
	m.family("logical", m.lexed[i], words)
	if m.lang != shell {
		return
	}
	previous := ""
	if i > 0 {
		previous = m.lexed[i-1].text
	}
	expanded := previous == "${" || previous == "#" && i > 1 && m.lexed[i-2].text == "${"
	computed := previous != "$(" && (m.isBracketed(i, "((", "))") || m.isBracketed(i, "$((", "))")) &&
		!m.isBracketed(i, "$(", ")")
	if expanded || computed {
		m.renameVariable(i)
	}
}

// renameVariable puts another variable of the same file in the place of a shell variable, nearest
// first, or the next position.
func (m *mutator) renameVariable(i int) {
	l := m.lexed[i]
	own := strings.TrimPrefix(l.text, "$")
	if own == "" || l.class == name && keywords[own] {
		return
	}
	prefix := l.text[:len(l.text)-len(own)]
	m.eachNear(own, func(other string) { m.put("name", own+">"+other, substitute(m.text, l, prefix+other)) })
	if n, err := strconv.Atoi(own); err == nil && prefix == "$" {
		for _, next := range []int{n + 1, n - 1} {
			if next > 0 {
				m.exchange("position", l, "$"+strconv.Itoa(next))
			}
		}
	}
}

// shellVariables lists the variable names that a line of shell uses or sets.
func shellVariables(lexed []lexeme) (names []string) {
	for i, l := range lexed {
		switch {
		case l.class == variable && len(l.text) > 1 && isLetter(l.text[1]):
			names = append(names, l.text[1:])
		case l.class == name && i > 0 && lexed[i-1].text == "${":
			names = append(names, l.text)
		case l.class == name && i+1 < len(lexed) && (lexed[i+1].text == "=" || lexed[i+1].text == "+="):
			names = append(names, l.text)
		}
	}
	return names
}

// eachNear visits the variables of the file line by line, nearest first, without repetition.
func (m *mutator) eachNear(own string, visit func(string)) {
	visited := map[string]bool{own: true}
	for distance := range m.facts.lexed {
		for _, line := range []int{m.line - distance, m.line + distance} {
			if line < 0 || line >= len(m.facts.lexed) || isComment(m.facts.plain[line]) {
				continue
			}
			for _, other := range shellVariables(m.facts.lexed[line]) {
				if !visited[other] && len(visited) <= maxRenames {
					visited[other] = true
					visit(other)
				}
			}
		}
	}
}

func isComment(plain string) bool {
	return strings.HasPrefix(plain, "#") || strings.HasPrefix(plain, "//")
}

var keywords = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(`if then else elif fi case esac for while until do done in function return break continue
		exit local export readonly shift set unset eval exec trap break func var const type struct map range go defer select switch
		default package import nil true false err string int bool byte rune error len cap append make new print printf echo cat
		read test sed awk grep tr cut sort uniq head tail wc def class self None and or not is lambda let`) {
		all[word] = true
	}
	return all
}()
