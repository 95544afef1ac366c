package functions

import (
	"go/ast"
	"go/parser"
	"go/token"

	"github.com/rondo-rl/rondo/index/chunk"
)

// goFunctions leaves out a file that does not parse.
func goFunctions(path string, content []byte) []Function {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	var list []Function
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		symbol := d.Name.Name
		if d.Recv != nil && len(d.Recv.List) > 0 {
			symbol = chunk.Receiver(d.Recv.List[0].Type) + "." + symbol
		}
		start, end := set.PositionFor(d.Pos(), false).Offset, set.PositionFor(d.End(), false).Offset
		list = append(list, Function{Path: path, Symbol: symbol, Name: d.Name.Name,
			Sentence: firstSentence(d.Doc.Text()), Text: string(content[start:end])})
	}
	return list
}
