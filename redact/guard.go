package redact

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/zricethezav/gitleaks/v8/config"
)

// guard tells cheaply that a rule finds nothing in a text: whatever the rule finds begins with one of its keywords, but for what its
// expression allows before it, and what follows must match here. Most of the time of all rules goes to the few that have a guard, as
// their keywords are in any code.
type guard struct {
	keywords []string // in lower case
	follows  *regexp.Regexp
}

// A guard looks at so much of a text behind a keyword, more than it can match there, and at so many keywords: then the rule itself is
// sooner done, as a text that is made for it takes a guard a millisecond for each.
const guardReach, guardTries = 512, 200

// genericPrefix is what the rule generic-api-key allows before its keyword, of any kind and length up to 50.
const genericPrefix = `(?i)[\w.-]{0,50}?`

// guardsOf makes the guards of rules, and takes the rules out.
func guardsOf(rules map[string]config.Rule) (all []guard, err error) {
	for _, of := range []struct{ rule, begins, follows string }{
		{"generic-api-key", genericPrefix, ""},
		{"vault-service-token", `\b((?:hvs\.[\w-]{90,120}|s\.(?i:[a-z0-9]{24})))`, `hvs\.[\w-]{90}|s\.[a-z0-9]{24}`},
	} {
		rule, known := rules[of.rule]
		if !known {
			return nil, fmt.Errorf("there is no rule %s any more", of.rule)
		}
		rest, as := strings.CutPrefix(rule.Regex.String(), of.begins)
		if !as {
			return nil, fmt.Errorf("the rule %s is not the one that its guard is made for", of.rule)
		}
		if of.follows == "" {
			of.follows = rest
		}
		follows, err := regexp.Compile(`^(?i:` + of.follows + `)`)
		if err != nil {
			return nil, err
		}
		g := guard{follows: follows}
		for _, word := range rule.Keywords {
			g.keywords = append(g.keywords, strings.ToLower(word))
		}
		all = append(all, g)
		delete(rules, of.rule)
	}
	return all, nil
}

// lower is a text in lower case with every byte in its place; false where letters outside of ASCII are the same as one in it.
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
func (g *guard) may(text, lower string) bool {
	tries := 0
	for _, word := range g.keywords {
		for at := 0; ; at++ {
			next := strings.Index(lower[at:], word)
			if next < 0 {
				break
			}
			at += next
			if tries++; tries > guardTries {
				return true
			}
			if g.follows.MatchString(text[at:min(len(text), at+guardReach)]) {
				return true
			}
		}
	}
	return false
}
