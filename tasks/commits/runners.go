package commits

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/yamltext"
)

// meaning is what becomes of a flag. Those with "value" take one.
type meaning int

const (
	flagUnknown meaning = iota
	flagKept
	flagValue
	flagLeft // it says nothing about how a test ends, or all tests of a file run without it
	flagLeftValue
	flagLoads // a module that runs before the tests
)

// nodeFlags are those of node.
var nodeFlags = flagTable(map[meaning]string{
	flagKept: "--expose-gc --enable-source-maps --no-warnings --no-deprecation --throw-deprecation --trace-warnings --trace-deprecation --preserve-symlinks --harmony --allow-natives-syntax " +
		"--experimental-vm-modules --experimental-strip-types --experimental-transform-types --experimental-test-module-mocks --experimental-json-modules --experimental-modules " +
		"--experimental-require-module --no-experimental-strip-types --test-force-exit",
	flagValue:     "--conditions -C --test-timeout --test-concurrency --max-old-space-size --stack-size --unhandled-rejections --disable-warning --experimental-specifier-resolution",
	flagLeft:      "--test --experimental-test-coverage",
	flagLeftValue: "--test-reporter --test-reporter-destination --test-coverage-include --test-coverage-exclude --test-coverage-lines --test-coverage-functions --test-coverage-branches",
	flagLoads:     "--import --require -r --loader --experimental-loader",
})

var mochaFlags = flagTable(map[meaning]string{
	flagKept: "--check-leaks --exit --async-only -A --forbid-only --forbid-pending --full-trace --no-timeouts --delay",
	flagLeft: "--recursive --sort -S --bail -b --color --colors -c --no-color --no-colors --diff --no-diff --inline-diffs --parallel -p --no-parallel --growl --no-exit --no-bail " +
		"--allow-uncaught --enable-source-maps --no-config --no-package --no-opts",
	flagValue:     "--ui -u --timeout --timeouts -t --slow -s --retries --global --globals --extension",
	flagLeftValue: "--reporter -R --reporter-option --reporter-options -O --spec --ignore --exclude --jobs -j",
	flagLoads:     "--require -r --file",
})

var jestFlags = flagTable(map[meaning]string{
	flagKept: "--runInBand -i --forceExit --silent --no-cache --detectOpenHandles --injectGlobals",
	flagLeft: "--coverage --collectCoverage --no-coverage --verbose --passWithNoTests --ci --colors --no-colors --color --no-color --bail -b --logHeapUsage --useStderr --watchAll --no-watchman " +
		"--runTestsByPath",
	flagValue:     "--testTimeout --env --rootDir",
	flagLeftValue: "--maxWorkers -w --coverageReporters --coverageDirectory --coverageThreshold --collectCoverageFrom --reporters --testPathPattern --testPathPatterns --testMatch",
	flagLoads:     "--config -c --setupFiles --setupFilesAfterEnv",
})

var vitestFlags = flagTable(map[meaning]string{
	flagKept: "--globals --isolate --no-isolate --no-file-parallelism --dangerouslyIgnoreUnhandledErrors",
	flagLeft: "--run --coverage --no-coverage --coverage.enabled --silent --color --no-color --ui --open --watch -w --no-watch --hideSkippedTests --allowOnly --passWithNoTests --threads --no-threads " +
		"--single-thread --singleThread --disableConsoleIntercept --no-cache --clearScreen --logHeapUsage --expandSnapshotDiff",
	flagValue: "--environment --testTimeout --test-timeout --hookTimeout --hook-timeout --teardownTimeout --retry --mode",
	flagLeftValue: "--reporter --outputFile --pool --maxWorkers --minWorkers --max-workers --min-workers --maxConcurrency --bail --exclude --slowTestThreshold " +
		"--coverage.provider --coverage.reporter --coverage.include --coverage.exclude",
	flagLoads: "--config -c",
})

func flagTable(lists map[meaning]string) map[string]meaning {
	table := map[string]meaning{}
	for m, list := range lists {
		for _, name := range strings.Fields(list) {
			table[name] = m
		}
	}
	return table
}

// plainValue stands in a command as it is.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9_.,:@/+=-]*$`)

// flags sorts the words behind a program into flags of its own, those of node where the
// program takes them, and modules to load; words that are no flags are paths of tests, which
// the commit's own stand for.
func (s *settings) flags(words []string, table map[string]meaning, own *[]string) error {
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		name, value, joined := strings.Cut(word, "=")
		if !strings.HasPrefix(name, "-") || name == "--" {
			continue
		}
		m, into := table[name], own
		if m == flagUnknown && s.program == "mocha" {
			m, into = nodeFlags[name], &s.node
		}
		takes := m == flagValue || m == flagLeftValue || m == flagLoads
		if takes && !joined {
			if len(words) == 0 {
				return odd(word)
			}
			value, words = words[0], words[1:]
		}
		if m == flagUnknown || m == flagKept && joined ||
			m != flagLeft && m != flagLeftValue && !plainValue.MatchString(value) {
			return odd(word)
		}
		switch {
		case m == flagLeft || m == flagLeftValue:
			continue
		case m == flagLoads:
			s.loads = append(s.loads, strings.Split(value, ",")...)
		}
		if *into = append(*into, name); takes && strings.HasPrefix(name, "--") {
			(*into)[len(*into)-1] += "=" + value
		} else if takes {
			*into = append(*into, value)
		}
	}
	return nil
}

var (
	variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)=([A-Za-z0-9_.,:@/+=-]*)$`)
	ends     = regexp.MustCompile(`&&|\|\||[;&|\n]`)
)

// findRunner finds the test program that a script of package.json starts, by
// itself or by other scripts.
func findRunner(scripts map[string]string, name string, seen map[string]bool) (settings, error) {
	if seen[name] || len(seen) > maxScripts {
		return settings{}, nil
	}
	seen[name] = true
	for _, line := range ends.Split(scripts[name], -1) {
		if strings.ContainsAny(line, "$`()<>\\") {
			continue
		}
		s, err := runnerOf(scripts, line, seen)
		if err != nil || s.program != "" {
			return s, err
		}
	}
	return settings{}, nil
}

// runnerOf finds it in one command, behind variables and programs that start it
// and count what it covers.
func runnerOf(scripts map[string]string, line string, seen map[string]bool) (s settings, err error) {
	words, whole := splitWords(line)
	if !whole {
		return s, odd(line)
	}
	for n, word := range words {
		rest := words[n+1:]
		if m := variable.FindStringSubmatch(word); m != nil && !strings.HasPrefix(word, "-") {
			switch {
			case m[1] == "NODE_OPTIONS":
				err = s.flags(strings.Split(m[2], ","), nodeFlags, &s.node)
			case slices.Contains([]string{"PATH", "HOME", "NODE_PATH", "PYTHONPATH"}, m[1]) ||
				strings.HasPrefix(m[1], "LD_"):
				err = odd(word)
			default:
				s.env = append(s.env, word)
			}
			if err != nil {
				return s, err
			}
			continue
		}
		switch base := strings.TrimSuffix(path.Base(word), path.Ext(word)); {
		case strings.HasPrefix(word, "-"), strings.Contains(word, "/") && !strings.Contains(word, "node_modules/"):
		case base == "node" || base == "tsx":
			return s.ofNode(base, rest)
		case base == "mocha" || base == "_mocha" || base == "ts-mocha":
			if s.program = "mocha"; base == "ts-mocha" {
				s.node, s.loads = append(s.node, "--require=ts-node/register"), append(s.loads, "ts-node/register")
			}
			return s, s.flags(rest, mochaFlags, &s.own)
		case base == "jest":
			s.program = "jest"
			return s, s.flags(rest, jestFlags, &s.own)
		case base == "vitest":
			return s.ofVitest(rest)
		case slices.Contains([]string{"npm", "yarn", "pnpm", "run-s", "run-p", "npm-run-all"}, base):
			return s.ofScripts(scripts, rest, seen)
		}
	}
	return settings{}, nil
}

// ofVitest is Vitest behind the word that says what it does.
func (s settings) ofVitest(words []string) (settings, error) {
	s.program = "vitest"
	if len(words) > 0 && slices.Contains([]string{"bench", "list", "init", "related", "typecheck"}, words[0]) {
		return s, odd("vitest " + words[0])
	}
	return s, s.flags(words, vitestFlags, &s.own)
}

// splitWords are the words of a command, and whether each quote in it is closed. A quoted word that
// has spaces is a pattern, or the value of NODE_OPTIONS: its spaces become commas.
func splitWords(line string) (words []string, whole bool) {
	var word strings.Builder
	quote := rune(0)
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0 && r == ' ':
			word.WriteRune(',')
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && (r == ' ' || r == '\t'):
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	return words, quote == 0
}

// ofNode is the program that node runs: its own test runner, or one that is named by its file.
func (s settings) ofNode(program string, words []string) (settings, error) {
	at := slices.IndexFunc(words, func(word string) bool {
		return strings.Contains(word, "node_modules/mocha/") || strings.Contains(word, "node_modules/jest/")
	})
	switch {
	case at >= 0:
		table := mochaFlags
		if s.program = "mocha"; strings.Contains(words[at], "jest") {
			s.program, table = "jest", jestFlags
		}
		if err := s.flags(words[:at], nodeFlags, &s.node); err != nil {
			return s, err
		}
		return s, s.flags(words[at+1:], table, &s.own)
	case slices.Contains(words, "--test"):
		if s.program = "node"; program == "tsx" {
			s.node, s.loads = append(s.node, "--import=tsx"), append(s.loads, "tsx")
		}
		return s, s.flags(words, nodeFlags, &s.node)
	}
	return settings{}, nil
}

// ofScripts follows a command that starts other scripts of package.json.
func (s settings) ofScripts(scripts map[string]string, words []string, seen map[string]bool) (settings, error) {
	for n, word := range words {
		if word == "t" || word == "tst" {
			word = "test"
		}
		if _, there := scripts[word]; !there {
			continue
		}
		found, err := findRunner(scripts, word, seen)
		if err != nil || found.program == "" {
			if err != nil {
				return found, err
			}
			continue
		}
		if more := slices.Index(words[n:], "--"); more >= 0 {
			table := map[string]map[string]meaning{"node": nodeFlags, "mocha": mochaFlags, "jest": jestFlags,
				"vitest": vitestFlags}[found.program]
			into := &found.own
			if found.program == "node" {
				into = &found.node
			}
			err = found.flags(words[n+more+1:], table, into)
		}
		found.env = append(slices.Clone(s.env), found.env...)
		found.node = append(slices.Clone(s.node), found.node...)
		return found, err
	}
	return settings{}, nil
}

var (
	// mochaFiles are Mocha's settings that are read, in the order in which the first counts.
	mochaFiles = []string{".mocharc.yaml", ".mocharc.yml", ".mocharc.jsonc", ".mocharc.json"}
	// mochaPrograms are those that only Mocha reads, as nothing of a repository runs here.
	mochaPrograms = []string{".mocharc.cjs", ".mocharc.js"} // in the order in which Mocha looks for them
)

// addMocha adds what Mocha's own settings say: of a file, or else of package.json.
func (s *settings) addMocha(m manifest, files map[string][]byte, names map[string]bool) error {
	for _, name := range []string{".mocharc.mjs", "test/mocha.opts"} {
		if names[name] {
			return odd(name)
		}
	}
	config := m.Mocha
	for _, name := range mochaPrograms {
		data, there := files[name]
		if !there {
			continue
		}
		if config != nil {
			return odd(name + " beside those of package.json")
		}
		s.reads = true
		for _, text := range textsIn(data) {
			if typeLoaders.MatchString(text) {
				s.loads = append(s.loads, text)
			}
		}
		return nil // it is the first that counts
	}
	for _, name := range mochaFiles {
		data, there := files[name]
		if !there {
			continue
		}
		if config != nil {
			return odd(name + " beside those of package.json")
		}
		var err error
		if strings.HasPrefix(path.Ext(name), ".json") {
			err = json.Unmarshal(withoutComments(data), &config)
		} else {
			err = yamltext.Unmarshal(data, &config)
		}
		if err != nil {
			return odd(name + ": " + err.Error())
		}
		break
	}
	words, options := []string{}, []string{}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := config[key]
		values, list := value.([]any)
		if !list {
			values = []any{value}
		}
		for _, one := range values {
			text := fmt.Sprint(one)
			flag := "--" + key
			if len(key) == 1 {
				flag = flag[1:]
			}
			switch {
			case key == "node-option" || key == "n":
				options = append(options, "--"+strings.TrimLeft(text, "-"))
			case text == "true":
				words = append(words, flag)
			case text != "false":
				words = append(words, flag+"="+text)
			case slices.Contains([]string{"timeout", "timeouts", "t"}, key):
				words = append(words, flag+"=0")
			case mochaFlags[flag] == flagUnknown:
				return odd(key)
			}
		}
	}
	if err := s.flags(options, nodeFlags, &s.node); err != nil {
		return err
	}
	return s.flags(words, mochaFlags, &s.own)
}

// commented is a text in JSON, or a comment of what allows them.
var commented = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|(?s:/\*.*?\*/)`)

func withoutComments(data []byte) []byte {
	return commented.ReplaceAllFunc(data, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return nil
	})
}

// quoted is a text in JSON, or in a program.
var quoted = regexp.MustCompile("\"([^\"\\n]+)\"|'([^'\\n]+)'|`([^`\\n]+)`")

func textsIn(data []byte) (texts []string) {
	for _, m := range quoted.FindAllSubmatch(data, -1) {
		texts = append(texts, string(slices.Concat(m[1:]...)))
	}
	return texts
}

// filesIn are the files of the repository that texts in settings name, as patterns for themselves.
func filesIn(data []byte, names map[string]bool) (files []string) {
	for _, text := range textsIn(data) {
		text = strings.TrimPrefix(strings.TrimPrefix(text, "<rootDir>/"), "./")
		if file, found := fileOf(names, text); found && plainName.MatchString(file) {
			files = append(files, file)
		}
	}
	return files
}

// typeLoaders are modules with which node takes TypeScript.
var typeLoaders = regexp.MustCompile(`^(?:tsx(?:/|$)|ts-node/|ts-node$|@swc-node/|@swc/register|esbuild-register|sucrase/register|@babel/register|ts-blank-space|amaro)`)

// takesTypes reports whether the test program takes TypeScript as it is; Jest's settings say
// themselves what it is made of, and Vitest strips it.
func (s settings) takesTypes(strips bool) bool {
	return s.program == "jest" || s.program == "vitest" || strips ||
		slices.ContainsFunc(s.loads, typeLoaders.MatchString)
}
