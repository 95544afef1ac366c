package canary

import (
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// TestPython: of a Python file, the literals of statements that a passing test has run
// are found, and no others.
func TestPython(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"assert":              {`assert f(1) == 25`, "25"},
		"the other way round": {`assert 25 == f(1), "message"`, "25"},
		"unittest":            {`self.assertEqual(f("x"), "two")`, `"two"`},
		"unittest, message":   {`self.assertEqual([1, "b"], f(), "message")`, `1 "b"`},
		"many lines": {"self.assertEqual(\n        f(),\n        {'a': [1.5, True], 'b': None},\n    )",
			"'a' 1.5 True 'b'"},
		"a raw string":            {`assert f() == r"\d"`, ""},
		"before an escape":        {`assert f() == "ab\x41"`, `"ab\x41"`},
		"no literal":              {`assert f() == g()`, ""},
		"two literals":            {`assert 1 == 1`, ""},
		"a call":                  {`assert f() == set([1])`, ""},
		"an element":              {`assert f() == {"a": 1}["a"]`, ""},
		"a formatted string":      {`assert f() == f"{x}"`, ""},
		"other comparisons":       {"assert f() >= 1\n    assert 1 <= f() == 2\n    assert f() != 3\n    assert f() in (4,)", ""},
		"more than a comparison":  {"assert f() == 1 or True\n    assert not f() == 2\n    assert (f() == 3)", ""},
		"a condition":             {"if f():\n        assert f() == 1", ""},
		"a loop":                  {"for x in f():\n        assert f() == 1", ""},
		"expected errors":         {"with raises(X):\n        assert f() == 1\n    assert f() == 2", "2"},
		"behind a return":         {"if f():\n        return\n    assert f() == 1", ""},
		"a generator":             {"yield f\n    assert f() == 1", ""},
		"a function within":       {"def g():\n        assert f() == 1\n        return 1\n    assert g() == 2", "2"},
		"a string of assertions":  {"x = '''\n    assert f() == 1\n    '''", ""},
		"a comment":               {"# assert f() == 1", ""},
		"two statements":          {"assert f() == 1; assert f() == 2", ""},
		"a tuple, a negative one": {"assert f() == (-1, 0x1f)", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			source := "def test_it(self):\n    x = f()\n    " + c.body + "\n"
			lines := strings.Split(source, "\n")
			var got []string
			for _, s := range python("", source) {
				piece := lines[s.line][s.start:s.end]
				got = append(got, piece)
				if wrong := s.wrong(piece, rand.New(rand.NewPCG(1, 1))); wrong == piece ||
					len(wrong) != len(piece) && piece != "True" {
					t.Errorf("%s becomes %s", piece, wrong)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestPythonFunctions: only tests at the top of a file, or of a class there,
// that are expected to pass.
func TestPythonFunctions(t *testing.T) {
	const source = `
class TestA(Base):
    @mark.parametrize("x", [1])
    def test_one(self, x):
        assert f() == 1
    async def test_late(self):
        assert f() == 2
    class Inner:
        def test_two(self):
            assert f() == 3
    @unittest.expectedFailure
    def test_three(self):
        assert f() == 4
    def test_twice(self):
        assert f() == 5
    def test_twice(self):
        assert f() == 6
def test_four():
    """Text."""
    assert f() == 7
if x:
    def test_five():
        assert f() == 8
`
	var got []string
	for _, s := range python("", source) {
		got = append(got, s.class+"."+s.function)
	}
	if want := []string{"TestA.test_one", ".test_four"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestGolang: of a Go file, the comparisons that decide whether a test fails.
func TestGolang(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a comparison": {`if got := f(); got != 3 { t.Error(got) }`, `if got := f(); got == 3 { t.Error(got) }`},
		"one of two": {`if a() || b < 1 { t.Fatalf("x") }`,
			`if !a() || b < 1 { t.Fatalf("x") }; if a() || b >= 1 { t.Fatalf("x") }`},
		"not":        {`if !f() { t.FailNow() }`, `if f() { t.FailNow() }`},
		"both":       {`if a && b { t.Error() }`, ``},
		"no failure": {`if a != b { c() }`, ``},
		"a table": {`for _, x := range table { t.Run(x, func(t *testing.T) { if x != 1 { t.Error() } }) }`,
			`for _, x := range table { t.Run(x, func(t *testing.T) { if x == 1 { t.Error() } }) }`},
		"results":         {`for _, x := range f() { if x != 1 { t.Error() } }`, ``},
		"behind a return": {`if a { return }; if x != 1 { t.Error() }`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			const head = "package p\n\nfunc TestIt(t *testing.T) { "
			lines := strings.Split(head+c.body+" }\n", "\n")
			var got []string
			for _, s := range golang("", strings.Join(lines, "\n")) {
				line := lines[s.line]
				wrong := line[:s.start] + s.wrong(line[s.start:s.end], nil) + line[s.end:]
				got = append(got, strings.TrimSuffix(wrong[len("func TestIt(t *testing.T) { "):], " }"))
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestScript: of a file in JavaScript, the literals of statements that a passing test has run.
func TestScript(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"jest": {`expect(f()).toBe(25); expect(f()).toEqual({a: [1, "b"], 'c': true, d: undefined, e: null})`,
			`25 1 "b" true`},
		"chai": {`expect(f()).to.deep.equal(['x'])`, `'x'`},
		"node": {"assert.strictEqual(f('a', 1), 'two', 'message')\nassert.deepEqual([1], f())",
			`'two' 1`},
		"many lines":         {"expect(\n  f(`a ${g({})} }`),\n).toEqual([\n  1,\n  2,\n])", "1 2"},
		"without semicolons": {"const x = f()\nexpect(x).toBe(1)\nexpect(x[0])\n  .toBe(2)", "1 2"},
		"behind a block": {"if (x) { y() }\nexpect(f()).toBe(1)\nfor (const x of y) { z }\nexpect(f()).toBe(2)",
			"1 2"},
		"a pattern":             {"expect(/[/'\"]'/.test(x / y / 2)).toBe(true)", "true"},
		"other matchers":        {"expect(f()).not.toBe(1); expect(f()).toBeCloseTo(2); await expect(f()).resolves.toBe(3); assert.ok(4); assert.notEqual(f(), 5)", ""},
		"no literal":            {"expect(f()).toBe(g()); expect(f()).toEqual([g(1)]); expect(f()).toBe([1][0]); expect(f()).toBe(`x`); expect(f()).toBe(1 + 1)", ""},
		"two literals":          {"expect(1).toBe(1)", ""},
		"a condition":           {"if (x) expect(f()).toBe(1)\nif (g(x))\n  expect(f()).toBe(2)\nelse\n  expect(f()).toBe(3)\nif (x) { expect(f()).toBe(4) }", ""},
		"a loop":                {"for (const x of y)\n  expect(x).toBe(1)\nwhile (x)\n  expect(x).toBe(2)\nfor await (const x of y)\n  expect(x).toBe(3)\nx.forEach(x => expect(x).toBe(4))", ""},
		"part of an expression": {"const x = y ?\n  expect(f()).toBe(1) : z; y && expect(f()).toBe(2); y ||\n  expect(f()).toBe(3); async () =>\n  expect(f()).toBe(4)", ""},
		"behind a return":       {"expect(f()).toBe(1); if (x) return; expect(f()).toBe(2)", "1"},
		"comments and strings":  {"// expect(f()).toBe(1)\n/* expect(f()).toBe(2)\n*/ x('expect(f()).toBe(3)'); y(`\nexpect(f()).toBe(4)\n`)", ""},
		"what it cannot read":   {"expect(f()).toBe(1); x = <p>don't</p>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := "describe('all', function () {\n  it.skip('not', () => { expect(f()).toBe(0) })\n  it(\"works\", async (t) => {\n" +
				c.body + "\n  })\n})\n"
			lines := strings.Split(source, "\n")
			var got []string
			for _, s := range script("", source) {
				piece := lines[s.line][s.start:s.end]
				got = append(got, piece)
				if wrong := s.wrong(piece, rand.New(rand.NewPCG(1, 1))); wrong == piece ||
					len(wrong) != len(piece) && piece != "true" {
					t.Errorf("%s becomes %s", piece, wrong)
				}
				if !slices.Equal(s.named, []string{"works", "all > works"}) {
					t.Errorf("named %q", s.named)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	for _, declared := range []string{"it(`a`, () => {BODY})", "it('a', function* () {BODY})",
		"it('a', options, () => {BODY})", "it('a', () => BODY)", "if (x) it('a', () => {BODY})",
		"it.each(x)('a', () => {BODY})"} {
		if got := script("", strings.Replace(declared, "BODY", "expect(f()).toBe(1)", 1)); len(got) != 0 {
			t.Errorf("%s: %+v", declared, got)
		}
	}
	if got := script("",
		"it('a', x => {expect(f()).toBe(1)}, 100); test('b', function named() {assert.equal(f(), 1)})"); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

const (
	testFile = "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_old(self):\n        self.assertEqual(f(1), 1)\n"
	patch    = "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -4,3 +4,7 @@ import unittest\n class TestA(unittest.TestCase):\n     def test_old(self):\n" +
		"         self.assertEqual(f(1), 1)\n+        self.assertEqual(f(2), 22)\n+\n+    def test_new(self):\n+        self.assertEqual(f(3), 33)\n"
)

// TestPlant: hidden lines of the graded tests alone are made wrong, wherever the
// folder of the tests has them.
func TestPlant(t *testing.T) {
	tests := fstest.MapFS{"test.patch": {Data: []byte(patch)},
		"test.sh": {Data: []byte("git apply <<'E'\n" + patch + "E\n"), Mode: 0o755}}
	snapshot := fstest.MapFS{"tests/test_a.py": {Data: []byte(testFile)}}
	g := &grade.Grading{FailToPass: []string{"tests/test_a.py::TestA::test_old", "test_new (tests.test_a.TestA)",
		"tests/test_b.py::TestA::test_new", "other"}}
	sites := Find(g, tests, snapshot)
	if len(sites) != 2 || Count(sites) != 2 || sites[0].Line != 6 || sites[1].Line != 9 {
		t.Fatalf("sites %+v", sites)
	}
	seen := map[int]bool{}
	for seed := range uint64(50) {
		planted, wrong, err := Plant(tests, sites, rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			t.Fatal(err)
		}
		seen[len(wrong)] = true
		for name, file := range tests {
			after, _ := fs.ReadFile(planted, name)
			info, _ := fs.Stat(planted, name)
			before := strings.Split(string(file.Data), "\n")
			changed := 0
			for i, line := range strings.Split(string(after), "\n") {
				if line != before[i] {
					changed++
				}
			}
			if changed != len(wrong) || info.Mode() != file.Mode {
				t.Errorf("%s: %d lines of %d wrong tests: %s", name, changed, len(wrong), after)
			}
		}
	}
	if !seen[1] || !seen[2] || len(seen) != 2 {
		t.Errorf("planted %v", seen)
	}
	// Of tests that must go on passing some are made wrong, too, and never these alone.
	g = &grade.Grading{FailToPass: []string{"tests/test_a.py::TestA::test_new"},
		PassToPass: []string{"tests/test_a.py::TestA::test_old"}}
	if sites = Find(g, tests, snapshot); len(sites) != 2 || Count(sites) != 1 {
		t.Fatalf("sites %+v", sites)
	}
	failOnly := *g
	if failOnly.FailOnly = true; len(Find(&failOnly, tests, snapshot)) != 1 {
		t.Error("where only failures are named, a test that has not run seems to have passed")
	}
	both := 0
	for seed := range uint64(50) {
		_, wrong, err := Plant(tests, sites, rand.New(rand.NewPCG(seed, 1)))
		if err != nil || !slices.Contains(wrong, g.FailToPass[0]) {
			t.Errorf("wrong are %q, %v", wrong, err)
		}
		both += len(wrong) - 1
	}
	if both == 0 || both == 50 {
		t.Errorf("both are wrong %d times of 50", both)
	}
	if got := Find(g, tests, fstest.MapFS{"tests/test_a.py": {Data: []byte("other\n" + testFile)}}); len(got) != 0 {
		t.Errorf("a patch that does not fit: %+v", got)
	}
}

// TestNames: a name without a file is one of the only function that is called so.
func TestNames(t *testing.T) {
	file := func(name string) string {
		return "--- /dev/null\n+++ b/" + name + "\n@@ -0,0 +1,2 @@\n+def test_x():\n+    assert f() == 1\n"
	}
	g := &grade.Grading{FailToPass: []string{"test_x"}}
	if got := Find(g, fstest.MapFS{"test.patch": {Data: []byte(file("a.py"))}}, fstest.MapFS{}); len(got) != 1 {
		t.Errorf("one: %+v", got)
	}
	if got := Find(g, fstest.MapFS{"test.patch": {Data: []byte(file("a.py") + file("b.py"))}},
		fstest.MapFS{}); len(got) != 0 {
		t.Errorf("two: %+v", got)
	}
	titled := "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,5 @@\n+def test_x():\n+    \"\"\"\n+    Ends are dropped.\n+    \"\"\"\n+    assert f() == 1\n"
	if got := Find(&grade.Grading{FailToPass: []string{"Ends are dropped."}},
		fstest.MapFS{"test.patch": {Data: []byte(titled)}}, fstest.MapFS{}); len(got) != 1 {
		t.Errorf("by its description: %+v", got)
	}
	twice := "def test_x():\n    assert f(\n        7,\n    ) == (\n        7,\n    )\n"
	if got := Find(g, fstest.MapFS{"a.py": {Data: []byte(twice)}}, nil); len(got) != 0 {
		t.Errorf("a line that stands twice: %+v", got)
	}
	two := &grade.Grading{FailToPass: []string{"a/test_1.py::test_x"}}
	if got := Find(two, fstest.MapFS{"test.patch": {Data: []byte(file("b/test_1.py"))}}, nil); len(got) != 0 {
		t.Errorf("another folder: %+v", got)
	}
	beside := fstest.MapFS{"r2e_tests/test_1.py": {Data: []byte("def test_x():\n    assert f() == 1\n")}}
	if got := Find(&grade.Grading{FailToPass: []string{"r2e_tests/test_1.py::test_x"}}, beside,
		fstest.MapFS{}); len(got) != 1 {
		t.Errorf("a file of the tests: %+v", got)
	}
}

// FuzzFind: no file of tests, whatever is in it, makes a site that is not in the file.
func FuzzFind(f *testing.F) {
	f.Add("def test_x():\n    assert f() == 1\n", patch)
	f.Add("#[test]\nfn a() { assert_eq!(f('a', b'x', r#\"x\"#), Some(\"b\")); }\n", patch)
	f.Add("it('a', async () => {\n expect(f(`${x}`)).toEqual([1, {'a': /x/}])\n})\n", patch)
	f.Add("def test_x():\n    assert f() == '''\n1''' == (\n", "+++ b/x.py\n@@ -1 +1 @@\n")
	f.Fuzz(func(t *testing.T, source, patch string) {
		lines := strings.Split(source, "\n")
		var sites []foundSite
		for _, list := range listers {
			sites = append(sites, list("tests/x.rs", source)...)
		}
		for _, s := range sites {
			if s.start > s.end || s.end > len(lines[s.line]) {
				t.Fatalf("%+v", s)
			}
			s.wrong(lines[s.line][s.start:s.end], rand.New(rand.NewPCG(1, 1)))
		}
		Find(&grade.Grading{FailToPass: []string{"test_x"}}, fstest.MapFS{"test.patch": {Data: []byte(patch)}},
			fstest.MapFS{"x.py": {Data: []byte(source)}})
	})
}

// TestShorter: a wrong string lacks its first or last letter, and what is no string, or too short
// for that, is another one.
func TestShorter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for piece, want := range map[string][]string{
		`"two-words"`: {`"wo-words"`, `"two-word"`}, "'-ab c9!'": {"'-b c9!'", "'-ab 9!'"}, "`abc`": {"`bc`", "`ab`"},
		`"""abc"""`: {`"""bc"""`, `"""ab"""`},
		`"a1b2"`:    nil, `'a'`: nil, `12345`: nil, `b"abc"`: nil, `"1.0"`: nil,
		"'''abc'''": {"'''bc'''", "'''ab'''"},
	} {
		seen := map[string]bool{}
		for range 40 {
			if got, ok := shortened(piece, random); ok {
				seen[got] = true
			}
		}
		if len(seen) != len(want) || slices.ContainsFunc(want, func(w string) bool { return !seen[w] }) {
			t.Errorf("%s becomes %v, want %v", piece, seen, want)
		}
		for _, other := range []string{"", `"abc" != got`, `"abc" != "abd"`, "!", `"`} { // of Go
			if got, ok := shortened(other, random); ok {
				t.Errorf("%s becomes %s", other, got)
			}
		}
		if wrong := Shorter([]Site{{wrong: wrongLiteral}})[0].wrong(piece, random); wrong == piece ||
			len(want) > 0 && !slices.Contains(want, wrong) {
			t.Errorf("%s becomes %s", piece, wrong)
		}
	}
}
