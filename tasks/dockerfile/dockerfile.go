// Package dockerfile splits a Dockerfile into instructions, and these into
// words. It decides nothing.
package dockerfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Instruction is one instruction of a Dockerfile, its continuation lines joined.
type Instruction struct {
	Line int    // of its first line, from 1
	Name string // upper case
	Args string // the rest, trimmed
}

// Limits of a Dockerfile.
const (
	MaxBytes        = 64 << 10
	maxInstructions = 500
)

// Parse splits a Dockerfile into instructions. Here-documents and another escape
// character than '\' are refused.
func Parse(text string) ([]Instruction, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%d bytes, the limit is %d", len(text), MaxBytes)
	}
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return nil, errors.New("is not UTF-8 text")
	}
	var (
		list    []Instruction
		pending strings.Builder // of an instruction that goes on
		start   int
	)
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if isEscapeDirective(line) {
			return nil, fmt.Errorf("line %d: only '\\' is supported as the escape character", number+1)
		}
		if line == "" || line[0] == '#' { // also between continuation lines
			continue
		}
		if pending.Len() == 0 {
			start = number + 1
		}
		body, more := strings.CutSuffix(line, `\`)
		pending.WriteString(body)
		if more {
			pending.WriteByte(' ')
			continue
		}
		list = appendInstruction(list, start, pending.String())
		pending.Reset()
	}
	list = appendInstruction(list, start, pending.String())
	if len(list) > maxInstructions {
		return nil, fmt.Errorf("%d instructions, the limit is %d", len(list), maxInstructions)
	}
	for _, in := range list {
		if heredoc(in) {
			return nil, fmt.Errorf("line %d: %s with a here-document is not supported", in.Line, in.Name)
		}
	}
	return list, nil
}

func isEscapeDirective(line string) bool {
	directive, found := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(line), " ", ""), "#escape=")
	return found && directive != `\`
}

func appendInstruction(list []Instruction, line int, text string) []Instruction {
	text = strings.TrimSpace(text)
	if text == "" {
		return list
	}
	name, args := text, ""
	if cut := strings.IndexAny(text, " \t"); cut >= 0 {
		name, args = text[:cut], strings.TrimSpace(text[cut:])
	}
	return append(list, Instruction{line, strings.ToUpper(name), args})
}

func heredoc(in Instruction) bool {
	switch in.Name {
	case "RUN", "COPY", "ADD":
		return strings.Contains(in.Args, "<<")
	}
	return false
}

// ValidVariable is what the name of a variable looks like.
var ValidVariable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Words splits the arguments of an instruction: the JSON form, or words with shell quoting, in
// which variables are expanded outside of single quotes.
func Words(args string, lookup func(string) (string, bool)) ([]string, error) {
	if strings.HasPrefix(args, "[") {
		var list []string
		if err := json.Unmarshal([]byte(args), &list); err == nil {
			return list, nil
		}
	}
	s := &splitter{rest: args, lookup: lookup}
	for s.rest != "" {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	if s.quote != 0 {
		return nil, fmt.Errorf("quote %c is not closed", s.quote)
	}
	s.endWord()
	return s.words, nil
}

// splitter is the state of words: one step takes one character or one
// variable.
type splitter struct {
	rest   string
	lookup func(string) (string, bool)
	words  []string
	word   strings.Builder
	inWord bool
	quote  byte // the open quote, or 0
}

func (s *splitter) step() error {
	c := s.rest[0]
	s.rest = s.rest[1:]
	switch {
	case c == s.quote && c != 0:
		s.quote = 0
	case s.quote == '\'':
		s.word.WriteByte(c)
	case c == '\\' && s.rest != "":
		s.inWord = true
		s.word.WriteByte(s.rest[0])
		s.rest = s.rest[1:]
	case c == '$':
		s.inWord = true
		return s.variable()
	case s.quote == 0 && (c == '"' || c == '\''):
		s.quote, s.inWord = c, true
	case s.quote == 0 && (c == ' ' || c == '\t'):
		s.endWord()
	default:
		s.inWord = true
		s.word.WriteByte(c)
	}
	return nil
}

func (s *splitter) endWord() {
	if s.inWord {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}

// maxExpanded bounds what the variables of one instruction may grow to.
const maxExpanded = 64 << 10

// variable expands $NAME and ${NAME}.
func (s *splitter) variable() error {
	name := s.rest
	braced := strings.HasPrefix(s.rest, "{")
	if braced {
		inner, rest, closed := strings.Cut(s.rest[1:], "}")
		if !closed || !ValidVariable.MatchString(inner) {
			return errors.New("only $NAME and ${NAME} are supported of the forms of variables")
		}
		name, s.rest = inner, rest
	} else {
		end := 0
		for end < len(name) && isNameByte(name[end], end == 0) {
			end++
		}
		if end == 0 {
			s.word.WriteByte('$')
			return nil
		}
		name, s.rest = name[:end], name[end:]
	}
	value, found := s.lookup(name)
	if !found {
		return fmt.Errorf("variable %s is not set in this Dockerfile", name)
	}
	if s.word.WriteString(value); s.word.Len() > maxExpanded {
		return fmt.Errorf("expands to more than %d bytes", maxExpanded)
	}
	return nil
}

func isNameByte(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && !first
}
