package policy

import "strings"

// addWords collects the words of a text: runs of letters, at least three, in lower case; camelCase
// and snake_case are taken apart.
func addWords(words map[string]bool, text string) {
	eachWord(text, func(word string) { words[word] = true })
}

func eachWord(text string, visit func(string)) {
	start := -1
	flush := func(end int) {
		if start >= 0 && end-start >= 3 {
			visit(strings.ToLower(text[start:end]))
		}
		start = -1
	}
	for i := range len(text) {
		c := text[i]
		lower, upper := c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z'
		if !lower && !upper {
			flush(i)
			continue
		}
		if upper && i > 0 && text[i-1] >= 'a' && text[i-1] <= 'z' {
			flush(i)
		}
		if start < 0 {
			start = i
		}
	}
	flush(len(text))
}
