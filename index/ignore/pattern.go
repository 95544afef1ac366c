package ignore

import (
	"fmt"
	"strings"
)

// Bounds of one ignore file. Chromium's has 15 KB; beyond these a file is an
// attack, or no ignore file.
const (
	MaxFile     = 1 << 20
	maxPatterns = 10_000
)

// pattern is one line of an ignore file.
type pattern struct {
	negated    bool
	foldersToo bool // matches folders alone: the line ended in a slash
	byName     bool // the line has no slash: it is matched against the last segment, wherever that is

	prefix string   // literal beginning; the whole pattern where wildcard is nil
	suffix string   // literal end of a name, where suffixOnly
	tail   wildcard // what follows the prefix

	suffixOnly bool // *.o, the commonest pattern
}

// parse reads an ignore file.
func parse(text string) ([]pattern, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("larger than %d bytes", MaxFile)
	}
	var list []pattern
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		p, ok := parseLine(strings.TrimSuffix(line, "\r"))
		if !ok {
			continue
		}
		if len(list) == maxPatterns {
			return nil, fmt.Errorf("more than %d patterns", maxPatterns)
		}
		list = append(list, p)
	}
	return list, nil
}

// parseLine reads one line; false where it can match nothing.
func parseLine(line string) (pattern, bool) {
	if strings.HasPrefix(line, "#") {
		return pattern{}, false
	}
	line, _, _ = strings.Cut(line, "\x00") // Git's strings end there
	line = trimSpaces(line)
	var p pattern
	line, p.negated = strings.CutPrefix(line, "!")
	line, p.foldersToo = strings.CutSuffix(line, "/")
	if line == "" {
		return pattern{}, false
	}
	p.byName = !strings.Contains(line, "/")
	if rest, ok := strings.CutPrefix(line, "*"); ok && p.byName && !strings.ContainsAny(rest, special) {
		p.suffix, p.suffixOnly = rest, true
		return p, true
	}
	line = strings.TrimPrefix(line, "/")
	wild := strings.IndexAny(line, special)
	if wild < 0 {
		p.prefix = line
		return p, true
	}
	if p.byName {
		wild = 0 // a name is short: no need to part it
	}
	// Git compares the literal beginning first and then takes the rest for a pattern of its own, so
	// the stars of a**/b begin it.
	p.prefix = line[:wild]
	var ok bool
	p.tail, ok = compile(line[wild:], !p.byName)
	return p, ok
}

const special = `*?[\`

// trimSpaces removes spaces at the end that no backslash escapes.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			i++
		}
		end = min(i+1, len(line))
	}
	if strings.HasSuffix(line, " ") {
		return line[:end]
	}
	return line
}

// match matches an entry: name is its last segment, path the way to it from the
// folder of the ignore file.
func (p *pattern) match(path, name string, folder bool) bool {
	if p.foldersToo && !folder {
		return false
	}
	switch {
	case p.suffixOnly:
		return strings.HasSuffix(name, p.suffix)
	case p.byName && p.tail == nil:
		return name == p.prefix
	case p.byName:
		return p.tail.match(name)
	case p.tail == nil:
		return path == p.prefix
	}
	rest, ok := strings.CutPrefix(path, p.prefix)
	return ok && p.tail.match(rest)
}
