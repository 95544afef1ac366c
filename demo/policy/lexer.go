package policy

import "strings"

// lexeme is one token of a source line. The lexer knows no language: it cuts a line so that
// operators, numbers, names, shell variables and flags can be exchanged.
type lexeme struct {
	text  string
	class lexClass
	start int
}

type lexClass byte

const (
	space lexClass = iota
	name
	variable // $x, $1, $#
	numeral
	flag // -x after a blank
	operator
)

var operators = []string{
	"<<=", ">>=", "...", "&&", "||", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=", "%=", "++",
	"--", ">>", "<<", "->", "=~",
	"##", "%%", ":-", ":+", ":?", ";;", "$((", "((", "))", "${", "$(", "[[", "]]", "<-", "&^", "=>",
	"**", "//", "\\n", "\\t",
}

func isLetter(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isBlank(c byte) bool  { return c == ' ' || c == '\t' }

func lex(line string, lang language) []lexeme {
	out := make([]lexeme, 0, len(line)/3+4)
	for i := 0; i < len(line); {
		class, end := lexOne(line, i, lang)
		out = append(out, lexeme{line[i:end], class, i})
		i = end
	}
	return out
}

func lexOne(line string, i int, lang language) (lexClass, int) {
	c := line[i]
	switch {
	case isBlank(c):
		return space, scan(line, i, isBlank)
	case isLetter(c):
		return name, scan(line, i, func(c byte) bool { return isLetter(c) || isDigit(c) })
	case isDigit(c):
		return numeral, scan(line, i, isDigit)
	case c == '$' && i+1 < len(line):
		next := line[i+1]
		if isLetter(next) {
			return variable, scan(line, i+1, func(c byte) bool { return isLetter(c) || isDigit(c) })
		}
		if isDigit(next) || strings.IndexByte("#@*?!", next) >= 0 {
			return variable, i + 2
		}
	case c == '-' && lang == shell && i > 0 && isBlank(line[i-1]) && i+1 < len(line) &&
		isLetter(line[i+1]) && line[i+1] != '_':
		return flag, scan(line, i+1, func(c byte) bool { return isLetter(c) })
	}
	for _, op := range operators {
		if op[0] == c && strings.HasPrefix(line[i:], op) {
			return operator, i + len(op)
		}
	}
	return operator, i + 1
}

func scan(line string, i int, in func(byte) bool) int {
	for i < len(line) && in(line[i]) {
		i++
	}
	return i
}

// substitute is the line with one lexeme exchanged.
func substitute(line string, l lexeme, text string) string {
	return line[:l.start] + text + line[l.start+len(l.text):]
}

// facts of a file that the operators and features use.
type fileFacts struct {
	lexed    [][]lexeme
	plain    []string // lines without the blanks around
	function []string // the name of the function around each line, "" outside
	bigrams  map[uint64]int
	mutable  []bool
}

func deriveFacts(f *file) *fileFacts {
	lang := f.language()
	facts := &fileFacts{bigrams: map[uint64]int{}}
	function := ""
	for _, line := range f.lines {
		plain := strings.TrimSpace(line)
		var lexed []lexeme
		if len(line) <= maxLine {
			lexed = lex(line, lang)
		}
		if header := functionName(plain); header != "" {
			function = header
		}
		facts.lexed = append(facts.lexed, lexed)
		facts.plain = append(facts.plain, plain)
		facts.function = append(facts.function, function)
		facts.mutable = append(facts.mutable, lexed != nil && worthMutating(plain))
		if plain == "}" && line == plain {
			function = ""
		}
		eachBigram(lexed, func(h uint64) { facts.bigrams[h]++ })
	}
	return facts
}

func eachBigram(lexed []lexeme, visit func(uint64)) {
	last := "^"
	for _, l := range lexed {
		if l.class == space {
			continue
		}
		visit(hashString(hashString(hashSeed, last), l.text))
		last = l.text
	}
}

// functionName is the name that a line defines a function by, or "".
func functionName(plain string) string {
	if rest, ok := strings.CutPrefix(plain, "func "); ok {
		if strings.HasPrefix(rest, "(") {
			if _, after, ok := strings.Cut(rest, ") "); ok {
				rest = after
			}
		}
		return rest[:scan(rest, 0, func(c byte) bool { return isLetter(c) || isDigit(c) })]
	}
	for _, keyword := range []string{"function ", "def "} {
		if rest, ok := strings.CutPrefix(plain, keyword); ok {
			return rest[:scan(rest, 0, func(c byte) bool { return isLetter(c) || isDigit(c) })]
		}
	}
	end := scan(plain, 0, func(c byte) bool { return isLetter(c) || isDigit(c) })
	if end > 0 && strings.HasPrefix(strings.TrimLeft(plain[end:], " "), "()") {
		return plain[:end]
	}
	return ""
}

// worthMutating is false for lines that cannot hold a fault of their own: blank
// lines, comments, brackets.
func worthMutating(plain string) bool {
	switch plain {
	case "", "{", "}", "fi", "done", "esac", "else", "then", "do", ";;", ")", "})", "},", "];", "end", "import (", "#!":
		return false
	}
	for _, start := range []string{"#", "//", "package ", "import ", "/*", ". ", "source ", "func ", "type ",
		"local ", "shift", "usage"} {
		if strings.HasPrefix(plain, start) {
			return false
		}
	}
	if strings.HasSuffix(plain, ">&2") || strings.Contains(plain, "os.Stderr") { // what it says when it complains
		return false
	}
	return functionName(plain) == "" || !strings.HasSuffix(plain, "{")
}
