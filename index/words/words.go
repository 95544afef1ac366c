// Package words turns code and prose into the words by which an index finds them.
package words

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Version is part of an index's identity. It changes whenever a text has other words than before.
const Version = 1

// Limits of what a text gives.
const (
	Max     = 8192 // words of one text; what follows is left out
	MaxSize = 64   // bytes of one word: a longer one is a key or encoded data, which nobody asks for

	maxParts = 12 // of one identifier: one that changes oftener is encoded data, and only a word as a whole
)

// Of returns the words of a text, in its order and with repetitions. Identifiers are cut at changes
// of case, at '_' and at digits; each part is lower case and lightly stemmed, and a composed
// identifier is behind its parts as a whole, without '_': readFile, read_file and ReadFile are all
// "read", "fil" and "readfile". Scripts without spaces give pairs of neighbouring characters. Words
// may share the text's memory.
func Of(text string) []string {
	if !ascii(text) {
		text = norm.NFKC.String(text)
	}
	list := make([]string, 0, min(len(text)/4, Max))
	for len(text) > 0 && len(list) < Max {
		start, end := identifier(text)
		list = appendParts(list, text[start:end])
		text = text[end:]
	}
	return list[:min(len(list), Max)]
}

func ascii(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// kind of a character, as far as words go.
type kind uint8

const (
	space kind = iota // everything between identifiers
	join              // what an identifier may hold that is no part of a word
	lower             // also what follows a letter, such as an accent
	upper
	digit
	dense // of a script that writes words without spaces between them
)

func kindOf(r rune) kind {
	switch {
	case 'a' <= r && r <= 'z':
		return lower
	case 'A' <= r && r <= 'Z':
		return upper
	case '0' <= r && r <= '9':
		return digit
	case r == '_':
		return join
	case r < utf8.RuneSelf || r == utf8.RuneError:
		return space
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar):
		return dense
	case unicode.IsUpper(r) || unicode.IsTitle(r):
		return upper
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return lower
	case unicode.IsDigit(r):
		return digit
	}
	return space
}

// identifier finds the next one; both positions are the text's length where there is none.
func identifier(text string) (start, end int) {
	start = len(text)
	for i, r := range text {
		switch k := kindOf(r); {
		case k != space && start == len(text):
			start = i
		case k == space && start < len(text):
			return start, i
		}
	}
	return start, len(text)
}

// appendParts appends the words of one identifier.
func appendParts(list []string, name string) []string {
	first, parts, size := len(list), 0, 0
	var ends [maxParts]int // of the parts, in name
	var starts [maxParts]int
	for rest := name; rest != "" && len(list) < Max; parts++ {
		skipped, n, k := part(rest)
		at := len(name) - len(rest) + skipped
		rest = rest[skipped+n:]
		if n == 0 {
			break
		}
		if k == dense {
			list = appendPairs(list, name[at:at+n])
			first, parts, size = len(list), -1, 0 // what stands on either side is no identifier with it
			continue
		}
		if parts < maxParts {
			starts[parts], ends[parts] = at, at+n
			size += n
		}
		if parts < maxParts && n <= MaxSize {
			list = append(list, stem(strings.ToLower(name[at:at+n])))
		}
	}
	switch {
	case parts > maxParts:
		list = list[:first]
		if len(name) <= MaxSize {
			list = append(list, strings.ToLower(strings.ReplaceAll(name, "_", "")))
		}
	case parts > 1 && size <= MaxSize:
		whole := make([]byte, 0, MaxSize)
		for i := range parts {
			whole = append(whole, name[starts[i]:ends[i]]...)
		}
		list = append(list, strings.ToLower(string(whole)))
	}
	return list
}

// part finds the first part of an identifier: how many bytes lie before it, its
// size, and what it is made of.
func part(name string) (skipped, size int, k kind) {
	for skipped < len(name) && name[skipped] == '_' {
		skipped++
	}
	text := name[skipped:]
	if text == "" {
		return skipped, 0, join
	}
	before, previous := 0, space // where the character before begins, and what it is
	for i, r := range text {
		now := kindOf(r)
		switch {
		case i == 0:
			k = now
		case now == upper && previous == upper:
		case now == lower && previous == upper:
			if before > 0 && !plural(text[i:]) {
				return skipped, before, k // HTTPServer: the last capital begins the next part
			}
		case now != previous:
			return skipped, i, k
		}
		before, previous = i, now
	}
	return skipped, len(text), k
}

// plural says that what follows a row of capitals is an s alone: IDs is one word.
func plural(text string) bool {
	if text[0] != 's' {
		return false
	}
	next, _ := utf8.DecodeRuneInString(text[1:])
	return len(text) == 1 || kindOf(next) != lower
}

// appendPairs appends each character of a text with the next one; one alone stands for itself.
func appendPairs(list []string, text string) []string {
	_, size := utf8.DecodeRuneInString(text)
	if size == len(text) {
		return append(list, text)
	}
	for len(list) < Max && size < len(text) {
		_, second := utf8.DecodeRuneInString(text[size:])
		list = append(list, text[:size+second])
		text = text[size:]
		_, size = utf8.DecodeRuneInString(text)
	}
	return list
}
