package commits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/tasks/swebench"
)

// Reasons of a commit in JavaScript or TypeScript for how its tests are run.
const (
	NoPackage   = "no package.json at the top"
	NoRunner    = "no test program that is known: node --test, mocha, jest or vitest"
	OddSettings = "settings of the test program that are not understood"
	NoNode      = "this machine has no node"
	NeedsBuild  = "needs a build"
	TypeScript  = "TypeScript that its test program does not take as it is"
)

// Names of JavaScript's and TypeScript's files.
var (
	scriptEndings = []string{".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"}
	typeEndings   = []string{".ts", ".mts", ".cts", ".tsx"}
	noTests       = regexp.MustCompile(`(?:^|/)(?:fixtures?|__fixtures__|mocks?|__mocks__|__snapshots__|helpers?|support|bootstrap|utils?|data|types|node_modules)/|\.d\.[cm]?ts$|` +
		`(?:^|/)(?:\.mocharc|jest\.|vitest\.|vite\.config|babel\.config|\.babelrc|\.swcrc|tsconfig|setup\.|helpers?\.|utils?\.|mocha\.opts)[^/]*$`)
)

func isScript(name string) bool { return slices.Contains(scriptEndings, path.Ext(name)) }

// splitScripts is split of a commit without Go and Python.
func splitScripts(changes []change) (p parts, reason string) {
	p.parser, reason = "node", NoCode
	for _, c := range changes {
		switch {
		case swebench.ScriptTest(c.name):
			p.tests = append(p.tests, c.name)
			if isScript(c.name) && !noTests.MatchString(c.name) && !c.isDeletion() {
				p.runnable = append(p.runnable, c.name)
			}
			continue
		case isScript(c.name):
			reason = ""
		}
		p.code = append(p.code, c.name)
		p.dependencies = p.dependencies || slices.Contains(npmFiles, c.name)
	}
	if len(p.runnable) == 0 {
		return p, NoTests
	}
	return p, reason
}

// npmFiles say what packages a repository needs of npm.
var npmFiles = []string{"package.json", "package-lock.json", "npm-shrinkwrap.json"}

// manifest is what is read of a package.json.
type manifest struct {
	Scripts              map[string]string `json:"scripts"`
	Mocha                map[string]any    `json:"mocha"`
	Jest                 json.RawMessage   `json:"jest"`
	Dependencies         map[string]any    `json:"dependencies"`
	PeerDependencies     map[string]any    `json:"peerDependencies"`
	OptionalDependencies map[string]any    `json:"optionalDependencies"`
	Workspaces           any               `json:"workspaces"`
}

// Bounds of the settings of test programs.
const (
	maxSettings = 1 << 20 // bytes of all files
	maxScripts  = 20      // that lead to each other
)

// settings of a commit's test program.
type settings struct {
	program        string   // node, mocha, jest or vitest
	env, node, own []string // variables, flags of node's, and the program's
	loads          []string // modules and files of the repository that run before the tests
	reads          bool     // the program reads its settings itself, as they are a program
}

// odd says which setting is not understood.
func odd(what string) error { return errors.New(what) }

// script is how the tests of a commit in JavaScript run, with the files
// beside them that decide how.
type script struct {
	program, command string
	protected        []string
	manifest         manifest
}

// script reads it of package.json and the test program's settings. The
// outcome says why there is none.
func (im *maker) script(ctx context.Context, c commit, names map[string]bool,
	p parts) (found script, drop Outcome, err error) {
	there, strips := im.node()
	switch {
	case !there:
		return found, dropped(NoNode), nil
	case !names["package.json"]:
		return found, dropped(NoPackage), nil
	}
	wanted := []string{"package.json"}
	for _, list := range configFiles {
		for _, name := range list {
			if names[name] {
				wanted = append(wanted, name)
			}
		}
	}
	files, err := im.objects.Files(ctx, c.id, wanted, maxSettings)
	if errors.Is(err, swebench.ErrFileSize) {
		return found, dropped(OddSettings, "more than ", maxSettings, " bytes"), nil
	}
	if err != nil {
		return found, Outcome{}, err
	}
	m := &found.manifest
	if err := json.Unmarshal(files["package.json"], m); err != nil {
		return found, dropped(OddSettings, "package.json: ", err), nil
	}
	s, err := findRunner(m.Scripts, "test", map[string]bool{})
	if err == nil && s.program == "mocha" {
		err = s.addMocha(*m, files, names)
	}
	if err != nil {
		return found, dropped(OddSettings, err), nil
	}
	if s.program == "" {
		return found, dropped(NoRunner, m.Scripts["test"]), nil
	}
	for _, name := range s.loads {
		if file, there := fileOf(names, name); there {
			if s.program == "vitest" && !slices.Contains(configFiles["vitest"], file) {
				return found, dropped(OddSettings, name), nil // nobody reads which files it names
			}
			found.protected = append(found.protected, file)
		} else if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") {
			return found, dropped(OddSettings, name, " is not in the repository"), nil
		}
	}
	if s.program == "jest" {
		found.protected = append(found.protected, filesIn(m.Jest, names)...)
	}
	for _, name := range configFiles[s.program] {
		text := files[name]
		// its settings name the project's own files, too: as what is built, or by shorter names
		if s.program == "vitest" {
			text = bytes.Join(vitestLoads.FindAll(text, -1), []byte("\n"))
		}
		found.protected = append(found.protected, filesIn(text, names)...)
	}
	if (s.program == "jest" || s.program == "vitest" || len(s.loads) > 0) && slices.Contains(p.code, "package.json") {
		return found, dropped(OddSettings, "the fix changes package.json, which ", s.program,
			" and what it loads take settings of"), nil
	}
	types := slices.ContainsFunc(p.runnable, func(name string) bool {
		return slices.Contains(typeEndings,
			path.Ext(name))
	})
	if types && !s.takesTypes(strips) {
		return found, dropped(TypeScript), nil
	}
	found.program, found.command = s.program, s.command(p.runnable)
	return found, Outcome{}, nil
}

// fileOf finds the file of the repository that a module's name stands for: without its
// ending, or a folder's index.
func fileOf(names map[string]bool, name string) (string, bool) {
	name = path.Clean(name)
	for _, ending := range append([]string{""}, scriptEndings...) {
		for _, file := range []string{name + ending, name + "/index" + ending} {
			if names[file] {
				return file, true
			}
		}
	}
	return "", false
}

// vitestLoads is what of Vitest's settings names modules that run beside the tests,
// and what they are made of.
var vitestLoads = regexp.MustCompile(`(?:setupFiles|globalSetup|snapshotSerializers|environment|runner|diff|extends|projects|plugins|reporters)\s*:\s*(?:\[[^\]]*\]|[^,\n]*)` +
	"|\\b(?:from|import|require)\\b\\s*\\(?\\s*['\"`][^'\"`\\n]+['\"`]")

// configFiles are settings in files of their own, by the programs whose they are.
var configFiles = map[string][]string{
	"mocha": slices.Concat(mochaFiles, mochaPrograms),
	"jest":  configsOf("jest.config"),
	"vitest": slices.Concat(configsOf("vitest.config"), configsOf("vite.config"), configsOf("vitest.workspace"),
		configsOf("vitest.projects")),
}

func configsOf(name string) (files []string) {
	for _, ending := range []string{".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".json"} {
		files = append(files, name+ending)
	}
	return files
}

// command is the command line.
func (s settings) command(runnable []string) string {
	const reporters = "/verifier/"
	words := slices.Concat(s.env, []string{"node", "--require", reporters + "node.cjs"}, s.node)
	switch s.program {
	case "node":
		words = append(words, "--test", "--test-reporter=spec", "--test-reporter-destination=stdout",
			"--test-reporter="+reporters+"node-test.mjs", "--test-reporter-destination=stderr")
	case "mocha":
		words = append(words, "node_modules/mocha/bin/_mocha")
		if !s.reads {
			words = append(words, "--no-config")
		}
		words = append(words, "--no-package", "--reporter", reporters+"node.cjs")
	case "jest":
		words = append(words, "node_modules/jest/bin/jest.js", "--ci", "--coverage=false", "--cacheDirectory=/tmp/jest",
			"--reporters=default", "--reporters="+reporters+"node.cjs")
		words = append(words, "--runTestsByPath")
	case "vitest":
		// a snapshot that is not there is a failure
		words = slices.Concat(s.env, []string{"CI=true"}, words[len(s.env):])
		words = append(words, "node_modules/vitest/vitest.mjs", "run", "--pool=forks", "--coverage.enabled=false",
			"--reporter=default", "--reporter="+reporters+"node-vitest.mjs")
	}
	return strings.Join(slices.Concat(words, s.own, runnable), " ")
}

// nodeOf asks this machine's node once: whether there is one, and whether it
// takes TypeScript by itself.
func nodeOf(ctx context.Context) func() (there, strips bool) {
	return sync.OnceValues(func() (bool, bool) {
		if sandbox.HasToolchain(ctx, "node") != nil {
			return false, false
		}
		command := exec.CommandContext(ctx, "node", "-p", "!!process.features.typescript")
		command.Dir = "/"
		out, err := command.Output()
		return true, err == nil && strings.TrimSpace(string(out)) == "true"
	})
}

// missingScript is what node, or Vite, prints where a module is not there.
var missingScript = regexp.MustCompile(`(?:Cannot find (?:module|package) '|Failed to resolve import "|Failed to load url )([^'" ]{1,300})`)

// lacksScript is the outcome of a commit whose tests do not find a module: a file that something
// makes first, or a package.
func lacksScript(name string) Outcome {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "file:") {
		return dropped(NeedsBuild, name)
	}
	return dropped(Lacks, name)
}

// titled is a line that begins a test, or a suite, with a title.
var titled = regexp.MustCompile(`^\s*(?:(it|test|specify)|describe|suite|context)(?:\.\w+)*\(\s*(?:'([^'\\]+)'|"([^"\\]+)"|` +
	"`([^`\\\\]+)`" + `)`)

// titlesOf are the titles of the tests in which a patch changes lines.
func titlesOf(patch string) map[string]bool {
	titles, around := map[string]bool{}, ""
	for line := range strings.Lines(patch) {
		header, hunk := strings.CutPrefix(line, "@@ ")
		if hunk {
			_, line, _ = strings.Cut(header, "@@")
			around = ""
		} else if strings.HasPrefix(line, "+++ ") || strings.HasPrefix(line, "--- ") ||
			!strings.ContainsAny(line[:1], "+- ") {
			continue
		}
		if m := titled.FindStringSubmatch(line[1:]); m != nil && (hunk || line[0] != '-') {
			if around = ""; m[1] != "" {
				around = m[2] + m[3] + m[4]
			}
		}
		if !hunk && line[0] != ' ' && strings.TrimSpace(line[1:]) != "" && around != "" {
			titles[around] = true
		}
	}
	return titles
}

// scriptDeclaration is a line of JavaScript or TypeScript that declares a name, but for
// what the name stands for.
var scriptDeclaration = regexp.MustCompile(
	`^\s*(?:export\s+(?:default\s+)?)?(?:async\s+)?function\s*\*?\s*([\w$]+)\s*\(.*?\)|` +
		`^\s*(?:export\s+)?(?:default\s+)?(?:abstract\s+)?(?:class|interface|type|enum)\s+([\w$]+)|` +
		`^\s*(?:export\s+)?(?:const|let|var)\s+([\w$]+)(?:\s*=\s*(?:async\s*)?(?:function\s*\*?\s*[\w$]*\s*)?\(.*?\)\s*(?:=>|\{))?|` +
		`^\s*(?:(?:module\.)?exports|[\w$]+(?:\.prototype)?)\.([\w$]+)\s*=(?:\s*(?:async\s*)?(?:function\s*\*?\s*[\w$]*\s*)?\(.*?\)\s*(?:=>|\{))?|` +
		`^\s+(?:(?:static|async|get|set)\s+)*\*?([\w$]+)\s*\([^()]*\)\s*\{$`)
