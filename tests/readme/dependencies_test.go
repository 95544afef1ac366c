package readme

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const ourModule = "github.com/rondo-rl/rondo"

// TestDependencies: docs/dependencies.md says of each direct dependency what it
// is for, and of no other.
func TestDependencies(t *testing.T) {
	text, _, _ := strings.Cut(read(t, filepath.Join(root, "docs/dependencies.md")), "<!-- packages -->")
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:\t|require )(\S+) v\S+$`).FindAllStringSubmatch(read(t,
		filepath.Join(root, "go.mod")), -1) {
		direct[m[1]] = true
		if !strings.Contains(text, "`"+m[1]+"`") {
			t.Errorf("docs/dependencies.md does not say what %s is for", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`([a-z.]+\\.[a-z]+/[^` ]+)`").FindAllStringSubmatch(text, -1) {
		if !direct[m[1]] {
			t.Errorf("docs/dependencies.md names %s, which go.mod does not require directly", m[1])
		}
	}
	if len(direct) < 10 {
		t.Errorf("go.mod has %d direct dependencies", len(direct))
	}
}

// TestPackages: docs/dependencies.md says how many packages each module
// brings into the program rondo.
func TestPackages(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", "./cmd/rondo")
	list.Dir = root
	list.Env = append(list.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	graph := imports{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p importing
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		graph[p.ImportPath] = p
	}
	var table strings.Builder
	all, ours, standard := graph.reached(""), 0, 0
	for path := range all {
		switch graph[path].module() {
		case ourModule:
			ours++
		case "":
			standard++
		}
	}
	fmt.Fprintf(&table, "`rondo` for Linux is built of %d packages: %d of Rondo, %d of the standard library, %d of %d other modules.\n\n",
		len(all), ours, standard, len(all)-ours-standard, len(graph.modules(all))-2)
	table.WriteString("| without | packages less | other modules less |\n|---|---|---|\n")
	for _, row := range graph.costs() {
		fmt.Fprintf(&table, "| `%s` | %d | %d |\n", row.module, row.packages, row.modules)
	}
	generated(t, "docs/dependencies.md", "packages", table.String())
}

// importing is what `go list` says of a package.
type importing struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Path string }
}

// module that the package is of; "" is the standard library.
func (p importing) module() string {
	if p.Module == nil {
		return ""
	}
	return p.Module.Path
}

// imports holds the packages of a program by their paths.
type imports map[string]importing

// reached are the packages that the program imports where nothing of ours
// imports the module without.
func (g imports) reached(without string) map[string]bool {
	seen := map[string]bool{}
	var follow func(path string)
	follow = func(path string) {
		p, known := g[path]
		if !known || seen[path] {
			return
		}
		seen[path] = true
		for _, next := range p.Imports {
			if p.module() != ourModule || without == "" || g[next].module() != without {
				follow(next)
			}
		}
	}
	follow(ourModule + "/cmd/rondo")
	return seen
}

// modules that packages are of.
func (g imports) modules(packages map[string]bool) map[string]bool {
	all := map[string]bool{}
	for path := range packages {
		all[g[path].module()] = true
	}
	return all
}

// cost is what a program would not have without a module.
type cost struct {
	module            string
	packages, modules int
}

// costs are those of the modules that we import and that bring a package, the dearest first.
func (g imports) costs() (rows []cost) {
	direct := map[string]bool{}
	for _, p := range g {
		for _, next := range p.Imports {
			if p.module() == ourModule {
				direct[g[next].module()] = true
			}
		}
	}
	all := g.reached("")
	for module := range maps.Keys(direct) {
		if module == "" || module == ourModule {
			continue
		}
		left := g.reached(module)
		if less := len(all) - len(left); less > 0 {
			others := len(g.modules(all)) - len(g.modules(left)) - 1
			rows = append(rows, cost{module, less, max(others, 0)})
		}
	}
	slices.SortFunc(rows, func(a, b cost) int {
		return cmp.Or(cmp.Compare(b.packages, a.packages), cmp.Compare(a.module, b.module))
	})
	return rows
}

// TestCosts counts a package that two modules bring for neither of them.
func TestCosts(t *testing.T) {
	g := imports{}
	add := func(module, path string, next ...string) {
		p := importing{ImportPath: path, Imports: next}
		if module != "" {
			p.Module = &struct{ Path string }{module}
		}
		g[path] = p
	}
	add(ourModule, ourModule+"/cmd/rondo", "a", "b", "fmt")
	add("a.org/a", "a", "a/x", "both", "fmt")
	add("a.org/a", "a/x", "c")
	add("c.org/c", "c")
	add("b.org/b", "b", "both")
	add("both.org/both", "both")
	add("", "fmt")
	if got, want := g.costs(), []cost{{"a.org/a", 3, 1}, {"b.org/b", 1, 0}}; !slices.Equal(got, want) {
		t.Errorf("costs %v, want %v", got, want)
	}
}
