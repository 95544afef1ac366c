package canary

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// rust lists the sites of a file of tests in Rust: literals that assert_eq! compares with
// something, at the top of the function of a test and before any return, so that a test which
// passes has run it. cargo names a test by its modules.
func rust(name, source string) []foundSite {
	modules, ok := modulesOf(name)
	l := bracedLexer{source: source, take: rustToken}
	tokens := l.block(false)
	if !ok || l.broken {
		return nil
	}
	var w rustWalk
	w.items(tokens, modules)
	return w.sites
}

// modulesOf are the modules of a file in its crate. Files of which only the crate tells whose
// module they are have none.
func modulesOf(name string) (modules []string, ok bool) {
	parts := strings.Split(strings.TrimSuffix(name, ".rs"), "/")
	for i := len(parts) - 2; i >= 0; i-- {
		rest := parts[i+1:]
		last := rest[len(rest)-1]
		switch parts[i] {
		case "tests":
			return nil, len(rest) == 1 || len(rest) == 2 && last == "main"
		case "src":
			if last == "mod" || len(rest) == 1 && (last == "lib" || last == "main") {
				rest = rest[:len(rest)-1]
			}
			return rest, rest == nil || parts[i+1] != "bin"
		}
	}
	return nil, false
}

type rustWalk struct{ sites []foundSite }

// items looks at the tests and modules among the items of a module.
func (w *rustWalk) items(tokens []lexeme, modules []string) {
	var attributes []string
	for len(tokens) > 0 {
		t, rest := tokens[0], tokens[1:]
		switch {
		case t.text == "#" && len(rest) > 0 && rest[0].text == "[":
			inside := bracketed(rest)
			attributes = append(attributes, textOf(inside))
			tokens = rest[len(inside)+2:]
			continue
		case t.text == "mod" && len(rest) > 1 && rest[1].text == "{":
			w.items(bracketed(rest[1:]), append(slices.Clone(modules), rest[0].text))
		case t.text == "fn" && len(rest) > 2 && rest[1].text == "(" && rest[2].text == ")" && passing(attributes):
			if body := slices.IndexFunc(rest, func(t lexeme) bool {
				return t.text == "{" ||
					t.text == ";"
			}); body >= 0 && rest[body].text == "{" {
				w.test(bracketed(rest[body:]), strings.Join(append(slices.Clone(modules), rest[0].text), "::"))
			}
		}
		if t.text == ";" || t.text == "{" {
			attributes = nil
		}
		if bracket(t) == 1 {
			rest = tokens[len(bracketed(tokens))+2:]
		}
		tokens = rest
	}
}

func textOf(tokens []lexeme) string {
	var text strings.Builder
	for _, t := range tokens {
		text.WriteString(t.text)
	}
	return text.String()
}

// passing reports whether attributes are of a test that passes if it comes to its
// end, and of nothing else.
func passing(attributes []string) (test bool) {
	for _, a := range attributes {
		a, _, _ = strings.Cut(a, "(")
		switch {
		case a == "test" || strings.HasSuffix(a, "::test"):
			test = true
		case a != "allow" && a != "cfg" && !strings.HasPrefix(a, "doc"):
			return false
		}
	}
	return test
}

// macros are those that leave no function.
var macros = []string{
	"assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne", "matches", "println",
	"eprintln", "print", "eprint", "dbg", "format", "vec", "write", "writeln",
	"concat", "include_str", "include_bytes", "env", "stringify", "panic", "unreachable", "todo",
}

// test takes the sites of a test's body.
func (w *rustWalk) test(body []lexeme, name string) {
	depth, begins := 0, true
	for i, t := range body {
		if t.text == "return" && t.kind == word ||
			t.text == "!" && i > 0 && body[i-1].kind == word && i+1 < len(body) && bracket(body[i+1]) == 1 &&
				!slices.Contains(macros, body[i-1].text) {
			return // it may leave out what follows
		}
		if depth == 0 && begins && t.text == "assert_eq" && i+2 < len(body) &&
			body[i+1].text == "!" && body[i+2].text == "(" {
			for _, l := range rustExpectation(split(bracketed(body[i+2:]), ",")) {
				w.sites = append(w.sites, foundSite{named: []string{name}, line: l.line, start: l.start,
					end: l.end, wrong: wrongRust})
			}
		}
		depth += bracket(t)
		begins = depth == 0 && (t.text == ";" || t.text == "}")
	}
}

// rustExpectation are the literals of a comparison of two expressions.
func rustExpectation(parts [][]lexeme) (literals []lexeme) {
	if len(parts) < 2 || rustLiteral(parts[0]) == rustLiteral(parts[1]) {
		return nil
	}
	wanted := parts[1]
	if rustLiteral(parts[0]) {
		wanted = parts[0]
	}
	for _, t := range wanted {
		if t.kind == word && (t.text == "true" || t.text == "false") ||
			t.kind == number && rustNumber.MatchString(t.text) || t.kind == quotation && changeable(t) {
			literals = append(literals, t)
		}
	}
	return literals
}

var rustNumber = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(_?[uif](?:8|16|32|64|128|size))?$`)

// wrappers are words around constants that make a value of them, as in Some("x".to_string()).
var wrappers = []string{"Some", "Ok", "Err", "None", "vec", "String", "from", "to_string", "to_owned"}

// rustLiteral reports whether an expression is made of constants alone.
func rustLiteral(tokens []lexeme) bool {
	constants := false
	for i, t := range tokens {
		switch {
		case t.kind == quotation || t.kind == number || t.kind == word && (t.text == "true" || t.text == "false"):
			constants = true
		case t.kind == word && slices.Contains(wrappers, t.text):
		case t.kind != operator || !slices.Contains([]string{"(", ")", "[", "]", ",", "-", "&", "!", ":", "."}, t.text):
			return false
		case (t.text == "(" || t.text == "[") && i > 0 &&
			(bracket(tokens[i-1]) < 0 || tokens[i-1].kind != operator && !slices.Contains(wrappers, tokens[i-1].text)):
			return false // a call, or an element
		case t.text == "." && (i+1 == len(tokens) || tokens[i+1].kind != word):
			return false
		}
	}
	return constants
}

// wrongRust is another literal of the same type: a number becomes none that is too large for it.
func wrongRust(piece string, random *rand.Rand) string {
	parts := rustNumber.FindStringSubmatch(piece)
	if parts == nil {
		return wrongLiteral(piece, random)
	}
	digits, last := parts[1][:len(parts[1])-1], parts[1][len(parts[1])-1]
	if last == '0' {
		last += byte(1 + random.IntN(5))
	} else {
		last = '0' + byte(random.IntN(int(last-'0')))
	}
	return digits + string(last) + parts[2]
}

var rawString = regexp.MustCompile(`^[bc]?r(#*)"`)

// rustToken moves behind a token of Rust and answers its kind.
func rustToken(l *bracedLexer, _ []lexeme) int {
	rest := l.source[l.at:]
	if m := rawString.FindStringSubmatch(rest); m != nil {
		end := strings.Index(rest[len(m[0]):], `"`+m[1])
		if end < 0 {
			l.broken = true
			return formatted
		}
		for end += l.at + len(m[0]) + 1 + len(m[1]); l.at < end; {
			if l.source[l.at] == '\n' {
				l.newline()
			} else {
				l.at++
			}
		}
		return formatted
	}
	for _, prefix := range []string{"", "b", "c"} {
		if strings.HasPrefix(rest, prefix+`"`) {
			l.at += len(prefix)
			l.quotedLines()
			if prefix == "c" {
				return formatted
			}
			return quotation
		}
		if body, ok := strings.CutPrefix(rest, prefix+"'"); ok && prefix != "c" {
			_, size := utf8.DecodeRuneInString(body)
			if prefix == "" && !strings.HasPrefix(body, `\`) && !strings.HasPrefix(body[size:], "'") {
				l.at++
				l.word()
				return word // a lifetime
			}
			l.at += len(prefix)
			l.skipTo('\'')
			return quotation
		}
	}
	switch c := rest[0]; {
	case c >= '0' && c <= '9':
		for l.at < len(l.source) && (wordRune(rune(l.source[l.at])) || l.source[l.at] == '.') {
			l.at++
		}
		return number
	case wordRune(rune(c)) || c > 127:
		l.word()
		return word
	}
	l.at++
	return operator
}

// word moves behind letters and digits.
func (l *bracedLexer) word() {
	for l.at < len(l.source) && (wordRune(rune(l.source[l.at])) || l.source[l.at] > 127) {
		l.at++
	}
}

// quotedLines moves behind a string of one or more lines.
func (l *bracedLexer) quotedLines() {
	for l.at++; l.at < len(l.source); {
		switch c := l.source[l.at]; {
		case c == '"':
			l.at++
			return
		case c == '\\' && l.at+1 < len(l.source) && l.source[l.at+1] != '\n':
			l.at += 2
		case c == '\n':
			l.newline()
		default:
			l.at++
		}
	}
	l.broken = true
}
