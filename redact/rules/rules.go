// Package rules finds secrets in a text as gitleaks does, by the rules that gitleaks publishes.
//
// gitleaks.toml and LICENSE are gitleaks's own files, unchanged. The module tests/gitleaks compares
// them, and what this package finds, with gitleaks itself.
package rules

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
)

//go:embed gitleaks.toml
var source []byte

// Finding is a secret that a rule found.
type Finding struct {
	Rule   string
	Secret string
	match  string // what the rule's expression matched, with the words around the secret
	line   int
}

// Set holds the rules that look into a text. Rules for names of files are not among them.
type Set struct {
	rules   []rule
	allowed []allowlist
	index   [1 << 16][]keyword // by their first two bytes
}

type rule struct {
	id       string
	regex    *regexp.Regexp
	group    int
	entropy  float64
	allowed  []allowlist
	keywords []string
	guard    *regexp.Regexp // see addGuards
}

// keyword is a word without which a rule finds nothing, in lower case.
type keyword struct {
	word string
	rule int
}

// allowlist says which of the findings of a rule are no secrets.
type allowlist struct {
	target    string // "secret", "match" or "line": where the expression looks
	regex     *regexp.Regexp
	stopwords []string
	both      bool // expression and stop words must agree
}

// document is the form of gitleaks.toml. What is not in it is refused, so that no new
// condition is overlooked.
type document struct {
	Title      string
	MinVersion string `toml:"minVersion"`
	Allowlist  allowlistRow
	Rules      []struct {
		ID, Description, Regex, Path string
		SecretGroup                  int `toml:"secretGroup"`
		Entropy                      float64
		Keywords                     []string
		Allowlists                   []allowlistRow
	}
}

type allowlistRow struct {
	Description, Condition string
	RegexTarget            string `toml:"regexTarget"`
	Paths, Regexes         []string
	StopWords              []string `toml:"stopwords"`
}

// Default gives the rules, which are read when they are first asked for: they take 4 MB.
var Default = sync.OnceValues(func() (*Set, error) {
	s, err := parse(source)
	if err != nil {
		return nil, fmt.Errorf("read the rules for secrets: %w", err)
	}
	return s, nil
})

func parse(data []byte) (*Set, error) {
	var d document
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&d); err != nil {
		return nil, err
	}
	s := &Set{}
	var err error
	if s.allowed, err = allowlists([]allowlistRow{d.Allowlist}); err != nil {
		return nil, err
	}
	for _, row := range d.Rules {
		if row.Path != "" {
			continue // a text has no path
		}
		r := rule{id: row.ID, group: row.SecretGroup, entropy: row.Entropy}
		if r.regex, err = regexp.Compile(row.Regex); err != nil {
			return nil, fmt.Errorf("%s: %w", row.ID, err)
		}
		if row.Regex == "" || r.group > r.regex.NumSubexp() {
			return nil, fmt.Errorf("%s: group %d of the expression %q is the secret, and there is none", row.ID,
				r.group, row.Regex)
		}
		if r.allowed, err = allowlists(row.Allowlists); err != nil {
			return nil, fmt.Errorf("%s: %w", row.ID, err)
		}
		for _, word := range row.Keywords {
			word = strings.ToLower(word)
			if len(word) < 2 {
				return nil, fmt.Errorf("%s: the keyword %q is shorter than two bytes", row.ID, word)
			}
			r.keywords = append(r.keywords, word)
			first := prefix(word)
			s.index[first] = append(s.index[first], keyword{word, len(s.rules)})
		}
		if len(r.keywords) == 0 {
			return nil, fmt.Errorf("%s: it has no keyword", row.ID)
		}
		s.rules = append(s.rules, r)
	}
	return s, s.addGuards()
}

func allowlists(rows []allowlistRow) (all []allowlist, err error) {
	for _, row := range rows {
		a := allowlist{target: row.RegexTarget, both: row.Condition == "AND"}
		switch {
		case row.Condition != "" && row.Condition != "OR" && row.Condition != "AND":
			return nil, fmt.Errorf("the condition %q of an allowlist is not known", row.Condition)
		case row.RegexTarget == "":
			a.target = "secret"
		case row.RegexTarget != "match" && row.RegexTarget != "line":
			return nil, fmt.Errorf("the target %q of an allowlist is not known", row.RegexTarget)
		}
		if a.both && len(row.Paths) > 0 {
			continue // a text has no path
		}
		if len(row.Regexes) > 0 {
			// One expression, as gitleaks makes it: a flag in one alternative counts
			// for those behind it, too.
			if a.regex, err = regexp.Compile("(?:" + strings.Join(row.Regexes, "|") + ")"); err != nil {
				return nil, err
			}
		}
		for _, word := range row.StopWords {
			a.stopwords = append(a.stopwords, strings.ToLower(word))
		}
		if a.both && (a.regex == nil || a.stopwords == nil) {
			return nil, errors.New("an allowlist needs two conditions and has one")
		}
		all = append(all, a)
	}
	return all, nil
}

// prefix is the place of a word in Set.index.
func prefix(word string) int { return int(word[0])<<8 | int(word[1]) }

// Find gives the secrets of a text, in the order of the rules. Time and memory grow with the square
// of the text's length if the text is made for that: bound the length.
func (s *Set) Find(text string) []Finding { return s.find(text, true) }

func (s *Set) find(text string, guarded bool) []Finding {
	low := strings.ToLower(text)
	candidates := make([]bool, len(s.rules))
	for at := range len(low) - 1 {
		for _, k := range s.index[prefix(low[at:])] {
			if !candidates[k.rule] && strings.HasPrefix(low[at:], k.word) {
				candidates[k.rule] = true
			}
		}
	}
	inPlace, same := lower(text)
	var all []Finding
	for i, r := range s.rules {
		if !candidates[i] || guarded && same && !r.may(text, inPlace) {
			continue
		}
		all = append(all, s.apply(r, text)...)
	}
	return withoutGeneric(all)
}

// apply gives what one rule finds.
func (s *Set) apply(r rule, text string) (all []Finding) {
	for _, place := range r.regex.FindAllStringIndex(text, -1) {
		match := strings.Trim(text[place[0]:place[1]], "\n")
		f := Finding{Rule: r.id, Secret: match, match: match,
			line: strings.Count(text[:min(place[0]+1, len(text))], "\n")}
		if groups := r.regex.FindStringSubmatch(match); r.group > 0 && groups != nil {
			f.Secret = groups[r.group]
		} else if len(groups) > 1 {
			if i := slices.IndexFunc(groups[1:], func(g string) bool { return g != "" }); i >= 0 {
				f.Secret = groups[1+i]
			}
		}
		if r.entropy != 0 && entropy(f.Secret) <= r.entropy {
			continue
		}
		f.Secret = cmp.Or(f.Secret, match) // a group may be empty
		line := func() string { return lineOf(text, place[0], place[0]+len(match)) }
		if !anyAllows(s.allowed, f, line) && !anyAllows(r.allowed, f, line) {
			all = append(all, f)
		}
	}
	return all
}

// lineOf is what gitleaks takes for the line of a match: with the line break before it, and from
// the text's beginning where no line break follows.
func lineOf(text string, start, end int) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	next := strings.IndexByte(text[min(start+1, len(text)):], '\n')
	if next < 0 {
		if r := strings.IndexByte(text[end:], '\r'); r >= 0 {
			return text[:end+r]
		}
		return text
	}
	next += start + 1
	if end > next {
		if after := strings.IndexByte(text[end:], '\n'); after >= 0 {
			next = end + after
		}
	}
	return text[max(strings.LastIndexByte(text[:start+1], '\n'), 0):max(next, end)]
}

func anyAllows(list []allowlist, f Finding, line func() string) bool {
	return slices.ContainsFunc(list, func(a allowlist) bool { return a.allows(f, line) })
}

func (a allowlist) allows(f Finding, line func() string) bool {
	matches := false
	if a.regex != nil {
		target := f.Secret
		switch a.target {
		case "match":
			target = f.match
		case "line":
			target = line()
		}
		matches = target != "" && a.regex.MatchString(target)
	}
	if matches != a.both { // decided without the stop words
		return matches
	}
	secret := strings.ToLower(f.Secret)
	return slices.ContainsFunc(a.stopwords, func(word string) bool { return strings.Contains(secret, word) })
}

// entropy is Shannon's, in bits for each character, of a text in ASCII.
func entropy(text string) (bits float64) {
	counts := map[rune]int{}
	for _, c := range text {
		counts[c]++
	}
	for _, n := range counts {
		share := float64(n) / float64(len(text))
		bits -= share * math.Log2(share)
	}
	return bits
}

// withoutGeneric leaves out what a generic rule found where another rule
// found the same on that line.
func withoutGeneric(all []Finding) []Finding {
	generic := func(f Finding) bool { return strings.Contains(strings.ToLower(f.Rule), "generic") }
	var kept []Finding
	for _, f := range all {
		better := func(other Finding) bool {
			return f.line == other.line && !generic(other) && strings.Contains(other.Secret, f.Secret)
		}
		if !generic(f) || !slices.ContainsFunc(all, better) {
			kept = append(kept, f)
		}
	}
	return kept
}
