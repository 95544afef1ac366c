package policy

import (
	"slices"
	"strings"
)

// feature is one active feature of a candidate: an index into the weights and a value. Names of
// features are hashed into the fixed number of weights (the hashing trick, Weinberger et al. 2009),
// so any conjunction can be one.
type feature struct {
	index uint32
	value float32
}

// Dimension is the number of weights.
const Dimension = 1 << 18

// Values of features. A memory is specific: it names the text of a line or of a change, and one
// success should be enough to recall it. A trait is general: it is shared by all programs, appears
// in every turn, and learns from all of them.
const (
	memory = 1.0
	trait  = 0.15
	skill  = 0.1 // of the kind of turn, which every rollout decides on many times, so that it must learn slowly
)

func hashed(template, text string, value float32) feature {
	return feature{uint32(mix(hashString(hashString(hashSeed, template), text)) % Dimension), value}
}

func numbered(template string, a, b int, value float32) feature {
	return feature{uint32(mix(hashInt(hashInt(hashString(hashSeed, template), a), b)) % Dimension), value}
}

// mix spreads the high bits, which FNV fills last, over the low ones.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// situation is what the choice of the kind of turn looks at.
func (s *state) situation() []string {
	tests := "never ran"
	switch {
	case s.passing():
		tests = "pass"
	case len(s.reference) > 0:
		tests = "fail"
	case len(s.runs) > 0:
		tests = "not since the change"
	}
	best := "nothing better"
	if i := s.best(); i >= 0 {
		best = "better known"
		if s.tries[i].outcome == passed {
			best = "passing known"
		}
	}
	unread := "all read"
	if len(s.unlisted())+len(s.unread()) > 0 {
		unread = "unread"
	}
	changed := "unchanged"
	if s.kept > 0 {
		changed = "changed"
	}
	return []string{tests, best, unread, tests + changed, best + changed, tests + best + unread + changed}
}

func kindFeatures(kind string, situation []string) []feature {
	out := make([]feature, 0, len(situation)+1)
	out = append(out, hashed("kind", kind, skill))
	for _, fact := range situation {
		out = append(out, hashed("kind"+kind, fact, skill))
	}
	return out
}

func (s *state) commandFeatures(c command, rank int) []feature {
	return []feature{
		hashed("command", c.text, skill),
		hashed("command source", c.source, skill),
		numbered("command rank", rank, 0, skill),
		hashed("command test", boolText(looksLikeTest(c.text)), skill),
	}
}

func boolText(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// placeFeatures describe a line: what it says, what it is, how it relates to the failing tests, and
// what changing it did before.
func (s *state) placeFeatures(f *file, line int) []feature {
	facts := f.derive()
	plain := facts.plain[line]
	shape := lineShape(plain)
	failing := overlap(plain, s.failWords)
	told := overlap(plain, s.words)
	around := facts.function[line]
	seen := s.history(f, line)
	out := make([]feature, 0, 16)
	out = append(out,
		hashed("line", plain, memory),
		hashed("file", f.path, trait),
		hashed("function", around, trait),
		hashed("shape", shape, trait),
		numbered("failing", failing, 0, trait),
		numbered("told", told, 0, trait),
		numbered("failing told", failing, told, trait),
		numbered("function failing", overlap(around, s.failWords), overlap(around, s.words), trait),
		numbered("tries", min(seen.count, 6), 0, trait),
		numbered("function outcome", int(seen.function), 0, trait),
		numbered("length", min(len(plain)/16, 5), 0, trait),
	)
	if len(s.found) > 0 {
		out = append(out, numbered("found", s.rank(f), 0, trait))
	}
	if seen.count > 0 {
		out = append(out, numbered("outcome", int(seen.line), min(seen.count, 3), trait))
	}
	for _, l := range facts.lexed[line] {
		if l.class == operator || l.class == flag {
			if h := hashed("has", l.text, trait/2); len(out) < cap(out) || len(out) < 24 {
				out = append(out, h)
			}
		}
	}
	return out
}

func lineShape(plain string) string {
	first, _, _ := strings.Cut(plain, " ")
	switch first {
	case "if", "elif", "for", "while", "until", "case", "return", "local", "echo", "printf", "func", "var", "const",
		"}", "switch", "[", "set", "exit":
		return first
	}
	if i := strings.IndexAny(plain, "=("); i > 0 {
		return plain[i : i+1]
	}
	return "other"
}

// overlap counts the distinct words of a line that a set has, up to three.
func overlap(text string, words map[string]bool) int {
	if len(words) == 0 {
		return 0
	}
	var seen [3]string
	count := 0
	eachWord(text, func(word string) {
		if count == 3 || !words[word] || keywords[word] {
			return
		}
		if slices.Contains(seen[:count], word) {
			return
		}
		seen[count] = word
		count++
	})
	return count
}

type history struct {
	count          int
	line, function outcome // the most telling outcome so far
}

// history looks at earlier changes near a line.
func (s *state) history(f *file, line int) history {
	var h history
	facts := f.derive()
	for i := range s.tries {
		t := &s.tries[i]
		if t.path != f.path || t.change.start >= len(facts.function) {
			continue
		}
		if t.change.start == line {
			h.count++
			h.line = telling(h.line, t.outcome)
		}
		if facts.function[t.change.start] == facts.function[line] {
			h.function = telling(h.function, t.outcome)
		}
	}
	return h
}

var tellingOrder = [...]int{untested: 0, worse: 1, unmoved: 2, otherOutput: 3, improved: 4, passed: 5}

func telling(a, b outcome) outcome {
	if tellingOrder[b] > tellingOrder[a] {
		return b
	}
	return a
}

// changeFeatures describe a mutation: the operator, what it exchanges, whether the new text looks
// like the rest of the program.
func (s *state) changeFeatures(f *file, line int, m mutation) []feature {
	facts := f.derive()
	plain := facts.plain[line]
	known := novelty(facts, f.lines[line], m.change.with[0], f.language())
	return []feature{
		hashed("change", plain+"\x00"+m.op+m.change.with[0], memory),
		hashed("operator", m.op, trait),
		hashed("operator shape", m.op+lineShape(plain), trait),
		hashed("detail", m.op+m.detail, trait),
		numbered("novel", known, 0, trait),
		hashed("novel "+boolText(known > 0), m.op, trait),
	}
}

// novelty counts the pairs of neighbours in a changed line that the file has nowhere else, up to
// three: code is repetitive, and a line that fits its surroundings is likelier to be right (Hindle
// et al., On the naturalness of software).
func novelty(facts *fileFacts, before, after string, lang language) int {
	old := map[uint64]bool{}
	eachBigram(lex(before, lang), func(h uint64) { old[h] = true })
	novel := 0
	eachBigram(lex(after, lang), func(h uint64) {
		if !old[h] && facts.bigrams[h] == 0 {
			novel++
		}
	})
	return min(novel, 3)
}
