package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A guard looks at so much of a text behind a keyword, more than it can match there, and at so
// many keywords: then the rule itself is sooner done, as a text that is made for it takes a
// guard a millisecond for each.
const guardReach, guardTries = 512, 200

// genericPrefix is what the rule generic-api-key allows before its keyword, of any
// kind and length up to 50.
const genericPrefix = `(?i)[\w.-]{0,50}?`

// addGuards gives two rules a guard, an expression that tells cheaply that the rule finds nothing
// in a text: whatever the rule finds begins with one of its keywords, but for what its expression
// allows before it, and there the guard must match. Most of the time of all rules goes to these
// two, as their keywords are in any code.
func (s *Set) addGuards() error {
	for _, of := range []struct{ rule, begins, follows string }{
		{"generic-api-key", genericPrefix, ""},
		{"vault-service-token", `\b((?:hvs\.[\w-]{90,120}|s\.(?i:[a-z0-9]{24})))`, `hvs\.[\w-]{90}|s\.[a-z0-9]{24}`},
	} {
		i := slices.IndexFunc(s.rules, func(r rule) bool { return r.id == of.rule })
		if i < 0 {
			return fmt.Errorf("there is no rule %s any more", of.rule)
		}
		rest, as := strings.CutPrefix(s.rules[i].regex.String(), of.begins)
		if !as {
			return fmt.Errorf("the rule %s is not the one that its guard is made for", of.rule)
		}
		if of.follows == "" {
			of.follows = rest
		}
		follows, err := regexp.Compile(`^(?i:` + of.follows + `)`)
		if err != nil {
			return err
		}
		s.rules[i].guard = follows
	}
	return nil
}

// lower is a text in lower case with every byte in its place; false where letters outside of ASCII
// are the same as one in it.
func lower(text string) (string, bool) {
	if strings.Contains(text, "\u017f") || strings.Contains(text, "\u212a") { // a long s, and the sign of Kelvin
		return "", false
	}
	out := []byte(text)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out), true
}

// may reports whether the rule can find something in a text, given in lower case, too.
func (r rule) may(text, lower string) bool {
	if r.guard == nil {
		return true
	}
	tries := 0
	for _, word := range r.keywords {
		for at := 0; ; at++ {
			next := strings.Index(lower[at:], word)
			if next < 0 {
				break
			}
			at += next
			if tries++; tries > guardTries {
				return true
			}
			if r.guard.MatchString(text[at:min(len(text), at+guardReach)]) {
				return true
			}
		}
	}
	return false
}
