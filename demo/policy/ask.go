package policy

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
)

// askTool searches the code by meaning.
const askTool = "codebase_search"

const (
	maxQuestion = 600 // bytes
	maxFound    = 16  // files of an answer, for which there is room beside those of listings
)

// ask asks for what the instruction says.
func (t *turn) ask() {
	need := t.s.need
	t.call(askTool, arguments{Query: &need})
}

// canAsk: one question is asked, while there is something that was not read.
func (s *state) canAsk() bool {
	return !s.asked && s.need != "" && len(s.unlisted())+len(s.unread()) > 0
}

// needOf is the prose of an instruction: without code, and without the paragraphs that only tell
// what to run, as these are in the words of every task and not of this one.
func needOf(instruction string) string {
	var prose, other []string
	for paragraph := range strings.SplitSeq(codeBlock.ReplaceAllString(instruction, ""), "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			if text := strings.TrimSpace(strings.TrimLeft(line, "#")); text != "" && !strings.HasPrefix(line, "    ") &&
				!strings.HasPrefix(line, "\t") {
				lines = append(lines, text)
			}
		}
		switch text := strings.Join(lines, " "); {
		case text == "":
		case len(toldCommands(paragraph)) > 0:
			other = append(other, text)
		default:
			prose = append(prose, text)
		}
	}
	if prose == nil {
		prose = other
	}
	text := strings.Join(prose, " ")
	if len(text) > maxQuestion {
		text = strings.ToValidUTF8(text[:maxQuestion], "")
	}
	return text
}

// foundPart is the line above each part of a file that a search found; lines of the file itself
// begin with number and bar.
var foundPart = regexp.MustCompile(`^([^\s|][^|]*):\d+-\d+( .*)?$`)

func (s *state) observeFound(result string) {
	s.asked = true
	for line := range strings.SplitSeq(result, "\n") {
		m := foundPart.FindStringSubmatch(line)
		if m == nil || len(s.found) == maxFound {
			continue
		}
		name := cleanPath(m[1])
		if path.IsAbs(name) || slices.Contains(s.found, name) {
			continue
		}
		s.found = append(s.found, name)
		if s.files[name] == nil {
			s.files[name] = &file{path: name}
		}
	}
	rest := slices.DeleteFunc(slices.Clone(s.order), func(name string) bool { return slices.Contains(s.found, name) })
	s.order = append(slices.Clone(s.found), rest...)
}

// unreadFound are the files that a search found and that were not read yet. They are the
// first of the unread ones.
func (s *state) unreadFound() []string { return s.unreadOf(s.found) }

// rank is a file's place, from 1, among the files of the search's answer that may be changed; 0 for
// a file that it did not find.
func (s *state) rank(f *file) (place int) {
	for _, name := range s.found {
		if other := s.files[name]; !s.excluded(other) {
			place++
			if other == f {
				return place
			}
		}
	}
	return 0
}

// lead is the fixed part of a line's logit that a search's answer gives. An answer speaks for a
// file: its lines share that.
func (s *state) lead(f *file) float64 {
	if len(s.found) == 0 {
		return 0
	}
	lines := 0
	for _, mutable := range f.derive().mutable {
		if mutable {
			lines++
		}
	}
	shared := -math.Log(float64(max(lines, 1))) / 2
	if place := s.rank(f); place > 0 {
		return shared + 2/float64(place)
	}
	return shared - 1
}
