package words

import "strings"

// stem takes the endings off an English word in lower case, so that the forms that code and its
// comments use for one thing meet: parse, parses, parsed, parsing and parser are "pars"; allocate,
// allocation and allocator are "alloc". It is lighter than Porter's: what is left has four letters
// at least, or three before an s. Other words come back as they are.
func stem(word string) string {
	if len(word) < 4 || word[0] >= 0x80 || !lowerASCII(word) {
		return word
	}
	word = singular(word)
	for _, ending := range [...]string{"ations", "ation", "ators", "ator", "ating", "ated", "ate"} {
		if rest, ok := strings.CutSuffix(word, ending); ok && len(rest) >= 4 {
			return rest
		}
	}
	for _, ending := range [...]string{"ing", "ed", "er", "or"} {
		rest, ok := strings.CutSuffix(word, ending)
		switch {
		case !ok || len(rest) < 4 && (len(rest) < 3 || len(ending) < 3 && ending != "ed") || !vowel(rest):
			continue
		case len(rest) > 3 && rest[len(rest)-1] == rest[len(rest)-2] &&
			!strings.ContainsRune("lsz", rune(rest[len(rest)-1])):
			return rest[:len(rest)-1] // stopped, stop
		}
		return rest
	}
	if rest, ok := strings.CutSuffix(word, "ion"); ok && len(rest) >= 4 &&
		(rest[len(rest)-1] == 't' || rest[len(rest)-1] == 's') {
		return rest
	}
	if rest, ok := strings.CutSuffix(word, "ly"); ok && len(rest) >= 4 {
		return rest
	}
	if rest, ok := strings.CutSuffix(word, "e"); ok && len(rest) >= 3 {
		return rest
	}
	return word
}

// singular takes off a plural's s, or a verb's.
func singular(word string) string {
	n := len(word)
	if word[n-1] != 's' {
		return word
	}
	switch {
	case strings.HasSuffix(word, "ies") && n > 4:
		return word[:n-3] + "y"
	case strings.HasSuffix(word, "sses"), strings.HasSuffix(word, "shes"), strings.HasSuffix(word, "ches"),
		strings.HasSuffix(word, "xes"):
		return word[:n-2]
	case strings.HasSuffix(word, "ss"), strings.HasSuffix(word, "us"), strings.HasSuffix(word, "is"):
		return word
	}
	return word[:n-1]
}

func lowerASCII(word string) bool {
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return false
		}
	}
	return true
}

func vowel(word string) bool { return strings.ContainsAny(word, "aeiouy") }
