package chunk

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// goStructure asks Go's own parser; false where the file is not Go.
func goStructure(content []byte, lines []line) bool {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	base := set.File(file.Pos()).Base()
	// not Position, which //line comments move
	g := goLines{lines: lines, offset: func(p token.Pos) int { return int(p) - base }}
	for i := range lines {
		lines[i].fixed = true
	}
	g.begin(file.Package, 0)
	for _, group := range file.Comments {
		g.comment(content, group)
	}
	for _, decl := range file.Decls {
		g.declaration(decl)
	}
	g.placeComments()
	return true
}

type goLines struct {
	lines  []line
	offset func(token.Pos) int
}

// lineAt is the line of a position; nil behind the last one.
func (g *goLines) lineAt(pos token.Pos) *line {
	i := lineAt(g.lines, g.offset(pos))
	if i == len(g.lines) {
		return nil
	}
	return &g.lines[i]
}

// begin makes a line a place where a cut may be, at the depth of the outermost node that begins it.
func (g *goLines) begin(pos token.Pos, depth int) {
	if l := g.lineAt(pos); l != nil && (l.fixed || depth < l.depth) {
		l.fixed, l.depth = false, depth
	}
}

// comment marks the lines that hold nothing but a comment.
func (g *goLines) comment(content []byte, group *ast.CommentGroup) {
	start, end := g.offset(group.Pos()), g.offset(group.End())
	for i := lineAt(g.lines, start); i < len(g.lines) && g.lines[i].start < end; i++ {
		l := &g.lines[i]
		l.attached = l.start >= start || isBlank(content[l.start:start])
	}
}

// placeComments gives comments the place of what they precede.
func (g *goLines) placeComments() {
	depth, fixed := 0, false
	for i := len(g.lines) - 1; i >= 0; i-- {
		switch l := &g.lines[i]; {
		case l.blank:
		case l.attached && l.fixed:
			l.depth, l.fixed = depth, fixed
		default:
			depth, fixed = l.depth, l.fixed
		}
	}
}

func (g *goLines) declaration(decl ast.Decl) {
	name := ""
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name = d.Name.Name
		if d.Recv != nil && len(d.Recv.List) > 0 {
			name = Receiver(d.Recv.List[0].Type) + "." + name
		}
	case *ast.GenDecl:
		name = specNames(d)
	}
	g.begin(decl.Pos(), 0)
	if l := g.lineAt(decl.Pos()); l != nil && l.name == "" {
		l.name, l.declares = name, true
	}
	depth := 0
	ast.Inspect(decl, func(n ast.Node) bool {
		if n == nil {
			depth--
			return false
		}
		depth++
		switch n := n.(type) {
		case *ast.BlockStmt:
			for _, s := range n.List {
				g.begin(s.Pos(), depth)
			}
		case *ast.CaseClause:
			for _, s := range n.Body {
				g.begin(s.Pos(), depth)
			}
		case *ast.CommClause:
			for _, s := range n.Body {
				g.begin(s.Pos(), depth)
			}
		case *ast.FieldList:
			for _, f := range n.List {
				g.begin(f.Pos(), depth)
			}
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				g.begin(e.Pos(), depth)
			}
		case *ast.GenDecl:
			if n.Lparen.IsValid() {
				for _, s := range n.Specs {
					g.begin(s.Pos(), depth)
				}
			}
		}
		return true
	})
}

// Receiver names the type of a method's receiver, "_" where it has no name.
func Receiver(e ast.Expr) string {
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.ParenExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return "_"
		}
	}
}

// specNames names what a declaration of types, constants or variables declares, the first few.
func specNames(d *ast.GenDecl) string {
	var names []string
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			names = append(names, s.Name.Name)
		case *ast.ValueSpec:
			for _, n := range s.Names {
				names = append(names, n.Name)
			}
		}
		if len(names) >= 4 {
			break
		}
	}
	return strings.Join(names, ", ")
}
