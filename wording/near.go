package wording

import (
	"fmt"
	"strings"
)

// shortestBeginning is how many letters the beginning of a name has at least to stand for the name.
const shortestBeginning = 3

// Suggestion ends a sentence about a name that nobody knows with the known one that is near to it:
// `, did you mean "run"?`; "" where none is near.
func Suggestion(name string, known []string) string {
	near := Nearest(name, known)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", near)
}

// Nearest is the known name that takes the fewest letters to change, at most two or a third of them
// and not all, or that begins with the name; "" where there is none. Of two that are as near, the
// one with the same first letter is meant: that letter is rarely wrong.
func Nearest(name string, known []string) (best string) {
	least := min(max(2, len(name)/3), len(name)-1) + 1
	for _, each := range known {
		n := letters(name, each)
		if len(name) >= shortestBeginning && strings.HasPrefix(each, name) {
			n = 1
		}
		if n < least || n == least && best != "" && each[:1] == name[:1] && best[:1] != name[:1] {
			best, least = each, n
		}
	}
	return best
}

// letters counts those that differ: to be added, removed or changed.
func letters(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
