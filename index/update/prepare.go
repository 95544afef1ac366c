package update

import (
	"context"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/index/chunk"
	"github.com/rondo-rl/rondo/index/words"
	"github.com/rondo-rl/rondo/redact"
)

// secretsWithin bounds the search of one file for secrets, which takes milliseconds unless
// the file is made for that.
const secretsWithin = time.Minute

// unsearched counts, among the rules, the chunks of files that could not be searched for secrets in
// time: none of them is indexed.
const unsearched = "unsearched"

// piece is a chunk that may be indexed, with what is looked for in it.
type piece struct {
	chunk.Chunk
	words []string
}

// cut cuts a file into pieces, without those that hold a secret, which it counts by rule.
func cut(ctx context.Context, path string, content []byte) (pieces []piece, dropped map[string]int, err error) {
	chunks, err := chunk.Split(path, content)
	if err != nil {
		return nil, nil, err
	}
	searching, cancel := context.WithTimeout(ctx, secretsWithin)
	defer cancel()
	found, err := redact.Find(searching, string(content))
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, map[string]int{unsearched: len(chunks)}, nil
	}
	dropped = map[string]int{}
	// The names of the folders and of the file are words of every chunk, as its text would
	// not say where it stands.
	named := words.Of(path)
	for _, c := range chunks {
		if rule := ruleOf(found, content, c); rule != "" {
			dropped[rule]++
			continue
		}
		pieces = append(pieces, piece{c, append(words.Of(c.Embedded()), named...)})
	}
	return pieces, dropped, nil
}

// ruleOf is the rule of a secret that is in a chunk, at least in part, or that its symbols repeat,
// such as a heading above it; "" for none.
func ruleOf(found []redact.Span, content []byte, c chunk.Chunk) string {
	for _, s := range found {
		if s.Start < c.End && c.Start < s.End || strings.Contains(c.Symbols, string(content[s.Start:s.End])) {
			return s.Rule
		}
	}
	return ""
}
