package policy

import (
	"slices"
	"strconv"
	"strings"
)

const maxRenames = 10 // a name

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

// opposites are words that are often taken for each other; whole words and parts of names.
var opposites = [][2]string{
	{"first", "last"}, {"head", "tail"}, {"min", "max"}, {"prefix", "suffix"}, {"left", "right"}, {"upper", "lower"}, {"start", "end"},
	{"true", "false"}, {"break", "continue"}, {"floor", "ceil"}, {"before", "after"}, {"add", "sub"}, {"row", "col"}, {"asc", "desc"},
	{"width", "height"}, {"begin", "end"}, {"any", "all"}, {"index", "lastIndex"}, {"push", "pop"}, {"inc", "dec"}, {"read", "write"},
	{"floor", "round"}, {"in", "out"}, {"key", "value"}, {"src", "dst"}, {"from", "to"}, {"append", "prepend"}, {"even", "odd"},
	{"and", "or"}, {"keys", "values"}, {"trim", "trimSpace"}, {"left", "prefix"}, {"right", "suffix"}, {"err", "nil"}, {"more", "less"}, {"on", "off"}, {"yes", "no"}, {"old", "new"},
}

func (m *mutator) mutateName(i int) {
	l := m.lexed[i]
	lower := strings.ToLower(l.text)
	for _, pair := range opposites {
		for k := range pair {
			if at := wordIndex(l.text, lower, strings.ToLower(pair[k])); at >= 0 {
				m.exchange("opposite", l, l.text[:at]+matchCase(l.text[at:at+len(pair[k])], pair[1-k])+l.text[at+len(pair[k]):])
			}
		}
	}
	m.family("jump", l, jumps)
	if before, _ := m.neighbour(i, -1); m.lang == code && slices.Contains([]string{"if", "&&", "||", "return", "("}, before.text) && !m.compares() {
		m.put("negate", "add !", m.text[:l.start]+"!"+m.text[l.start:])
	}
	if m.lang == shell {
		m.shellName(i)
		return
	}
	m.renameIdentifier(i)
}

// shellName changes a bare word of shell: a variable in an expansion or in arithmetic, else perhaps a command.
func (m *mutator) shellName(i int) {
	previous := ""
	if i > 0 {
		previous = m.lexed[i-1].text
	}
	expanded := previous == "${" || previous == "#" && i > 1 && m.lexed[i-2].text == "${"
	computed := previous != "$(" && (m.isBracketed(i, "((", "))") || m.isBracketed(i, "$((", "))")) && !m.isBracketed(i, "$(", ")")
	if expanded || computed {
		m.renameVariable(i)
		return
	}
	m.renameCommand(i)
	m.addFlags(i)
}

// wordIndex finds a word in a name: the whole name, or a part that begins and ends where a part of a name does.
func wordIndex(text, lower, word string) int {
	at := strings.Index(lower, word)
	if at < 0 {
		return -1
	}
	end := at + len(word)
	starts := at == 0 || text[at-1] == '_' || (text[at] >= 'A' && text[at] <= 'Z')
	ends := end == len(text) || text[end] == '_' || (text[end] >= 'A' && text[end] <= 'Z')
	if !starts || !ends {
		return -1
	}
	return at
}

func matchCase(model, word string) string {
	switch {
	case strings.ToUpper(model) == model && len(model) > 1:
		return strings.ToUpper(word)
	case model[0] >= 'A' && model[0] <= 'Z':
		return strings.ToUpper(word[:1]) + word[1:]
	}
	return word
}

// renameVariable puts another variable of the same file in the place of a shell variable, nearest first.
func (m *mutator) renameVariable(i int) {
	l := m.lexed[i]
	own := strings.TrimPrefix(l.text, "$")
	if own == "" || l.class == name && keywords[own] {
		return
	}
	prefix := l.text[:len(l.text)-len(own)]
	m.eachNear(func(line int) []string { return shellVariables(m.facts.lexed[line]) }, own, func(other string) {
		m.put("name", own+">"+other, substitute(m.text, l, prefix+other))
	})
	if prefix != "$" {
		return
	}
	if n := int(own[0] - '0'); len(own) == 1 && n > 0 && n <= 9 {
		for _, next := range []int{n + 1, n - 1} {
			if next > 0 {
				m.exchange("position", l, "$"+strconv.Itoa(next))
			}
		}
	}
	for _, position := range positions {
		if m.facts.uses(position) {
			m.exchange("position", l, position)
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

// renameCommand puts another function of the conversation's files in the place of one that is called.
func (m *mutator) renameCommand(i int) {
	l := m.lexed[i]
	if !m.commandPosition(i) || !m.isFunction(l.text) {
		return
	}
	count := 0
	m.state.eachFile(func(f *file) {
		if !f.read || f.language() != shell || looksLikeTest(f.path) {
			return
		}
		for line, plain := range f.derive().plain {
			if other := functionName(plain); other != "" && other != l.text && f.facts.function[line] == other && count < maxRenames {
				m.exchange("call", l, other)
				count++
			}
		}
	})
}

// isFunction tells whether a name is a function of the files read: programs are not exchanged for functions.
func (m *mutator) isFunction(text string) bool {
	found := false
	m.state.eachFile(func(f *file) {
		if f.read && f.language() == shell {
			found = found || slices.Contains(f.derive().function, text)
		}
	})
	return found
}

// renameIdentifier puts another identifier of the file that is used alike (called, selected, plain) in the place of one.
func (m *mutator) renameIdentifier(i int) {
	l := m.lexed[i]
	if keywords[l.text] {
		return
	}
	kind := usage(m.lexed, i)
	m.eachNear(func(line int) (names []string) {
		lexed := m.facts.lexed[line]
		for j, other := range lexed {
			if other.class == name && !keywords[other.text] && usage(lexed, j) == kind {
				names = append(names, other.text)
			}
		}
		return names
	}, l.text, func(other string) { m.exchange("name", l, other) })
}

// usage of an identifier: bit 0 called, bit 1 selected with a dot, bit 2 selects with a dot.
func usage(lexed []lexeme, i int) int {
	kind := 0
	if i+1 < len(lexed) && lexed[i+1].text == "(" {
		kind |= 1
	}
	if i > 0 && lexed[i-1].text == "." {
		kind |= 2
	}
	if i+1 < len(lexed) && lexed[i+1].text == "." {
		kind |= 4
	}
	return kind
}

// eachNear visits names of the file line by line, nearest first, without repetition.
func (m *mutator) eachNear(names func(line int) []string, own string, visit func(string)) {
	visited := map[string]bool{own: true}
	count := 0
	for distance := 0; distance < len(m.facts.lexed) && count < maxRenames; distance++ {
		for _, line := range []int{m.line - distance, m.line + distance} {
			if line < 0 || line >= len(m.facts.lexed) || isComment(m.facts.plain[line]) {
				continue
			}
			for _, other := range names(line) {
				if !visited[other] && count < maxRenames {
					visited[other] = true
					visit(other)
					count++
				}
			}
		}
	}
}

func isComment(plain string) bool {
	return strings.HasPrefix(plain, "#") || strings.HasPrefix(plain, "//")
}
