// Package yamltext reads YAML that a user or a task pack hands in, within bounds. A text of
// a few hundred bytes may stand for gigabytes, as an alias repeats what its anchor holds,
// and nesting takes stack.
package yamltext

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/rondo-rl/rondo/wording"
)

// Bounds of a text.
const (
	MaxBytes = 1 << 20
	maxDepth = 64     // of lists and mappings inside of one another
	maxNodes = 200000 // values, with those that aliases repeat
	maxTwice = 4096   // values that aliases repeat
)

// ErrTooMuch means that the text stands for more than any file needs.
var ErrTooMuch = errors.New("the YAML is too large")

// ReadFile reads a file, or a pipe such as /dev/stdin, of at most MaxBytes.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(text) > MaxBytes {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrTooMuch, MaxBytes)
	}
	return text, err
}

// Unmarshal checks the bounds and decodes a text into v.
func Unmarshal(text []byte, v any, options ...yaml.DecodeOption) error {
	if err := check(text); err != nil {
		return err
	}
	return wording.Plain(yaml.UnmarshalWithOptions(text, v, options...))
}

// check looks at a text's size, nesting and aliases before anything is made of it.
func check(text []byte) error {
	if len(text) > MaxBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooMuch, len(text), MaxBytes)
	}
	tokens := lexer.Tokenize(string(text))
	aliases, err := checkTokens(tokens)
	if err != nil || !aliases {
		return err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil // the decoder says it better
	}
	w := &weigher{anchors: map[string]weight{}}
	total := weight{}
	for _, doc := range file.Docs {
		total.add(w.weigh(doc.Body, 0))
	}
	switch {
	case total.nodes > maxNodes || total.repeated > maxTwice:
		return fmt.Errorf("%w: its aliases repeat more than %d values: write them out, or use fewer", ErrTooMuch,
			maxTwice)
	case total.depth > maxDepth:
		return tooDeep()
	}
	return nil
}

func tooDeep() error {
	return fmt.Errorf("%w: more than %d lists and mappings inside of one another", ErrTooMuch, maxDepth)
}

// checkTokens bounds the nesting before the parser recurses, and reports whether there is an alias.
func checkTokens(tokens token.Tokens) (aliases bool, err error) {
	flow, line, inLine := 0, 0, 0
	indents := []int{}
	if len(tokens) > maxNodes {
		return false, fmt.Errorf("%w: more than %d words and signs", ErrTooMuch, maxNodes)
	}
	for _, t := range tokens {
		if t.Position.Line != line {
			line, inLine = t.Position.Line, 0
			for len(indents) > 0 && indents[len(indents)-1] >= t.Position.Column {
				indents = indents[:len(indents)-1]
			}
			indents = append(indents, t.Position.Column)
		}
		switch t.Type {
		case token.AliasType:
			aliases = true
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
			continue
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inLine++ // several of them nest in one line
		}
		if flow > maxDepth || flow == 0 && inLine > maxDepth || flow == 0 && len(indents) > maxDepth {
			return false, tooDeep()
		}
	}
	return aliases, nil
}

// weight is how much a value is when its aliases are replaced by what they stand for.
type weight struct{ nodes, repeated, depth int }

func (w *weight) add(part weight) {
	w.nodes = min(w.nodes+part.nodes, 1<<30)
	w.repeated = min(w.repeated+part.repeated, 1<<30)
	w.depth = max(w.depth, part.depth+1)
}

type weigher struct{ anchors map[string]weight }

// weigh weighs a value. An alias is behind its anchor, so each is weighed once.
func (w *weigher) weigh(n ast.Node, depth int) weight {
	sum := weight{nodes: 1}
	if depth > 4*maxDepth { // mappings, their pairs and values count one each
		sum.depth = depth
		return sum
	}
	inside := func(parts ...ast.Node) {
		for _, part := range parts {
			if part != nil {
				sum.add(w.weigh(part, depth+1))
			}
		}
	}
	switch n := n.(type) {
	case *ast.AliasNode:
		sum = w.anchors[n.Value.String()]
		sum.repeated = min(sum.repeated+sum.nodes, 1<<30)
	case *ast.AnchorNode:
		inside(n.Value)
		sum.depth--
		w.anchors[n.Name.String()] = sum
	case *ast.TagNode:
		inside(n.Value)
		sum.depth--
	case *ast.MappingNode:
		for _, pair := range n.Values {
			inside(pair.Key, pair.Value)
		}
	case *ast.MappingValueNode:
		inside(n.Key, n.Value)
	case *ast.MappingKeyNode:
		inside(n.Value)
		sum.depth--
	case *ast.SequenceNode:
		inside(n.Values...)
	default:
		sum.nodes += len(n.String()) / 64 // a long text is much, too
	}
	return sum
}
