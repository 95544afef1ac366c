// Package boundary holds the packages to the direction in which imports may point:
//
//	cmd → cli → {bench, replay} → {services, demo} → {pipeline, gc} → {tasks, evaluation, …} → {inference, books, …} → events → {sandbox, weights, index} → storage
package boundary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/rondo-rl/rondo/"

// layers are the top-level folders, from what imports to what is imported. A folder may import its
// own layer's folders only where peers says so, and every layer below.
var layers = [][]string{
	{"cmd"},
	{"cli"},
	{"bench", "replay"},
	{"services", "demo"},
	{"pipeline", "gc"},
	{"tasks", "agents", "audit", "evaluation", "export"},
	{"inference", "advantage", "books", "health", "auth"},
	{"schemas"},
	{"events"},
	{"sandbox", "weights", "index"},
	{"storage", "redact"},
	{"retry", "slots", "wording", "examples"},
}

// peers are the imports within a layer.
var peers = map[string][]string{}

// exceptions are single packages with a rule of their own. A checker knows the
// log and the store alone.
var exceptions = map[string][]string{
	"audit": {"advantage", "events", "events/eventlog", "events/runfile", "events/topology", "books",
		"storage", "storage/parts"},
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
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
	for _, folder := range []string{"cmd", "cli", "services", "pipeline", "sandbox", "demo", "bench",
		"storage", "events", "schemas"} {
		if !checked[folder] {
			t.Errorf("no package below %s was looked at", folder)
		}
	}
}

// helpers are the packages that tests of every layer may import. Only tests and
// other helpers import them.
var helpers = []string{
	"cli/clitest", "events/natstest", "index/segmenttest", "inference/probe/probetest", "inference/tokenstest",
	"pipeline/decidertest", "sandbox/sandboxtest", "services/servicetest",
	"storage/storagetest", "tests/collector", "tests/composefile", "tests/nightly", "tests/plane",
	"tests/program", "tests/smalldisk",
}

// wholes are folders with tests of the whole program.
var wholes = []string{"tests", "examples", "deploy"}

// testExceptions are single packages whose tests import upward, or another service.
var testExceptions = map[string][]string{
	"audit": {"services/trainerfeeder"}, // it checks the batches that the feeder makes
	// It answers the next turn's message as the generator reads it, and plays the built-in
	// policy's turns on a pack's task.
	"services/toolrunner": {"services/generator", "demo/packs", "demo/policy"},
	"tasks":               {"demo/packs"}, // it loads the pack that a user begins with
}

func TestTestsImportDown(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if to := strings.TrimPrefix(imported, module); slices.Contains(helpers, to) &&
				!slices.Contains(helpers, from) && top(from) != "tests" {
				t.Errorf("%s, which is no test, imports %s", from, to)
			}
		}
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			to, ours := strings.CutPrefix(imported, module)
			switch {
			case !ours:
			case slices.Contains(testExceptions[from], to):
				used[from+" "+to] = true
			case !testMay(from, to):
				t.Errorf("a test of %s imports %s", from, to)
			}
			used[to] = true
		}
	}
	for from, list := range testExceptions {
		for _, to := range list {
			if !used[from+" "+to] {
				t.Errorf("no test of %s imports %s any more", from, to)
			}
		}
	}
	for _, helper := range helpers {
		if !used[helper] {
			t.Errorf("no test imports %s", helper)
		}
	}
}

// testMay says whether the tests of a package may import another, both
// named from the module's root.
func testMay(from, to string) bool {
	return allowed(from, to) || slices.Contains(helpers, to) || slices.Contains(wholes, top(from))
}

// TestTheRuleForTestsRefuses shows that it can be broken, too.
func TestTheRuleForTestsRefuses(t *testing.T) {
	for _, pair := range [][2]string{
		{"services/scorer", "services/generator"}, {"storage", "events"}, {"events", "services/scorer"},
		{"books", "cli/plane"}, {"gc", "cli/gc"}, {"pipeline", "tests/e2e"},
	} {
		if testMay(pair[0], pair[1]) {
			t.Errorf("a test of %s may import %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"export", "cli/clitest"}, {"events/eventlog", "services/servicetest"},
		{"deploy", "auth"}, {"cli/gc", "gc"}} {
		if !testMay(pair[0], pair[1]) {
			t.Errorf("a test of %s may not import %s", pair[0], pair[1])
		}
	}
}

// libraries are the folders that another program can use without the plane, and
// basis what they stand on.
var libraries, basis = []string{"sandbox", "weights", "index"}, []string{"storage", "retry", "redact", "wording"}

func TestLibrariesStandAlone(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module)
			if ours && !standsAlone(from, to) {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
}

// standsAlone says whether an import leaves a package free of the plane: what a library stands on
// imports nothing else of ours, either.
func standsAlone(from, to string) bool {
	switch {
	case slices.Contains(libraries, top(from)):
		return slices.Contains(libraries, top(to)) || slices.Contains(basis, top(to))
	case slices.Contains(basis, top(from)):
		return slices.Contains(basis, top(to))
	}
	return true
}

// TestProductHasNoBenchmarks keeps benchmarks and simulators out of the programs that
// users install, and rondo-bench out of releases and images. What rondo-bench imports
// shows that they are found.
func TestProductHasNoBenchmarks(t *testing.T) {
	imports := map[string][]string{}
	for _, p := range packages(t) {
		imports[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
	}
	for program, want := range map[string]bool{"cmd/rondo": false, "cmd/rondo-sandbox-init": false,
		"cmd/rondo-bench": true} {
		seen := map[string]bool{}
		var follow func(from string)
		follow = func(from string) {
			if seen[from] {
				return
			}
			seen[from] = true
			for _, imported := range imports[from] {
				if to, ours := strings.CutPrefix(imported, module); ours {
					follow(to)
				}
			}
		}
		follow(program)
		var benchmarks []string
		for path := range seen {
			if top(path) == "bench" || path == "cli/bench" {
				benchmarks = append(benchmarks, path)
			}
		}
		if slices.Sort(benchmarks); len(benchmarks) > 0 != want || len(imports[program]) == 0 {
			t.Errorf("%s imports %d packages directly, and of benchmarks %q", program,
				len(imports[program]), benchmarks)
		}
	}
	for _, made := range []string{"../../Dockerfile", "../../.goreleaser.yaml"} {
		text, err := os.ReadFile(made)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("./cmd/rondo-sandbox-init")) || bytes.Contains(text, []byte("rondo-bench")) ||
			bytes.Contains(text, []byte("./cmd/...")) {
			t.Errorf("%s builds rondo-bench, or not by name", made)
		}
	}
}

// TestTheRuleRefuses shows that the rule above is one that can be broken.
func TestTheRuleRefuses(t *testing.T) {
	for _, pair := range [][2]string{
		{"services/scorer", "services/generator"},
		{"services/scorer", "cmd/rondo"},
		{"services/dashboard", "demo/policy"},
		{"sandbox", "services/scorer"},
		{"storage", "events"},
		{"pipeline", "demo/policy"},
		{"sandbox/tools", "events/runfile"},
		{"services/scorer", "cli/run"},
		{"audit", "services/scorer"},
		{"newfolder", "events"},
		{"export", "gc"},
		{"evaluation", "replay"},
		{"services/scorer", "replay"},
		{"replay", "cli/opening"},
	} {
		if allowed(pair[0], pair[1]) {
			t.Errorf("%s may import %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"weights/fetch", "events"}, {"sandbox", "pipeline"},
		{"index/merkle", "inference"}, {"redact", "schemas"}, {"storage/s3", "slots"}} {
		if standsAlone(pair[0], pair[1]) {
			t.Errorf("%s may import %s", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{
		{"cmd/rondo", "services/scorer"}, {"services/scorer", "sandbox/verifier"}, {"services/scorer", "pipeline"},
		{"services/scorer", "services/scorer/internal/x"}, {"tasks", "sandbox"}, {"cli/audit", "audit"},
		{"tests/e2e", "sandbox"},
	} {
		if !allowed(pair[0], pair[1]) {
			t.Errorf("%s may not import %s", pair[0], pair[1])
		}
	}
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	list, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// listed asks the go command once.
var listed = sync.OnceValues(func() (list []goPackage, err error) {
	const fields = "ImportPath,Imports,TestImports,XTestImports"
	out, err := exec.Command("go", "list", "-json="+fields, module+"...").Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("go list: %w\n%s", err, failed.Stderr)
		}
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
})

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
