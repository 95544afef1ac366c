package ignore

import "strings"

// A wildcard is a compiled glob with Git's meaning: bytes, not runes, so that names which
// are not UTF-8 match too.
type wildcard []token

type token struct {
	kind kind
	char byte     // of a literal
	set  *charset // of a class
}

type kind uint8

const (
	literal  kind = iota
	anyChar       // ?  one byte, no slash in a path
	class         // [a-z]
	star          // *  any bytes but slashes
	deepStar      // ** any bytes; in a name without slashes also *
	folders       // **/ no folder, or any number of them
)

// charset holds the bytes of a class as bits.
type charset [4]uint64

func (s *charset) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *charset) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// compile reads a glob. In a path, wildcards stop at slashes. A glob that is not well-formed
// matches nothing, and false says so.
func compile(glob string, path bool) (wildcard, bool) {
	tokens := make(wildcard, 0, len(glob))
	for i := 0; i < len(glob); {
		switch c := glob[i]; c {
		case '\\':
			if i+1 == len(glob) {
				return nil, false
			}
			tokens = append(tokens, token{kind: literal, char: glob[i+1]})
			i += 2
		case '?':
			tokens = append(tokens, token{kind: anyChar})
			i++
		case '[':
			set, n := parseClass(glob[i:])
			if n == 0 {
				return nil, false
			}
			if path {
				set[0] &^= 1 << '/'
			}
			tokens = append(tokens, token{kind: class, set: set})
			i += n
		case '*':
			t, n := parseStars(glob, i, path)
			tokens = append(tokens, t)
			i += n
		default:
			tokens = append(tokens, token{kind: literal, char: c})
			i++
		}
	}
	return tokens, true
}

// parseStars reads a run of stars, and the slash after it where that belongs to it. Two stars cross
// slashes only where they fill a whole segment.
func parseStars(glob string, at int, path bool) (token, int) {
	end := at
	for end < len(glob) && glob[end] == '*' {
		end++
	}
	n, rest := end-at, glob[end:]
	begins := at == 0 || glob[at-1] == '/'
	switch {
	case !path:
		return token{kind: deepStar}, n
	case n == 1 || !begins:
		return token{kind: star}, n
	case strings.HasPrefix(rest, "/"):
		return token{kind: folders}, n + 1
	case rest == "" || strings.HasPrefix(rest, `\/`):
		return token{kind: deepStar}, n
	}
	return token{kind: star}, n
}

// match reports whether the whole text matches. It goes back only to the last star, and from there
// to the last one that crosses slashes: what an earlier one could match, that one can too. So no
// glob takes exponential time.
func (w wildcard) match(text string) bool {
	i, at := 0, 0
	starToken, starAt := -1, 0
	deepToken, deepAt := -1, 0
	for {
		switch {
		case i == len(w):
			if at == len(text) {
				return true
			}
		case w[i].kind == star:
			starToken, starAt = i, at
			i++
			continue
		case w[i].kind >= deepStar:
			deepToken, deepAt, starToken = i, at, -1
			i++
			continue
		case at < len(text) && w[i].one(text[at]):
			i, at = i+1, at+1
			continue
		}
		if starToken >= 0 && starAt < len(text) && text[starAt] != '/' {
			starAt++
			i, at = starToken+1, starAt
			continue
		}
		if deepToken < 0 {
			return false
		}
		step := 1
		switch next := deepToken + 1; {
		case w[deepToken].kind == folders:
			step = strings.IndexByte(text[deepAt:], '/') + 1
		case next < len(w) && w[next].kind == literal && deepAt < len(text): // look no further than where it can go on
			if step = strings.IndexByte(text[deepAt+1:], w[next].char) + 1; step == 0 {
				return false
			}
		}
		if step == 0 || deepAt+step > len(text) {
			return false
		}
		deepAt += step
		i, at, starToken = deepToken+1, deepAt, -1
	}
}

func (t token) one(c byte) bool {
	switch t.kind {
	case literal:
		return c == t.char
	case anyChar:
		return c != '/'
	default:
		return t.set.has(c)
	}
}

// parseClass reads a class from its opening bracket on; n is its length, 0 when it is not closed
// or names an unknown class.
func parseClass(glob string) (set *charset, n int) {
	set = new(charset)
	i, negated := 1, false
	if i < len(glob) && (glob[i] == '!' || glob[i] == '^') {
		negated = true
		i++
	}
	last := -1 // the byte that a range may begin with
	for first := true; ; first = false {
		if i >= len(glob) {
			return nil, 0
		}
		c := glob[i]
		switch {
		case c == ']' && !first:
			if negated {
				for j := range set {
					set[j] = ^set[j]
				}
			}
			return set, i + 1
		case c == '-' && last >= 0 && i+1 < len(glob) && glob[i+1] != ']':
			i++
			if glob[i] == '\\' {
				if i++; i >= len(glob) {
					return nil, 0
				}
			}
			for b := last; b <= int(glob[i]); b++ {
				set.add(byte(b))
			}
			last = -1
			i++
			continue
		case c == '[' && strings.HasPrefix(glob[i:], "[:"):
			end := strings.IndexByte(glob[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			name, closed := strings.CutSuffix(glob[i+2:i+2+end], ":")
			if !closed || end == 0 { // no name: an ordinary bracket
				break
			}
			if !set.addNamed(name) {
				return nil, 0
			}
			last = -1
			i += 2 + end + 1
			continue
		case c == '\\':
			if i++; i >= len(glob) {
				return nil, 0
			}
			c = glob[i]
		}
		set.add(c)
		last = int(c)
		i++
	}
}

var named = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return letter(c) || digit(c) },
	"alpha":  letter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < 32 || c == 127 },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > 32 && c < 127 },
	"lower":  func(c byte) bool { return c >= 'a' && c <= 'z' },
	"print":  func(c byte) bool { return c >= 32 && c < 127 },
	"punct":  func(c byte) bool { return c > 32 && c < 127 && !letter(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  func(c byte) bool { return c >= 'A' && c <= 'Z' },
	"xdigit": func(c byte) bool { return digit(c) || c|32 >= 'a' && c|32 <= 'f' },
}

func letter(c byte) bool { return c|32 >= 'a' && c|32 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func (s *charset) addNamed(name string) bool {
	in, ok := named[name]
	if !ok {
		return false
	}
	for c := range 256 {
		if in(byte(c)) {
			s.add(byte(c))
		}
	}
	return true
}
