package canary

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// python lists the sites of a Python file: literals that a statement of a test compares for
// equality with something else. The statement stands at the top of the test's body and before any
// return, so that a test which passes has run it, and what equals a literal does not equal another.
func python(_, source string) (sites []foundSite) {
	type block struct {
		indent          int
		function, class string
		nested          bool     // no test of its file or of a class at the top of it
		closed          bool     // by a return, or never a test
		titles          []string // the first line of a description, by which lists of Django's tests name a test
		begun           bool
	}
	var stack []*block
	seen := map[string]int{}
	var decorated, skipped bool
	for _, line := range logicalLines(source) {
		for len(stack) > 0 && stack[len(stack)-1].indent >= line[0].column {
			stack = stack[:len(stack)-1]
		}
		first := line[0].text
		if first == "@" {
			decorated = true
			skipped = skipped || slices.ContainsFunc(line,
				func(t lexeme) bool { return strings.Contains(t.text, "xfail") || strings.Contains(t.text, "xpect") })
			continue
		}
		switch {
		case first == "class" && len(line) > 1:
			stack = append(stack, &block{indent: line[0].column, class: line[1].text, nested: len(stack) > 0})
		case first == "def" && len(line) > 1:
			b := &block{indent: line[0].column, function: line[1].text, nested: len(stack) > 1,
				closed: decorated && skipped}
			if len(stack) == 1 {
				b.class, b.nested = stack[0].class, stack[0].class == "" || stack[0].nested
			}
			seen[b.class+"."+b.function]++
			stack = append(stack, b)
		case line[len(line)-1].text == ":" || first == "async":
			stack = append(stack, &block{indent: line[0].column, nested: true, closed: true})
		}
		decorated, skipped = false, false
		if len(stack) == 0 {
			continue
		}
		for i := len(stack) - 1; i >= 0 &&
			(first == "return" || slices.ContainsFunc(line, func(t lexeme) bool { return t.text == "yield" })); i-- {
			if stack[i].function != "" {
				stack[i].closed = true
				break
			}
		}
		top := stack[len(stack)-1]
		if top.function == "" || top.nested || top.closed || first == "def" {
			continue
		}
		if !top.begun && len(line) == 1 && line[0].kind == quotation {
			title, _, _ := strings.Cut(strings.TrimSpace(strings.Trim(strings.TrimLeft(first, "rRuU"), `"'`)), "\n")
			top.titles = []string{title}
		}
		top.begun = true
		for _, t := range expectations(line) {
			sites = append(sites, foundSite{top.function, top.class, top.titles, t.line, t.start, t.end, wrongLiteral})
		}
	}
	return slices.DeleteFunc(sites, func(f foundSite) bool { return seen[f.class+"."+f.function] != 1 })
}

// equalities are the assertions of unittest that compare their first two arguments.
var equalities = []string{
	"assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSetEqual",
	"assertSequenceEqual", "assertMultiLineEqual",
}

// deciding are words that make more of an assertion than one comparison.
var deciding = []string{"and", "or", "not", "if", "else", "in", "is", "lambda", "for", "<", ">",
	"<=", ">=", "!=", ":=", ";"}

// expectations are the literals of a statement that asserts one equality.
func expectations(line []lexeme) []lexeme {
	var parts [][]lexeme
	switch {
	case line[0].text == "assert":
		comparison := split(line[1:], ",")[0]
		if slices.ContainsFunc(top(comparison), func(t lexeme) bool { return slices.Contains(deciding, t.text) }) ||
			len(split(line, ";")) > 1 {
			return nil
		}
		parts = split(comparison, "==")
	case len(line) > 5 && line[0].text == "self" && line[1].text == "." && slices.Contains(equalities, line[2].text) &&
		line[3].text == "(" && closes(line[3:]):
		parts = split(line[4:len(line)-1], ",")
		if len(parts) < 2 || len(parts) > 4 ||
			slices.ContainsFunc(slices.Concat(top(parts[0]), top(parts[1])),
				func(t lexeme) bool { return t.text == "=" || t.text == "*" }) {
			return nil
		}
		parts = parts[:2]
	}
	if len(parts) != 2 || literal(parts[0]) == literal(parts[1]) {
		return nil
	}
	if literal(parts[0]) {
		parts[0], parts[1] = parts[1], parts[0]
	}
	return slices.DeleteFunc(slices.Clone(parts[1]), func(t lexeme) bool { return !changeable(t) })
}

// split splits tokens at a text outside of all brackets.
func split(tokens []lexeme, at string) [][]lexeme {
	parts, depth := [][]lexeme{nil}, 0
	for _, t := range tokens {
		depth += bracket(t)
		if depth == 0 && t.text == at {
			parts = append(parts, nil)
			continue
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], t)
	}
	if n := len(parts); n > 1 && len(parts[n-1]) == 0 {
		parts = parts[:n-1] // behind a trailing comma
	}
	return parts
}

// top are the tokens outside of all brackets.
func top(tokens []lexeme) (outside []lexeme) {
	depth := 0
	for _, t := range tokens {
		if depth == 0 {
			outside = append(outside, t)
		}
		depth += bracket(t)
	}
	return outside
}

// closes reports whether the bracket that tokens begin with is closed by their last.
func closes(tokens []lexeme) bool {
	depth := 0
	for i, t := range tokens {
		if depth += bracket(t); depth == 0 {
			return i == len(tokens)-1
		}
	}
	return false
}

func bracket(t lexeme) int {
	if t.kind != operator {
		return 0
	}
	switch t.text {
	case "(", "[", "{":
		return 1
	case ")", "]", "}":
		return -1
	}
	return 0
}

// literal reports whether an expression is made of constants alone.
func literal(tokens []lexeme) bool {
	constants := false
	for i, t := range tokens {
		switch {
		case t.kind == quotation || t.kind == number || t.text == "True" || t.text == "False" || t.text == "None":
			constants = true
		case t.kind != operator || !slices.Contains([]string{"(", ")", "[", "]", "{", "}", ",", ":", "-"}, t.text):
			return false
		case (t.text == "(" || t.text == "[") && i > 0 && (tokens[i-1].kind != operator || bracket(tokens[i-1]) < 0):
			return false // a call, or an element
		}
	}
	return constants
}

var plainNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]*)?$`)

// changeable reports whether wrongLiteral makes another value of a literal.
func changeable(t lexeme) bool {
	switch {
	case t.text == "True" || t.text == "False":
		return t.kind == word
	case t.kind == number:
		return plainNumber.MatchString(t.text)
	}
	return t.kind == quotation && t.line == t.endLine && len(places(t.text)) > 0
}

// places are where a character of a string stands for itself and is a letter or digit, or where one
// can be put into an empty string.
func places(quoted string) (at []int) {
	body := strings.TrimLeft(quoted, "bBuUrR")
	prefix := len(quoted) - len(body)
	quote := 1
	if strings.HasPrefix(body, `"""`) || strings.HasPrefix(body, `'''`) {
		quote = 3
	}
	from, to := prefix+quote, len(quoted)-quote
	if from >= to {
		return nil
	}
	for i := from; i < to && quoted[i] != '\\'; i++ {
		if alphabet(quoted[i]) != "" {
			at = append(at, i)
		}
	}
	return at
}

// alphabet are the characters of a character's kind.
func alphabet(c byte) string {
	for _, of := range []string{"0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		if strings.IndexByte(of, c) >= 0 {
			return of
		}
	}
	return ""
}

// wrongLiteral is another literal of the same kind and length.
func wrongLiteral(piece string, random *rand.Rand) string {
	if other := map[string]string{"True": "False", "False": "True", "true": "false",
		"false": "true"}[piece]; other != "" {
		return other
	}
	at := 0
	if !plainNumber.MatchString(piece) {
		list := places(piece)
		at = list[random.IntN(len(list))]
	}
	of := alphabet(piece[at])
	if of[0] == '0' && at == 0 {
		of = of[1:] // no number of more digits begins with 0
	}
	others := strings.ReplaceAll(of, piece[at:at+1], "")
	return piece[:at] + string(others[random.IntN(len(others))]) + piece[at+1:]
}
