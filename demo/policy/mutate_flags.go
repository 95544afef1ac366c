package policy

import (
	"slices"
	"strings"
)

// flagLetters are the usual flags of the usual filters (POSIX.1-2024, Shell and Utilities).
var flagLetters = map[string]string{
	"sort": "nrufkt", "grep": "ivcnqxwFEo", "cut": "fdcbs", "tr": "dsc", "head": "nc", "tail": "nc", "sed": "nEe", "wc": "lwcm",
	"uniq": "cdui", "read": "r", "echo": "ne", "ls": "1atrA", "cp": "rpf", "mv": "f", "rm": "rf", "mkdir": "p", "awk": "Fv",
	"paste": "ds", "join": "t12", "date": "u", "diff": "qu", "find": "", "xargs": "n0I", "tee": "a", "test": "", "env": "i",
	"expr": "", "basename": "", "dirname": "", "set": "eufx", "local": "", "export": "", "printf": "", "cat": "", "nl": "b", "fold": "ws",
	"comm": "123", "ln": "sf", "touch": "", "tac": "", "rev": "", "seq": "sw", "column": "t", "cmp": "s", "egrep": "ivcnqxw", "fgrep": "ivcnqx",
}

func (m *mutator) mutateFlag(i int) {
	l := m.lexed[i]
	if m.testBracket() {
		known := m.family("compare", l, testComparisons) || m.family("empty", l, emptiness) || m.family("filetest", l, fileTests)
		if known || m.family("logical", l, []string{"-a", "-o"}) {
			return
		}
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
	for _, c := range flagLetters[m.program(i)] {
		letter := string(c)
		if strings.Contains(letters, letter) {
			continue
		}
		m.put("flag", "with "+letter, substitute(m.text, l, "-"+letter+letters))
		if len(letters) == 1 {
			m.put("flag", letters+">"+letter, substitute(m.text, l, "-"+letter))
		}
	}
}

// program is the command that lexeme i is an argument of.
func (m *mutator) program(i int) string {
	first := ""
	for j := i - 1; j >= 0; j-- {
		l := m.lexed[j]
		if slices.Contains([]string{"|", ";", "&&", "||", "$(", "(", "`", "{", "!"}, l.text) || keywords[l.text] && flagLetters[l.text] == "" && l.class == name {
			break
		}
		if l.class == name && (j == 0 || m.lexed[j-1].class == space || m.lexed[j-1].class == operator) {
			first = l.text
		}
	}
	return first
}

// addFlags gives a flag to a command that has none.
func (m *mutator) addFlags(i int) {
	l := m.lexed[i]
	letters := flagLetters[l.text]
	if letters == "" || !m.commandPosition(i) {
		return
	}
	if i+2 < len(m.lexed) && m.lexed[i+2].class == flag {
		return
	}
	for _, c := range letters {
		m.put("flag", "add "+string(c), substitute(m.text, l, l.text+" -"+string(c)))
	}
}

// commandPosition tells whether lexeme i is where the shell expects a command.
func (m *mutator) commandPosition(i int) bool {
	before, _ := m.neighbour(i, -1)
	if before.text == "" {
		return true
	}
	return slices.Contains([]string{"$(", "|", ";", "&&", "||", "!", "(", "{", "then", "do", "else", "if", "while", "until", "`"}, before.text)
}

func (m *mutator) testBracket() bool {
	return strings.Contains(m.text, "[ ") || strings.Contains(m.text, "test ")
}
