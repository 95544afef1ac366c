package policy

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"strings"
)

// compilable leaves out changes of a Go file that do not compile: those that give the type checker more to say about the package
// than it says already. Imported packages are not looked at, so this judges only what the package itself declares.
func (s *state) compilable(f *file, mutations []mutation) []mutation {
	if path.Ext(f.path) != ".go" || len(mutations) == 0 {
		return mutations
	}
	p := s.goPackage(f)
	before := p.complaints(f.text())
	out := mutations[:0]
	for _, m := range mutations {
		if p.complaints(strings.Join(m.change.apply(f.lines), "\n")) <= before {
			out = append(out, m)
		}
	}
	return out
}

// goPackage is the package around one file: the other files, parsed once.
type goPackage struct {
	set    *token.FileSet
	others []*ast.File
}

func (s *state) goPackage(f *file) *goPackage {
	p := &goPackage{set: token.NewFileSet()}
	s.eachFile(func(other *file) {
		same := other != f && other.read && path.Ext(other.path) == ".go" && path.Dir(other.path) == path.Dir(f.path)
		if !same || strings.HasSuffix(other.path, "_test.go") {
			return
		}
		if parsed, err := parser.ParseFile(p.set, other.path, other.text(), parser.SkipObjectResolution); err == nil {
			p.others = append(p.others, parsed)
		}
	})
	return p
}

const manyComplaints = 1 << 20

// complaints counts what the type checker finds wrong with the package when the file has this text.
func (p *goPackage) complaints(text string) (count int) {
	defer func() {
		if recover() != nil { // a checker that trips over a text has something to say about it
			count = manyComplaints
		}
	}()
	parsed, err := parser.ParseFile(p.set, "changed.go", text, parser.SkipObjectResolution)
	if err != nil {
		return manyComplaints
	}
	files := []*ast.File{parsed}
	for _, other := range p.others {
		if other.Name.Name == parsed.Name.Name {
			files = append(files, other)
		}
	}
	config := types.Config{
		Importer: noImports{},
		Error: func(err error) {
			if e, ok := errors.AsType[types.Error](err); !ok || !strings.HasPrefix(e.Msg, "could not import") {
				count++
			}
		},
	}
	config.Check(parsed.Name.Name, p.set, files, nil) // the errors were counted
	return count
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not looked at") }
