package chunk

import (
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/index/source"
)

// modifiers come before what declares something.
var modifiers = map[string]bool{
	"export": true, "default": true, "declare": true, "async": true, "public": true, "private": true,
	"protected": true, "internal": true,
	"static": true, "final": true, "abstract": true, "sealed": true, "open": true, "override": true,
	"inline": true, "virtual": true,
	"extern": true, "unsafe": true, "const": true, "pub": true, "data": true, "partial": true,
	"readonly": true, "typedef": true,
	"suspend": true, "case": true, "implicit": true, "constexpr": true, "explicit": true, "friend": true,
	"crate": true, "local": true,
}

// declaring words stand right before a name.
var declaring = map[source.Language][]string{
	source.Go:         {"func", "type"},
	source.Python:     {"def", "class"},
	source.Ruby:       {"def", "class", "module"},
	source.Shell:      {"function"},
	source.JavaScript: {"function", "function*", "class", "interface", "enum", "namespace", "module", "type"},
	source.Java: {"class", "interface", "enum", "record", "struct", "object", "trait", "protocol", "extension",
		"namespace", "fun", "func", "message",
		"service", "rpc", "actor", "@interface"},
	source.C:    {"class", "struct", "union", "enum", "namespace", "@interface", "@implementation", "@protocol"},
	source.Rust: {"fn", "struct", "enum", "trait", "mod", "union", "macro_rules!", "type", "impl"},
	source.PHP:  {"function", "class", "interface", "trait", "enum"},
}

// control words look like a call, and declare nothing.
var control = map[string]bool{
	"if": true, "for": true, "while": true, "switch": true, "catch": true, "return": true, "else": true, "do": true,
	"try": true, "new": true,
	"throw": true, "sizeof": true, "synchronized": true, "using": true, "lock": true, "when": true, "match": true,
	"foreach": true, "with": true,
	"await": true, "yield": true, "delete": true, "elseif": true, "function": true, "super": true, "this": true,
	"assert": true, "defined": true,
}

// declared is the name that a line declares; empty when it declares nothing. It goes by words:
// there is no grammar here, and a name that is missed only makes a chunk's symbols poorer.
func declared(language source.Language, depth int, text string) string {
	if text == "" || !wordByte(text[0]) && text[0] != '@' {
		return ""
	}
	rest := text
	for {
		word, after := firstWord(rest)
		if word == "" {
			return ""
		}
		if isDeclaring(language, word) {
			if name := nameAfter(language, word, after, text); name != "" {
				return name
			}
			break
		}
		if !modifiers[word] {
			break
		}
		rest = strings.TrimSpace(after)
	}
	switch language {
	case source.Shell:
		if name, after, found := strings.Cut(text, "()"); found && isName(name) &&
			strings.HasPrefix(strings.TrimSpace(after)+"{", "{") {
			return name
		}
	case source.JavaScript:
		if name := assigned(rest); name != "" {
			return name
		}
		if depth > 0 {
			return called(text)
		}
	case source.Java, source.C:
		return called(text)
	}
	return ""
}

func isDeclaring(language source.Language, word string) bool {
	return slices.Contains(declaring[language], word)
}

// firstWord cuts the first word off, with what Rust's pub(crate) has after it.
func firstWord(text string) (word, after string) {
	i := 0
	for i < len(text) && (wordByte(text[i]) || i == 0 && text[i] == '@' || text[i] == '!' || text[i] == '*' && i > 0) {
		i++
	}
	word, after = text[:i], text[i:]
	if word == "pub" && strings.HasPrefix(after, "(") {
		if _, behind, found := strings.Cut(after, ")"); found {
			after = behind
		}
	}
	return word, strings.TrimSpace(after)
}

func nameAfter(language source.Language, word, after, text string) string {
	if language == source.Rust && word == "impl" {
		head, _, _ := strings.Cut(after, "{")
		if strings.HasPrefix(head, "<") { // generics
			if _, behind, found := strings.Cut(head, "> "); found {
				head = behind
			}
		}
		return strings.TrimSpace(head)
	}
	if language == source.Go && strings.HasPrefix(after, "(") { // a receiver
		_, after, _ = strings.Cut(after, ") ")
	}
	if language == source.C && (strings.HasSuffix(text, ";") || !strings.HasSuffix(text, "{") ||
		strings.Contains(after, "(")) {
		return "" // a variable, a forward declaration, or a function that returns one
	}
	i := 0
	for i < len(after) && (wordByte(after[i]) || i > 0 && strings.IndexByte(".:", after[i]) >= 0 && i+1 < len(after) &&
		(wordByte(after[i+1]) || after[i+1] == ':')) {
		i++
	}
	return after[:i]
}

// assigned is the name in NAME = function…, NAME = (…) => {, NAME = class….
func assigned(text string) string {
	for _, word := range []string{"const ", "let ", "var "} {
		text = strings.TrimPrefix(text, word)
	}
	name, value, found := strings.Cut(text, "=")
	if !found {
		return ""
	}
	name, _, _ = strings.Cut(strings.TrimSpace(name), ":")
	value = strings.TrimPrefix(strings.TrimSpace(value), "async ")
	function := strings.HasPrefix(value, "function") || strings.HasPrefix(value, "class") ||
		(strings.Contains(value, "=>") || strings.HasPrefix(value, "(")) && strings.HasSuffix(text, "{")
	if !function || !isName(strings.ReplaceAll(name, ".", "")) {
		return ""
	}
	return name
}

// called is the name before the first parenthesis of a function's or a method's head.
func called(text string) string {
	if !strings.HasSuffix(text, "{") {
		return ""
	}
	head, _, found := strings.Cut(text, "(")
	if !found || strings.Contains(head, "=") && !strings.Contains(head, "operator") {
		return ""
	}
	first, _ := firstWord(head)
	head = strings.TrimRight(head, " \t")
	from := len(head)
	for from > 0 && (wordByte(head[from-1]) || strings.IndexByte(":~#", head[from-1]) >= 0) {
		from--
	}
	if name := head[from:]; !control[name] && !control[first] && name != "" {
		return name
	}
	return ""
}

func isName(text string) bool {
	for i := range len(text) {
		if !wordByte(text[i]) && text[i] != '-' && text[i] != ':' && text[i] != '.' {
			return false
		}
	}
	return text != ""
}
