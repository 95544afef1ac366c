package commits

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/tasks"
)

// npmRegistry serves archives of packages over TLS.
type npmRegistry struct {
	server *httptest.Server
	mu     sync.Mutex
	files  map[string][]byte // by path
	asked  []string
}

func newNPM(t *testing.T) *npmRegistry {
	t.Helper()
	r := &npmRegistry{files: map[string][]byte{}}
	r.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, request.URL.Path)
		data, there := r.files[request.URL.Path]
		r.mu.Unlock()
		switch {
		case strings.Contains(request.URL.Path, "/busy-"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.Contains(request.URL.Path, "/away-"):
			http.Redirect(w, request, "http://"+request.Host+"/plain", http.StatusFound)
		case !there:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = w.Write(data)
		}
	}))
	t.Cleanup(r.server.Close)
	t.Setenv("npm_config_registry", r.server.URL+"/mirror/")
	usual := http.DefaultTransport
	http.DefaultTransport = r.server.Client().Transport
	t.Cleanup(func() { http.DefaultTransport = usual })
	return r
}

// tarball is a package's archive of files.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	for name, text := range files {
		if err := out.WriteHeader(&tar.Header{Name: "package/" + name, Typeflag: tar.TypeReg, Mode: 0o644,
			Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// add serves a package, and answers its entry in a lock file.
func (r *npmRegistry) add(t *testing.T, name, version string, files map[string]string) map[string]any {
	t.Helper()
	data := tarball(t, files)
	sum := sha512.Sum512(data)
	at := "/" + name + "/-/" + filepath.Base(name) + "-" + version + ".tgz"
	r.files["/mirror"+at] = data
	return map[string]any{"version": version, "resolved": "https://registry.npmjs.org" + at,
		"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
}

// lockOf is a lock file of entries by their places.
func lockOf(t *testing.T, version int, entries map[string]map[string]any) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"lockfileVersion": version, "packages": entries})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var linuxX64 = system{"linux", "x64", "glibc"}

// TestReadLock: what a lock file asks for beyond archives of the registry is refused by name,
// before anything is fetched.
func TestReadLock(t *testing.T) {
	sum := "sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64))
	entry := func(more string) string {
		return `{"version":"1.0.0","resolved":"https://registry.npmjs.org/a/-/a-1.0.0.tgz","integrity":"` + sum + `"` +
			more + `}`
	}
	resolved := func(address string) string {
		return `"node_modules/a":{"version":"1.0.0","resolved":"` + address + `","integrity":"` + sum + `"}`
	}
	const scoped = `"https://registry.npmjs.org/@b/c/-/c-1.0.0.tgz"`
	for name, c := range map[string]struct{ packages, want string }{
		"one": {`"":{"name":"x"},"node_modules/a":` + entry(""), "node_modules/a=/a/-/a-1.0.0.tgz"},
		"in a scope, nested": {`"node_modules/a/node_modules/@b/c":{"resolved":` + scoped +
			`,"integrity":"sha1-x ` + sum + `"}`, "node_modules/a/node_modules/@b/c=/@b/c/-/c-1.0.0.tgz"},
		"no address": {`"node_modules/@b/c":{"version":"2.0.0-rc.1","integrity":"` + sum + `"}`,
			"node_modules/@b/c=/@b/c/-/c-2.0.0-rc.1.tgz"},
		"another name": {`"node_modules/z":{"name":"a","version":"1.0.0","integrity":"` + sum + `"}`,
			"node_modules/z=/a/-/a-1.0.0.tgz"},
		"another system's": {`"node_modules/a":` + entry(`,"optional":true,"os":["win32"]`) +
			`,"node_modules/a/node_modules/b":{"link":true}`, ""},
		"left with its own": {`"node_modules/a":` + entry(`,"optional":true,"cpu":["!x64"]`) +
			`,"node_modules/a/node_modules/b":` + entry(""), ""},
		"musl's":               {`"node_modules/a":` + entry(`,"optional":true,"libc":["musl"]`), ""},
		"not for others alone": {`"node_modules/a":` + entry(`,"optional":true,"os":["!win32","darwin"]`), ""},
		"needed to develop":    {`"node_modules/a":` + entry(`,"devOptional":true,"libc":["musl"]`), WrongSystem},
		"needed, for another":  {`"node_modules/a":` + entry(`,"os":["darwin"]`), WrongSystem},
		"bundled": {`"node_modules/a":` + entry("") +
			`,"node_modules/a/node_modules/b":{"inBundle":true}`, "node_modules/a=/a/-/a-1.0.0.tgz"},
		"linked":                 {`"node_modules/a":{"resolved":"packages/a","link":true}`, Workspaces},
		"a workspace":            {`"packages/a":{"version":"1.0.0"}`, Workspaces},
		"up":                     {`"node_modules/../a":` + entry(""), OddLock},
		"up in the end":          {`"node_modules/a/..":` + entry(""), OddLock},
		"a hidden folder":        {`"node_modules/.bin":` + entry(""), OddLock},
		"no name":                {`"node_modules/":` + entry(""), OddLock},
		"an own node_modules":    {`"node_modules/node_modules/a":` + entry(""), OddLock},
		"a folder of a package":  {`"node_modules/a/lib":` + entry(""), OddLock},
		"an escaped name":        {`"node_modules/a%2fb":` + entry(""), OddLock},
		"a backslash":            {`"node_modules/a\\..\\b":` + entry(""), OddLock},
		"a place twice":          {`"node_modules/a":` + entry("") + `,"node_modules/a":` + entry(""), OddLock},
		"a key in other letters": {`"node_modules/a":` + entry(`,"Resolved":"x"`), OddLock},
		"a key twice":            {`"node_modules/a":` + entry(`,"version":"2.0.0"`), OddLock},
		"case alone":             {`"node_modules/a":` + entry("") + `,"node_modules/A":` + entry(""), OddLock},
		"over http":              {resolved("http://registry.npmjs.org/a/-/a-1.0.0.tgz"), OtherSource},
		"another host":           {resolved("https://evil.test/a/-/a-1.0.0.tgz"), OtherSource},
		"a host that ends so":    {resolved("https://x.registry.npmjs.org/a/-/a-1.0.0.tgz"), OtherSource},
		"a port":                 {resolved("https://registry.npmjs.org:8443/a/-/a-1.0.0.tgz"), OtherSource},
		"a user":                 {resolved("https://u:secret@registry.npmjs.org/a/-/a-1.0.0.tgz"), OtherSource},
		"git":                    {resolved("git+ssh://git@github.com/a/a.git#0123"), OtherSource},
		"a file":                 {resolved("file:../a.tgz"), OtherSource},
		"a path":                 {resolved("x.tar_gz"), OtherSource},
		"an escaped path":        {resolved("https://registry.npmjs.org/..%2F..%2Fetc/-/a-1.0.0.tgz"), OtherSource},
		"a fragment":             {resolved("https://registry.npmjs.org/a/-/a-1.0.0.tgz#x"), OtherSource},
		"a query":                {resolved("https://registry.npmjs.org/a/-/a-1.0.0.tgz?x=y"), OtherSource},
		"another ending":         {resolved("https://registry.npmjs.org/a/-/x.tar_gz"), OddLock},
		"a way up":               {resolved("https://registry.npmjs.org/../a/-/a-1.0.0.tgz"), OddLock},
		"two slashes":            {resolved("https://registry.npmjs.org//a/-/a-1.0.0.tgz"), OddLock},
		"a version that leads":   {`"node_modules/a":{"version":"../../x","integrity":"` + sum + `"}`, OddLock},
		"SHA-1 alone":            {`"node_modules/a":{"resolved":"https://registry.npmjs.org/a/-/a-1.0.0.tgz","integrity":"sha1-x"}`, NoSHA512},
		"no digest": {`"node_modules/a":{"resolved":"https://registry.npmjs.org/a/-/a-1.0.0.tgz"}`,
			"node_modules/a=/a/-/a-1.0.0.tgz"},
		"a short digest": {`"node_modules/a":{"resolved":"https://registry.npmjs.org/a/-/a-1.0.0.tgz","integrity":"sha512-AAAA"}`, OddLock},
		"two digests": {`"node_modules/a":{"resolved":"https://registry.npmjs.org/a/-/a-1.0.0.tgz","integrity":"` +
			sum + " " + sum + `"}`, OddLock},
		"a program outside":    {`"node_modules/a":` + entry(`,"bin":{"a":"../../x"}`), OddLock},
		"a program's odd name": {`"node_modules/a":` + entry(`,"bin":{"../a":"x"}`), OddLock},
		"no object":            {`"node_modules/a":1`, OddLock},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := readLock([]byte(`{"lockfileVersion":3,"packages":{`+c.packages+`}}`), linuxX64)
			var no refusal
			if errors.As(err, &no) {
				if no.reason != c.want {
					t.Errorf("%v, want %s", no, c.want)
				}
				if strings.Contains(no.because, "secret") {
					t.Error(no)
				}
				return
			}
			var got []string
			for _, one := range list {
				got = append(got, one.Path+"="+one.path)
			}
			if strings.Join(got, " ") != c.want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
	for text, want := range map[string]string{`{"lockfileVersion":1}`: OldLock, `{}`: OldLock,
		`{"lockfileVersion":4}`: OldLock, "no JSON": OddLock, strings.Repeat("[", 100): OddLock,
		`{"a":1}{"a":1}`: OddLock} {
		no := refusal{}
		if _, err := readLock([]byte(text), linuxX64); !errors.As(err, &no) || no.reason != want {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
}

// TestFetchPackages: archives come from the user's registry, are what the lock file
// says, and are asked for once.
func TestFetchPackages(t *testing.T) {
	r := newNPM(t)
	entries := map[string]map[string]any{
		"node_modules/a":                r.add(t, "a", "1.0.0", map[string]string{"index.js": "1"}),
		"node_modules/b/node_modules/a": r.add(t, "a", "2.0.0", map[string]string{"index.js": "2"}),
		"node_modules/@s/b":             r.add(t, "@s/b", "1.0.0", map[string]string{"index.js": "b"}),
	}
	dir := t.TempDir()
	p := newPackages(dir)
	get := func(entries map[string]map[string]any) (moduleSet, error) {
		t.Helper()
		list, err := readLock([]byte(lockOf(t, 3, entries)), linuxX64)
		if err != nil {
			t.Fatal(err)
		}
		return p.get(t.Context(), list)
	}
	set, err := get(entries)
	files, _ := os.ReadDir(set.folder)
	if err != nil || set.reason != "" || len(files) != 4 {
		t.Fatalf("%+v, %v, %v", set, files, err)
	}
	if _, err := get(map[string]map[string]any{"node_modules/x": entries["node_modules/a"]}); err != nil ||
		len(r.asked) != 3 {
		t.Errorf("%v, asked for %q", err, r.asked)
	}
	unsigned := r.add(t, "u", "1.0.0", map[string]string{"index.js": "u"})
	is := hex.EncodeToString(decoded(t, strings.TrimPrefix(unsigned["integrity"].(string), "sha512-")))
	delete(unsigned, "integrity")
	for range 2 { // as the registry has it, which is asked once
		set, err := get(map[string]map[string]any{"node_modules/u": unsigned, "node_modules/a/node_modules/u": unsigned,
			"node_modules/a": entries["node_modules/a"]})
		if _, missing := os.Stat(filepath.Join(set.folder, is+".tgz")); err != nil ||
			missing != nil || len(r.asked) != 4 {
			t.Errorf("%+v, %v, %v, asked for %q", set, err, missing, r.asked)
		}
	}
	wrong := func(name, key, value string) map[string]map[string]any {
		one := r.add(t, name, "1.0.0", map[string]string{"index.js": name})
		if one[key] = value; value == "" {
			delete(r.files, "/mirror/"+name+"/-/"+name+"-1.0.0.tgz")
		}
		return map[string]map[string]any{"node_modules/" + name: one}
	}
	for name, c := range map[string]struct {
		entries      map[string]map[string]any
		reason, fail string
	}{
		"another content": {wrong("c", "integrity", "sha512-"+base64.StdEncoding.EncodeToString(make([]byte, 64))),
			Unfetched, ""},
		"gone":              {wrong("d", "resolved", ""), Unfetched, ""},
		"a busy registry":   {wrong("busy-e", "version", "1.0.0"), "", "answered 503"},
		"another address":   {wrong("away-f", "version", "1.0.0"), "", "leads elsewhere"},
		"more than allowed": {wrong("g", "version", "1.0.0"), HugePackages, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if p.most = 1 << 20; c.reason == HugePackages {
				p.most = 10
			}
			set, err := get(c.entries)
			if set.reason != c.reason || (err != nil) != (c.fail != "") ||
				err != nil && (!strings.Contains(err.Error(), c.fail) || strings.Contains(err.Error(), "mirror")) {
				t.Errorf("%+v, %v", set, err)
			}
		})
	}
	p.close()
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil ||
		!slices.Equal(left, []string{filepath.Join(dir, "npm")}) {
		t.Errorf("left: %q, %v", left, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "npm", "*")); len(left) != 4 {
		t.Errorf("kept: %q", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newPackages(t.TempDir()).get(ctx, []lockedPackage{{}}); err != nil &&
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// requireNode skips a test where there is no node that sandboxes see.
func requireNode(t *testing.T) {
	t.Helper()
	sandboxtest.Require(t)
	if there, _ := nodeOf(t.Context())(); !there {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal("node is required by RONDO_REQUIRE_ALL=1")
		}
		t.Skip("node is missing")
	}
}

// TestImportNode: commits whose tests node runs by itself become tasks, with and without packages,
// and whether modules are of CommonJS or not.
func TestImportNode(t *testing.T) {
	requireNode(t)
	r := newNPM(t)
	lock := lockOf(t, 3, map[string]map[string]any{
		"": {"name": "stock"}, "node_modules/pad": r.add(t, "pad",
			"1.0.0", map[string]string{"index.js": "module.exports = (s) => ' ' + s;\n",
				"package.json": `{"name":"pad","version":"1.0.0"}`}),
	})
	h := newHistory(t)
	want := map[string]string{}
	is := func(outcome, message string, files map[string]string) { want[h.commit(message, files)] = outcome }
	is(NoParent, "Begin slugs of titles, words joined by dashes", map[string]string{
		"package.json": `{"name":"slugs","scripts":{"test":"eslint . && node --test"}}`,
		"lib/slug.js":  "exports.slug = (s) => s.toLowerCase().replace(/[^a-z0-9]+/g, '-');\n",
		"test/words.test.js": "const test = require('node:test');\nconst assert = require('node:assert');\nconst { slug } = require('../lib/slug.js');\n\n" +
			"test('joins words', () => {\n  assert.equal(slug('Two words'), 'two-words');\n});\n",
	})
	is("task", "Leave no dash at the ends of a slug, as links with one break", map[string]string{
		"lib/slug.js": "exports.slug = (s) => s.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '');\n",
		"test/edges.test.js": "const test = require('node:test');\nconst assert = require('node:assert');\nconst { slug } = require('../lib/slug.js');\n\n" +
			"test('has no dash at its ends', () => {\n  assert.equal(slug(' Other titles! '), 'other-titles');\n});\n",
	})
	is(NoLock, "Pad a slug on its left side by the package pad", map[string]string{
		"package.json":      `{"name":"slugs","dependencies":{"pad":"1"},"scripts":{"test":"node --test"}}`,
		"lib/pad.mjs":       "import pad from 'pad';\nexport const padded = (s) => pad(s);\n",
		"test/pad.test.mjs": "import test from 'node:test';\nimport assert from 'node:assert';\nimport { padded } from '../lib/pad.mjs';\n\ntest('pads', () => {\n  assert.equal(padded('abc'), ' abc');\n});\n",
	})
	is("task", "Pad a slug twice on its left side by the package pad", map[string]string{
		"package-lock.json": lock,
		"lib/twice.mjs":     "import pad from 'pad';\nexport function twice(s) {\n  return pad(pad(s));\n}\n",
		"test/twice.test.mjs": "import test from 'node:test';\nimport assert from 'node:assert';\nimport { twice } from '../lib/twice.mjs';\n\n" +
			"test('pads twice', () => {\n  assert.equal(twice('abc'), '  abc');\n});\n",
	})
	is(NoCode, "Test once more that a slug is padded, for whoever doubts it",
		map[string]string{"test/more.test.js": "require('node:test')('more', () => {});\n"})
	o := options(t, h)
	report, err := Import(t.Context(), o)
	got, _ := readState(report.State)
	if err != nil || len(report.Tasks) != 2 {
		t.Fatalf("%+v, %v, %+v", report, err, got)
	}
	for id, outcome := range want {
		if reason := got.Commits[id].Reason; reason != strings.TrimSuffix(outcome, "task") {
			t.Errorf("%s: %q, want %s", h.git("show", "-s", "--format=%s", id), reason, outcome)
		}
	}
	r.server.Close()
	checkTasks(t, o, 2)
	list, err := tasks.LoadDir(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range list {
		if guarded, all := task.Canaries(); guarded != 1 || all != 1 {
			t.Errorf("%s: %d of %d canaries", task.Name, guarded, all)
		}
		if named := strings.Contains(task.Instruction, "export function twice(s)"); named != (task.Modules != nil) {
			t.Errorf("instruction %q", task.Instruction)
		}
	}
}

// fakeMocha stands for mocha: it loads test files and tells a reporter of what they declare.
const fakeMocha = `
const path = require('path'), { EventEmitter } = require('events');
const args = process.argv.slice(2), runner = new EventEmitter(), tests = [];
const at = (flag) => args[args.indexOf(flag) + 1];
class Spec { constructor(r) { r.on('pass', (t) => console.log('ok ' + t.titlePath().join(' '))); } }
exports.reporters = { Spec };
require.cache[require.resolve('mocha')] = module;
const Reporter = require(at('--reporter'));
new Reporter(runner, {});
for (const arg of args) if (arg.startsWith('--require=')) require(path.resolve(arg.slice(10)));
let suites = [];
global.describe = (title, body) => { suites.push(title); body(); suites.pop(); };
global.it = (title, body) => { const titles = [...suites, title]; tests.push({ titlePath: () => titles, body }); };
for (const file of args.filter((a) => a.endsWith('.js') && !a.startsWith('-') && a !== at('--reporter'))) require(path.resolve(file));
let failed = 0;
for (const t of tests) try { t.body(); runner.emit('pass', t); } catch (e) { failed++; runner.emit('fail', t, e); }
runner.emit('end');
process.exitCode = failed;
`

// TestImportMocha: commits whose tests mocha runs become tasks, by settings of package.json,
// scripts and .mocharc; a fake stands for mocha.
func TestImportMocha(t *testing.T) {
	requireNode(t)
	r := newNPM(t)
	mocha := r.add(t, "mocha", "11.0.0", map[string]string{"bin/_mocha": fakeMocha, "index.js": "",
		"package.json": `{"name":"mocha","main":"bin/_mocha"}`})
	h := newHistory(t)
	h.commit("Begin to add numbers that are given one by one", map[string]string{
		"package.json":      `{"scripts":{"test":"npm run lint && npm run unit -- --timeout 5000","unit":"NODE_ENV=test c8 --reporter text mocha --check-leaks test/"},"devDependencies":{"mocha":"11"}}`,
		"package-lock.json": lockOf(t, 2, map[string]map[string]any{"node_modules/mocha": mocha}),
		".mocharc.yml":      "require:\n  - ./setup/env.js\nreporter: dot\n",
		"setup/env.js":      "global.assert = require('assert');\n", "add.js": "exports.add = (a, b) => a + b;\n",
		"test/add.js": "const { add } = require('../add.js');\n\ndescribe('add', () => {\n  it('adds', () => {\n    assert.equal(add(1, 2), 3);\n  });\n});\n",
	})
	h.commit("Add numbers that are given as texts as numbers, too", map[string]string{
		"add.js": "exports.add = (a, b) => Number(a) + Number(b);\n",
		"test/add.js": "const { add } = require('../add.js');\n\ndescribe('add', () => {\n  it('adds', () => {\n    assert.equal(add(1, 2), 3);\n  });\n\n" +
			"  it('adds texts', () => {\n    assert.equal(add('1', '2'), 3);\n  });\n});\n",
	})
	o := options(t, h)
	report, err := Import(t.Context(), o)
	if err != nil || len(report.Tasks) != 1 {
		got, _ := readState(report.State)
		t.Fatalf("%+v, %v, %+v", report, err, got)
	}
	checkTasks(t, o, 1)
	text, err := os.ReadFile(filepath.Join(o.Dir, report.Tasks[0], "tests", "test.sh"))
	if want := "\nNODE_ENV=test node --require /verifier/node.cjs node_modules/mocha/bin/_mocha --no-config --no-package --reporter /verifier/node.cjs --check-leaks --timeout=5000 --require=./setup/env.js test/add.js\n"; err != nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("%s, %v", text, err)
	}
	list, err := tasks.LoadDir(o.Dir)
	if err != nil || !slices.Contains(list[0].Protected, "setup/env.js") ||
		!slices.Contains(list[0].Protected, "package.json") {
		t.Errorf("%v, %v", list[0].Protected, err)
	}
	grading, err := os.ReadFile(filepath.Join(o.Dir, report.Tasks[0], "tests", "grading.json"))
	if want := `"fail_to_pass":["add \u003e adds texts"],"pass_to_pass":["add \u003e adds"]`; err != nil ||
		!strings.Contains(string(grading), want) {
		t.Errorf("%s, %v", grading, err)
	}
}

// TestImportHostilePackages: a package that would fill the disk, or leave its folder,
// drops the commit and no more.
func TestImportHostilePackages(t *testing.T) {
	requireNode(t)
	r := newNPM(t)
	h := newHistory(t)
	h.commit("Begin with a number that is not right at all",
		map[string]string{"a.js": "module.exports = 1;\n", "package.json": `{"scripts":{"test":"node --test"}}`})
	h.commit("Answer two and not one, as it is said to be", map[string]string{
		"a.js":           "module.exports = 2;\n",
		"test/a.test.js": "require('node:test')('two', () => require('node:assert').equal(require('../a.js'), 2));\n",
		"package-lock.json": lockOf(t, 3, map[string]map[string]any{"node_modules/evil": r.add(t, "evil",
			"1.0.0", map[string]string{"../../../x": "1"})}),
	})
	o := options(t, h)
	report, err := Import(t.Context(), o)
	if err != nil || report.Dropped[Unpackable] != 1 || len(report.Failed) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestImportAlone: two imports do not work in one folder at once.
func TestImportAlone(t *testing.T) {
	h := newHistory(t)
	h.commit("Begin", map[string]string{"a": "a"})
	o := options(t, h)
	im := &importer{maker: maker{Options: o}}
	release, err := im.alone()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Import(t.Context(), o); err == nil || !strings.Contains(err.Error(), "another import works there") {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if report, err := Import(t.Context(), o); err != nil {
		t.Error(fmt.Sprint(report), err)
	}
}
