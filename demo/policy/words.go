package policy

import (
	"regexp"
	"slices"
	"strings"
)

// addWords collects the words of a text: runs of letters, at least three, in lower case; camelCase and snake_case are taken apart.
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

var number = regexp.MustCompile(`\b\d{1,6}\b`)

func appendNumbers(numbers []string, text string) []string {
	for _, n := range number.FindAllString(text, 40) {
		if len(numbers) < 24 && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

const maxQuotes = 12

// appendQuoted collects the short texts that stand in quotes.
func appendQuoted(quotes []string, text string) []string {
	for line := range strings.SplitSeq(text, "\n") {
		if len(line) > 4*maxLine {
			continue
		}
		for _, span := range quoted(line) {
			body := line[span[0]:span[1]]
			if len(quotes) < maxQuotes && body != "" && len(body) <= 24 && !strings.ContainsAny(body, "$`'\"") && !slices.Contains(quotes, body) {
				quotes = append(quotes, body)
			}
		}
	}
	return quotes
}
