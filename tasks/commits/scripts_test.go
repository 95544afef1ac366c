package commits

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestSplitScripts(t *testing.T) {
	for name, c := range map[string]struct{ files, reason, runnable, code string }{
		"beside the code": {"src/a.ts src/a.test.ts README.md", "", "src/a.test.ts", "src/a.ts README.md"},
		"in a folder": {"lib/a.js test/a.js test/fixtures/b.js test/support/env.js package.json", "",
			"test/a.js", "lib/a.js package.json"},
		"jest's": {"index.js __tests__/a.js __tests__/__snapshots__/a.js.snap jest.config.js", "",
			"__tests__/a.js", "index.js"},
		"by their names": {"a.mjs a-test.mjs b_test.cjs test-c.js test.js", "",
			"a-test.mjs b_test.cjs test-c.js test.js", "a.mjs"},
		"types of tests":           {"a.ts test/a.d.ts", NoTests, "", ""},
		"settings alone":           {"a.js .mocharc.yml", NoTests, "", ""},
		"no code":                  {"a.test.js package.json", NoCode, "", ""},
		"code of another language": {"a.test.js a.rs", NoCode, "", ""},
		"tests of Go beside":       {"a.js a.test.js a_test.go a.go", "", "a_test.go", "a.js a.test.js a.go"},
		"tests of Python beside":   {"a.js a.test.js test_a.py a.py", "", "test_a.py", "a.js a.test.js a.py"},
		"Go without tests":         {"a.js a.test.js a.go", NoTests, "", ""},
		"no scripts":               {"a.rs tests/a.rs", OtherTongue, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []change
			for _, file := range strings.Fields(c.files) {
				changes = append(changes, change{name: file, before: "100644", after: "100644", added: 1})
			}
			p, reason := split(changes)
			if reason != c.reason ||
				reason == "" && (strings.Join(p.runnable, " ") != c.runnable || strings.Join(p.code, " ") != c.code) {
				t.Errorf("%q: tests %q, code %q", reason, p.runnable, p.code)
			}
			if reason == "" && p.dependencies != strings.Contains(c.files, "package.json") {
				t.Errorf("dependencies: %v", p.dependencies)
			}
		})
	}
}

// TestFindRunner: the program that runs tests is found behind what starts it, with the flags that
// say how a test ends. Others are not understood.
func TestFindRunner(t *testing.T) {
	const mocha, jest = "node_modules/mocha/bin/_mocha --no-config --no-package --reporter /verifier/node.cjs",
		"node_modules/jest/bin/jest.js --ci --coverage=false --cacheDirectory=/tmp/jest " +
			"--reporters=default --reporters=/verifier/node.cjs"
	const node = "--test --test-reporter=spec --test-reporter-destination=stdout --test-reporter=/verifier/node-test.mjs --test-reporter-destination=stderr"
	const vitest = "node_modules/vitest/vitest.mjs run --pool=forks --coverage.enabled=false --reporter=default --reporter=/verifier/node-vitest.mjs"
	for name, c := range map[string]struct {
		// without "node --require /verifier/node.cjs"; "" for none, "?" and a word
		// for what is not understood
		test, want string
	}{
		"node": {"node --test", node},
		"node with flags": {"node --import tsx --test --experimental-test-coverage --test-reporter spec 'test/**/*.ts'",
			"--import=tsx " + node},
		"tsx":                   {"tsx --test test/*.ts", "--import=tsx " + node},
		"node's other programs": {"node test/index.js", ""},
		"only some tests":       {"node --test --test-name-pattern=x", "?--test-name-pattern=x"},
		"mocha behind others": {"eslint . && c8 --99 --check-coverage mocha --require ./test/bootstrap/index.js test/*.js",
			mocha + " --require=./test/bootstrap/index.js"},
		"mocha with values": {"mocha --require test/support/env --reporter spec --check-leaks -t 500 test/ test/acceptance/",
			mocha + " --require=test/support/env --check-leaks -t 500"},
		"mocha and flags of node's": {"cross-env NODE_ENV=test NODE_OPTIONS='--enable-source-maps --no-warnings' mocha --loader=ts-node/esm",
			"--enable-source-maps --no-warnings --loader=ts-node/esm " + mocha},
		"only some of mocha": {"mocha --grep x", "?--grep"},
		"by its file": {"node --expose-gc ./node_modules/.bin/../../node_modules/mocha/bin/mocha.js -u tdd",
			"--expose-gc " + mocha + " -u tdd"},
		"jest": {"NODE_OPTIONS=--experimental-vm-modules npx jest --coverage --runInBand --maxWorkers 2",
			"--experimental-vm-modules " + jest + " --runTestsByPath --runInBand"},
		"jest of some projects": {"jest --selectProjects a", "?--selectProjects"},
		"vitest": {"vitest --run --coverage --environment=jsdom --pool threads",
			vitest + " --environment=jsdom"},
		"vitest of a file":         {"TZ=UTC vitest run -c vitest.unit.ts src", vitest + " -c vitest.unit.ts"},
		"vitest in a browser":      {"vitest --browser=chrome", "?--browser=chrome"},
		"vitest's types":           {"vitest typecheck", "?vitest typecheck"},
		"by other scripts":         {"run-s lint unit", mocha + " --exit"},
		"by itself":                {"nyc --exclude test npm test", ""},
		"another program":          {"ava", ""},
		"a shell's own":            {"mocha $(ls test)", ""},
		"a value that is not read": {"mocha --exit=false", "?--exit=false"},
		"a quote that is cut":      {"mocha 'test/{a|b}.js' -r ./setup.js", "?mocha 'test/{a"},
		"a variable that leads":    {"NODE_PATH=lib mocha", "?NODE_PATH=lib"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := findRunner(map[string]string{"test": c.test, "lint": "eslint test", "unit": "mocha --exit"},
				"test", map[string]bool{})
			got := ""
			switch {
			case err != nil:
				got = "?" + err.Error()
			case s.program != "":
				got = s.command(nil)
				_, got, _ = strings.Cut(got, "node --require /verifier/node.cjs ")
			}
			if got != c.want {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
}

// TestMochaSettings: settings of mocha become flags, those that cannot be read
// without running them are named.
func TestMochaSettings(t *testing.T) {
	for name, c := range map[string]struct {
		m     manifest
		files map[string]string
		want  string
	}{
		"YAML": {manifest{},
			map[string]string{".mocharc.yml": "require:\n  - a\n  - ./b.js\nspec: test/**/*.js\ntimeout: 5s\nbail: true\nrecursive: true\ncheck-leaks: true\n"},
			"--check-leaks --require=a --require=./b.js --timeout=5s"},
		"JSON": {manifest{},
			map[string]string{".mocharc.json": "{\n// why\n\"ui\": \"tdd\", \"timeout\": false, \"diff\": false}"},
			"--timeout=0 --ui=tdd"},
		"package.json": {manifest{Mocha: map[string]any{"node-option": []any{"import=tsx"}, "exit": true}},
			nil, "--import=tsx|--exit"},
		"both": {manifest{Mocha: map[string]any{"exit": true}}, map[string]string{".mocharc.yaml": "ui: bdd\n"},
			"?.mocharc.yaml beside those of package.json"},
		"patterns": {manifest{},
			map[string]string{".mocharc.jsonc": `{"spec": "src/*.js", /* or */ "require": "./hook.js", "ignore": "lib/*/b"} // done`},
			"--require=./hook.js"},
		"a program": {manifest{},
			map[string]string{".mocharc.cjs": "module.exports = { require: ['tsx'], ui: 'tdd' };"}, "reads tsx"},
		"two of them": {manifest{Mocha: map[string]any{"exit": true}}, map[string]string{".mocharc.js": ""},
			"?.mocharc.js beside those of package.json"},
		"a module":    {manifest{}, map[string]string{".mocharc.mjs": ""}, "?.mocharc.mjs"},
		"old options": {manifest{}, map[string]string{"test/mocha.opts": ""}, "?test/mocha.opts"},
		"some tests":  {manifest{Mocha: map[string]any{"grep": "x"}}, nil, "?--grep=x"},
		"extends":     {manifest{Mocha: map[string]any{"extends": "./x.json"}}, nil, "?--extends=./x.json"},
		"a shell's":   {manifest{Mocha: map[string]any{"ui": "$(x)"}}, nil, "?--ui=$(x)"},
		"no YAML":     {manifest{}, map[string]string{".mocharc.yml": "a: ["}, "?.mocharc.yml"},
	} {
		t.Run(name, func(t *testing.T) {
			files, names := map[string][]byte{}, map[string]bool{}
			for name, text := range c.files {
				files[name], names[name] = []byte(text), true
			}
			s := settings{program: "mocha"}
			err := s.addMocha(c.m, files, names)
			got := strings.TrimPrefix(strings.Join(s.node, " ")+"|"+strings.Join(s.own, " "), "|")
			if s.reads {
				got = "reads " + strings.Join(s.loads, " ")
			}
			if err != nil {
				got = "?" + err.Error()
			}
			if got != c.want && !(c.want == "?.mocharc.yml" && strings.HasPrefix(got, c.want)) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestTitlesOf: a test is named by a patch that changes a line of it.
func TestTitlesOf(t *testing.T) {
	const patch = "--- a/a.test.js\n+++ b/a.test.js\n@@ -9,3 +9,9 @@ test('in a header', () => {\n   x();\n+  y();\n });\n \n test('before', () => {\n   z();\n });\n" +
		"+\n+describe(\"suite\", () => {\n+  it.only(`new`, async () => {\n+    w();\n+  });\n+});\n@@ -20,1 +30,1 @@ test('untouched', () => {\n   it('left', () => {\n-    gone();\n"
	got := slices.Sorted(maps.Keys(titlesOf(patch)))
	if want := []string{"in a header", "left", "new"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if signed := namedIn("@@ -1 +1 @@\n+test('maps a > b', f)\n", "node"); !signed("suite > maps a > b") ||
		signed("b") {
		t.Error("a title that has the sign between titles in it is not found, or a part of it is")
	}
	named := namedIn(patch, "node")
	for test, want := range map[string]bool{"new": true, "suite > new": true, "suite > old": false, "before": false,
		"new > old": false, "suite > a > b": false} {
		if named(test) != want {
			t.Errorf("%s: %v", test, !want)
		}
	}
}

// TestDeclaredScripts: an instruction tells of the functions and classes that a fix
// declares and its tests name.
func TestDeclaredScripts(t *testing.T) {
	patch, want := "--- a/a.js\n+++ b/a.js\n", "\n\nTests use these declarations:\n"
	for _, line := range []struct{ code, told string }{
		{"export async function load(url, { retries = 3 } = {}) { return secret; }",
			"export async function load(url, { retries = 3 } = {})"},
		{"export const sum = (a, b) => a + b;", "export const sum = (a, b)"},
		{"export const LIMIT = 7;", "export const LIMIT"},
		{"exports.pad = function (s) {", "exports.pad = function (s)"},
		{"module.exports.VERSION = 'secret';", "module.exports.VERSION"},
		{"Route.prototype.use = function use(fn) {", "Route.prototype.use = function use(fn)"},
		{"export default class Shape extends Base {", "export default class Shape"},
		{"  static async area(shape) {", "static async area(shape)"},
		{"export interface Options {", "export interface Options"},
		{"  if (area) {", ""}, {"function unused() {", ""}, {"  return sum(1, 2);", ""},
	} {
		patch += "+" + line.code + "\n"
		if line.told != "" {
			want += "\n    " + line.told
		}
	}
	if got := declared(patch, "+load sum LIMIT pad VERSION use Shape area Options if\n", "node"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestFilesOfSettings: files of the repository that settings name are found,
// in JSON and in programs.
func TestFilesOfSettings(t *testing.T) {
	names := map[string]bool{"scripts/setup.js": true, "lib/env/index.cjs": true, "a.js": true, "b.js": true}
	const text = "module.exports = {\n  setupFiles: ['<rootDir>/scripts/setup'], testEnvironment: \"./lib/env\", preset: `ts-jest`, transform: {'^.+$': './a.js'} }\n// b.js"
	if got, want := filesIn([]byte(text), names), []string{"scripts/setup.js", "lib/env/index.cjs",
		"a.js"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	const vite = "import x from './scripts/setup';\nexport default { resolve: { alias: { '@': './lib/env' } }, build: { lib: { entry: 'b.js' } }, test: {\n  setupFiles: [\n    './a.js',\n  ] } }"
	if got := vitestLoads.FindAllString(vite, -1); len(got) != 2 || !strings.Contains(got[0], "./scripts/setup") ||
		!strings.Contains(got[1], "./a.js") {
		t.Errorf("of Vitest's settings %q", got)
	}
}

// TestLacksScript: a module that is not there is a package, or a file that a build makes.
func TestLacksScript(t *testing.T) {
	for log, want := range map[string]string{
		"Error: Cannot find module 'left-pad'\n":                                                Lacks,
		"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'chai' imported from /testbed/a.mjs": Lacks,
		"Error: Cannot find module '../dist/index.js'":                                          NeedsBuild,
		`Error: Failed to resolve import "../dist/a.js" from "a.test.ts". Does the file exist?`: NeedsBuild,
		"Error: Failed to load url left-pad (resolved id: left-pad) in /testbed/a.ts":           Lacks,
		"Cannot find module '/testbed/build/a.js' imported from":                                NeedsBuild,
		"AssertionError": FailsFixed,
	} {
		got, err := (&importer{}).failsFixed(parts{}, "node", true, log, moduleSet{scripts: "node_modules/canvas"}, nil)
		if err != nil || got.Reason != want ||
			want == FailsFixed && !strings.Contains(got.Detail, "node_modules/canvas") {
			t.Errorf("%s: %+v, %v", log, got, err)
		}
	}
}
