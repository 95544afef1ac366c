package canary

import (
	"slices"
	"strings"
)

// script lists the sites of a file of tests in JavaScript or TypeScript: literals that a statement
// compares with something for equality, at the top of the function of a test and before any
// return, so that a test which passes has run it. Tests are those of jest, vitest, mocha and
// node:test that are called test or it.
func script(_, source string) []foundSite {
	l := bracedLexer{source: source, take: scriptToken}
	tokens := l.block(false)
	if l.broken {
		return nil
	}
	var w scriptWalk
	w.tests(tokens, nil)
	return w.sites
}

type scriptWalk struct{ sites []foundSite }

// tests looks at the tests and suites that statements declare. suites are the titles around them.
func (w *scriptWalk) tests(tokens []lexeme, suites []string) {
	for _, i := range statements(tokens) {
		declared := tokens[i].text
		if tokens[i].kind != word || !slices.Contains([]string{"test", "it", "describe", "suite"}, declared) {
			continue
		}
		title, body, ok := declaration(tokens[i+1:])
		if !ok {
			continue
		}
		path := append(slices.Clone(suites), title)
		if declared == "describe" || declared == "suite" {
			w.tests(body, path)
			continue
		}
		w.test(body, []string{title, strings.Join(path, " > ")})
	}
}

// declaration takes the title and the body of the function from what follows the name of a test:
// ("title", async () => { body }) or the same with function.
func declaration(tokens []lexeme) (title string, body []lexeme, ok bool) {
	if len(tokens) < 6 || tokens[0].text != "(" || tokens[1].kind != quotation ||
		strings.ContainsRune(tokens[1].text, '\\') || tokens[2].text != "," {
		return "", nil, false
	}
	rest := tokens[3:]
	if rest[0].text == "async" {
		rest = rest[1:]
	}
	function := len(rest) > 0 && rest[0].text == "function"
	for function && len(rest) > 0 && rest[0].kind == word {
		rest = rest[1:] // its name
	}
	switch {
	case len(rest) == 0:
		return "", nil, false
	case rest[0].text == "(":
		rest = rest[1+len(bracketed(rest)):]
		if len(rest) > 0 {
			rest = rest[1:]
		}
	case rest[0].kind == word:
		rest = rest[1:] // the only parameter, without brackets
	}
	if !function {
		if len(rest) == 0 || rest[0].text != "=>" {
			return "", nil, false
		}
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0].text != "{" {
		return "", nil, false
	}
	quoted := tokens[1].text
	return quoted[1 : len(quoted)-1], bracketed(rest), true
}

// bracketed are the tokens between the bracket that tokens begin with and the one that closes it.
func bracketed(tokens []lexeme) []lexeme {
	depth := 0
	for i, t := range tokens {
		if depth += bracket(t); depth == 0 {
			return tokens[1:i]
		}
	}
	return nil
}

// test takes the sites of a test's body.
func (w *scriptWalk) test(body []lexeme, names []string) {
	for _, i := range statements(body) {
		if slices.ContainsFunc(body[:i], func(t lexeme) bool {
			return t.kind == word &&
				(t.text == "return" || t.text == "yield")
		}) {
			return
		}
		for _, t := range scriptExpectation(body[i:]) {
			w.sites = append(w.sites, foundSite{named: names, line: t.line, start: t.start,
				end: t.end, wrong: wrongLiteral})
		}
	}
}

// conditional are words before brackets behind which a statement may not be run.
var conditional = []string{"if", "for", "await", "while", "with"}

// continuing are words behind which a statement cannot end.
var continuing = []string{
	"else", "do", "return", "await", "throw", "typeof", "void", "delete", "new", "in", "of", "instanceof", "case",
	"const", "let", "var", "yield", "async", "function", "class", "extends",
}

// statements are where statements begin, outside of all brackets. One that may be
// left out is none of them.
func statements(tokens []lexeme) (begin []int) {
	var open []int
	depth := 0
	before := "" // the word before the bracket that was closed last
	for i, t := range tokens {
		if depth == 0 && t.kind == word {
			last := lexeme{text: ";"}
			if i > 0 {
				last = tokens[i-1]
			}
			switch {
			case last.text == ";" && last.kind == operator, last.text == "}" && last.kind == operator,
				last.endLine < t.line &&
					(last.kind != operator || last.text == "]" ||
						last.text == ")" && !slices.Contains(conditional, before)) &&
					!(last.kind == word && slices.Contains(continuing, last.text)):
				begin = append(begin, i)
			}
		}
		switch bracket(t) {
		case 1:
			open = append(open, i)
			depth++
		case -1:
			depth--
			if n := len(open); n > 0 {
				before = ""
				if at := open[n-1]; at > 0 && tokens[at-1].kind == word {
					before = tokens[at-1].text
				}
				open = open[:n-1]
			}
		}
	}
	return begin
}

// matchers are the comparisons for equality behind expect(...), of jest, vitest and chai.
var matchers = []string{".toBe", ".toEqual", ".toStrictEqual", ".to.equal", ".to.eql", ".to.deep.equal"}

// scriptExpectation are the literals that a statement compares with something for equality.
func scriptExpectation(tokens []lexeme) []lexeme {
	var got, wanted []lexeme
	switch tokens[0].text {
	case "expect":
		if len(tokens) < 2 || tokens[1].text != "(" {
			return nil
		}
		got = bracketed(tokens[1:])
		rest := tokens[min(len(tokens), 3+len(got)):]
		matcher := ""
		for len(rest) > 1 && rest[0].text == "." && rest[1].kind == word {
			matcher, rest = matcher+"."+rest[1].text, rest[2:]
		}
		if !slices.Contains(matchers, matcher) || len(rest) == 0 || rest[0].text != "(" {
			return nil
		}
		wanted = bracketed(rest)
	case "assert":
		if len(tokens) < 4 || tokens[1].text != "." || tokens[3].text != "(" ||
			!slices.Contains([]string{"equal", "strictEqual", "deepEqual", "deepStrictEqual"}, tokens[2].text) {
			return nil
		}
		parts := split(bracketed(tokens[3:]), ",")
		if len(parts) < 2 {
			return nil
		}
		got, wanted = parts[0], parts[1]
	}
	if scriptLiteral(got) {
		got, wanted = wanted, got
	}
	if scriptLiteral(got) || !scriptLiteral(wanted) {
		return nil
	}
	var literals []lexeme
	for i, t := range wanted {
		if key := i+1 < len(wanted) && wanted[i+1].text == ":"; !key &&
			(t.text == "true" || t.text == "false" || t.text != "True" && t.text != "False" && changeable(t)) {
			literals = append(literals, t)
		}
	}
	return literals
}

// scriptLiteral reports whether an expression is made of constants alone.
func scriptLiteral(tokens []lexeme) bool {
	constants := false
	for i, t := range tokens {
		switch {
		case t.kind == quotation || t.kind == number ||
			t.kind == word && slices.Contains([]string{"true", "false", "null", "undefined"}, t.text):
			constants = true
		case t.kind == word && i+1 < len(tokens) && tokens[i+1].text == ":":
		case t.kind != operator || !slices.Contains([]string{"[", "]", "{", "}", ",", ":", "-"}, t.text):
			return false
		case t.text == "[" && i > 0 && (tokens[i-1].kind != operator || bracket(tokens[i-1]) < 0):
			return false // an element
		}
	}
	return constants
}
