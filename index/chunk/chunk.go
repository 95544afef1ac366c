// Package chunk cuts source files into pieces of about 1500 bytes, along their declarations and
// statements, for an index.
//
// Every byte of a file that is not blank is in exactly one chunk. The chunks of a file depend on
// its path and content alone.
package chunk

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/rondo-rl/rondo/index/source"
)

// Version is part of an index's identity. It changes whenever chunks come
// out otherwise than before.
const Version = 2

// Sizes in bytes of a file's text, without the symbols.
const (
	target  = 1500 // what pieces of something large are joined up to
	small   = 500  // what whole declarations are joined up to
	tiny    = 120  // what is joined to a neighbour even so
	Max     = 2250 // of any chunk: a declaration up to here stays whole
	MaxFile = 16 << 20
	// MaxChunks bounds the chunks of one file. Two neighbours are seldom together smaller than
	// small, so that a file of a mebibyte stays far below.
	MaxChunks = 20_000

	maxSymbols = 300
)

// Chunk is a piece of a file.
type Chunk struct {
	Start, End          int // bytes of the file, the end not included
	FirstLine, LastLine int // from 1, the last included
	// Symbols names the declarations that the chunk holds or is in, "" for none. An embedder reads
	// it before the text; the path it does not read, so that a file that moves keeps its vectors.
	Symbols string
	Text    string // valid UTF-8: other bytes are replaced
}

// Embedded is what an embedder reads: chunks with the same have equal vectors, wherever they stand.
func (c *Chunk) Embedded() string {
	if c.Symbols == "" {
		return c.Text
	}
	return c.Symbols + "\n" + c.Text
}

// ErrTooLarge says that a file is over MaxFile, or would have more than MaxChunks chunks.
var ErrTooLarge = errors.New("too large to be cut into chunks")

// Split cuts a file. Its path is as it is in the index, with slashes.
func Split(path string, content []byte) ([]Chunk, error) {
	if len(content) > MaxFile {
		return nil, fmt.Errorf("chunks of %q: %w: %d bytes (limit %d)", path, ErrTooLarge, len(content), MaxFile)
	}
	lines := linesOf(content)
	structure(source.LanguageOf(path, content), content, lines)
	price(lines)
	parts := pack(content, lines)
	if len(parts) > MaxChunks {
		return nil, fmt.Errorf("chunks of %q: %w: %d chunks (limit %d)", path, ErrTooLarge, len(parts), MaxChunks)
	}
	chunks := make([]Chunk, 0, len(parts))
	for _, p := range parts {
		first, last := lineAt(lines, p.start), lineAt(lines, p.end-1)
		chunks = append(chunks, Chunk{
			Start: p.start, End: p.end, FirstLine: first + 1, LastLine: last + 1,
			Symbols: symbols(lines[first : last+1]), Text: strings.ToValidUTF8(string(content[p.start:p.end]),
				"\ufffd"),
		})
	}
	return chunks, nil
}

// structure finds out what the lines of a file are.
func structure(language source.Language, content []byte, lines []line) {
	switch language {
	case source.Go:
		if !goStructure(content, lines) {
			bracedStructure(language, content, lines)
		}
	case source.Python, source.Ruby, source.Shell:
		indentedStructure(language, content, lines)
	case source.Markdown:
		markdownStructure(content, lines)
	case source.Text:
		textStructure(content, lines)
	default:
		bracedStructure(language, content, lines)
	}
}

// symbols names the declarations that begin in the lines, or the one that they lie in.
func symbols(lines []line) string {
	var names []string
	depth := deepest
	for i := range lines {
		if l := &lines[i]; l.name != "" && l.depth <= depth {
			names, depth = append(names, l.scope), l.depth
		}
	}
	if len(names) == 0 {
		names = []string{lines[0].scope}
	}
	text := names[0]
	for _, name := range names[1:] {
		if name != "" && len(text)+len(name) < maxSymbols {
			text += ", " + name
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	return cutRunes(text, maxSymbols)
}
