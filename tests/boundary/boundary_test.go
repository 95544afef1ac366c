// Package boundary holds the packages to the direction in which imports may point:
//
//	cmd → services → {sandbox, index, inference, weights, advantage, evaluation, policy, tasks} → {storage, events, schemas}
package boundary

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rondo-rl/rondo/"

// layers are the top-level folders, from what imports to what is imported. A folder may import its own layer's
// folders only where peers says so, and every layer below.
var layers = [][]string{
	{"cmd"},
	{"services"},
	{"sandbox", "index", "inference", "weights", "advantage", "evaluation", "policy", "tasks"},
	{"storage", "events", "schemas"},
}

// peers are the imports within a layer: a task is checked in a sandbox, an index may have the model of a safetensors file or of a
// server, the policy writes and reads safetensors, events refer to objects, schemas describe events.
var peers = map[string][]string{
	"tasks":   {"sandbox"},
	"index":   {"weights", "inference"},
	"policy":  {"weights"},
	"events":  {"storage"},
	"schemas": {"events"},
}

// exceptions are single packages with a rule of their own. The audit command prints what the checker finds, and a
// checker knows the log and the store alone.
var exceptions = map[string][]string{
	"cmd/rondo":     {"tests/checker"},
	"tests/checker": {"advantage", "events", "events/eventlog", "events/ledger", "storage"},
}

// goPackage is what `go list -json` says of a package. Tests may import what they like.
type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointOneWay(t *testing.T) {
	checked := map[string]bool{}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		checked[top(from)] = true
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module)
			if ours && !allowed(from, to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
	for _, folder := range []string{"cmd", "services", "sandbox", "policy", "storage", "events", "schemas"} {
		if !checked[folder] {
			t.Errorf("no package below %s was looked at", folder)
		}
	}
}

// TestTheRuleRefuses shows that the rule above is one that can be broken.
func TestTheRuleRefuses(t *testing.T) {
	for _, pair := range [][2]string{
		{"services/scorer", "services/generator"},
		{"services/scorer", "cmd/rondo"},
		{"sandbox", "services/scorer"},
		{"storage", "events"},
		{"events/runtime", "policy"},
		{"advantage", "sandbox"},
		{"services/scorer", "tests/checker"},
		{"tests/checker", "services/scorer"},
		{"newfolder", "events"},
	} {
		if allowed(pair[0], pair[1]) {
			t.Errorf("%s may import %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{"cmd/rondo", "services/scorer"}, {"services/scorer", "sandbox/verifier"}, {"services/scorer", "events/runtime"},
		{"services/scorer", "services/scorer/internal/x"}, {"tasks", "sandbox"}, {"cmd/rondo", "tests/checker"}, {"tests/e2e", "sandbox"},
	} {
		if !allowed(pair[0], pair[1]) {
			t.Errorf("%s may not import %s", pair[0], pair[1])
		}
	}
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("go list: %v\n%s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	var list []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// allowed says whether a package may import another, both named from the module's root.
func allowed(from, to string) bool {
	if rule, ok := exceptions[from]; ok && slices.Contains(rule, to) {
		return true
	}
	if top(from) == "tests" || top(from) == "examples" {
		return exceptions[from] == nil // tests and examples may use everything; nothing of theirs is a service
	}
	if unit(from) == unit(to) {
		return true
	}
	above, below := layer(from), layer(to)
	if above < 0 || below < 0 {
		return false
	}
	return above < below || above == below && slices.Contains(peers[top(from)], top(to))
}

func top(pkg string) string { first, _, _ := strings.Cut(pkg, "/"); return first }

// unit is what may import within itself: each service for itself, every other folder as a whole.
func unit(pkg string) string {
	if top(pkg) != "services" {
		return top(pkg)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(pkg, "services/"), "/")
	return path.Join("services", name)
}

func layer(pkg string) int {
	for i, folders := range layers {
		if slices.Contains(folders, top(pkg)) {
			return i
		}
	}
	return -1
}
