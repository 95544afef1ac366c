package verifier_test

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// reported is what a command reports over the verifier's channel.
func reported(t *testing.T, command *exec.Cmd) grade.Report {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, other := os.NewFile(uintptr(ends[0]), "own"), os.NewFile(uintptr(ends[1]), "other")
	defer own.Close()
	var nonces []string
	for _, digit := range "abcdef0123" {
		nonces = append(nonces, strings.Repeat(string(digit), 32))
	}
	if _, err := own.WriteString(strings.Join(nonces, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
	for len(command.ExtraFiles) <= sandbox.ChannelFD-3 {
		command.ExtraFiles = append(command.ExtraFiles, other)
	}
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	sent, _ := io.ReadAll(own) // the end of the other is an error, or none
	report, err := grade.ReadReport(sent, nonces)
	if err != nil || !report.Complete {
		t.Errorf("%+v, %v: %s: %s", report, err, sent, out)
	}
	return report
}

// goTest stands for a test binary that prints a text.
func goTest(t *testing.T, prints string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "a.test")
	text := "#!/bin/sh\necho profile >\"${1#-test.memprofile=}\"\ncat <<'END'\n" + prints + "END\n"
	if err := os.WriteFile(binary, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return exec.Command("sh", "reporters/gotest", binary)
}

// TestGoReporterNames: the reporter of go test tells of tests whatever is in their names. The
// testing package writes what cannot be printed as \x00.
func TestGoReporterNames(t *testing.T) {
	names := []string{"TestA", `TestA/\d+`, `TestA/a"b`, `TestA/\x00\u202e\"`, "TestA/{id:[0-9]+}&ü"}
	text := ""
	for _, name := range names {
		text += "    --- PASS: " + name + " (0.00s)\n"
	}
	report := reported(t, goTest(t, text+"PASS\n"))
	if len(report.Results) != len(names) {
		t.Errorf("%+v", report)
	}
	for _, name := range names {
		if report.Results[name] != grade.Passed {
			t.Errorf("%s: %q", name, report.Results[name])
		}
	}
}

// TestGoReporterMessages: go test prints what a test logs behind its end, or with -v before it.
// Only of failed tests is it kept, and code under test may write anything.
func TestGoReporterMessages(t *testing.T) {
	for name, prints := range map[string]string{
		"by itself": "--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\n        a_test.go:7: got \"1\\2\"\n            want\t3 \x1b[31m\n    a_test.go:9: late\n--- FAIL: TestB (0.01s)\nFAIL\n",
		"with -v": "\x16=== RUN   TestA\n=== RUN   TestA/one\n    a_test.go:7: got \"1\\2\"\n            want\t3 \x1b[31m\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/one (0.00s)\n" +
			"=== RUN   TestC\n    a_test.go:20: fine\n--- PASS: TestC (0.00s)\n=== RUN   TestB\nof the code\n--- FAIL: TestB (0.01s)\nFAIL\n",
	} {
		t.Run(name, func(t *testing.T) {
			report := reported(t, goTest(t, prints))
			said := report.Said["TestA/one"]
			if !strings.HasPrefix(said, "a_test.go:7: got \"1\\2\"\n            want 3  [31m") ||
				report.Results["TestA/one"] != grade.Failed {
				t.Errorf("%q", said)
			}
			if report.Results["TestB"] != grade.Failed || report.Said["TestB"]+report.Said["TestC"] != "" {
				t.Errorf("%+v", report)
			}
		})
	}
	long := "--- FAIL: TestA (0.00s)\n    a_test.go:7: " + strings.Repeat("x", 5000) +
		"\n--- FAIL: TestB (0.00s)\n    a_test.go:8: " + strings.Repeat(`\`, 300) + "\n"
	if report := reported(t, goTest(t, long)); !strings.HasPrefix(report.Said["TestA"], "a_test.go:7: xxx") ||
		len(report.Said["TestA"]) > 400 || report.Said["TestB"] != "" {
		t.Errorf("%+v", report)
	}
}

// TestPythonReporterMessages: pytest and unittest tell what a test failed with, in their own words.
func TestPythonReporterMessages(t *testing.T) {
	const tests = `import unittest, pytest
class Odd(Exception):
    def __str__(self): raise ValueError
class TestU(unittest.TestCase):
    def test_equal(self): self.assertEqual(1, 2)
    def test_odd(self): raise Odd
    def test_parts(self):
        with self.subTest(n=3): self.fail("a part\n\x1b of " + "x" * 5000)
    @unittest.expectedFailure
    def test_fine(self): self.fail("no matter")
`
	const more = `import pytest
def test_assert(): assert [1] == [2], "they differ"
def test_broken(nothing): pass
@pytest.fixture
def bad(): raise KeyError("k")
def test_setup(bad): pass
`
	for program, want := range map[string]map[string]string{
		"pytest": {"test_a.py::TestU::test_equal": "AssertionError: 1 != 2", "test_a.py::TestU::test_odd": "",
			"test_b.py::test_assert": "AssertionError: they differ\nassert [1] == [2]",
			"test_b.py::test_broken": "fixture 'nothing' not found", "test_b.py::test_setup": "KeyError: 'k'"},
		"unittest": {"test_equal (test_a.TestU.test_equal)": "AssertionError: 1 != 2",
			"test_odd (test_a.TestU.test_odd)":     "test_a.Odd: <exception str() failed>",
			"test_parts (test_a.TestU.test_parts)": "AssertionError: a part\n\x1b of xxx"},
	} {
		t.Run(program, func(t *testing.T) {
			if err := exec.Command("python3", "-m", program, "--help").Run(); err != nil {
				t.Skipf("python3 has no %s", program)
			}
			reporters, err := filepath.Abs("reporters")
			if err != nil {
				t.Fatal(err)
			}
			command := exec.Command("python3", "-B", "-m", program)
			command.Dir = t.TempDir()
			command.Env = append(os.Environ(), "PYTHONPATH="+reporters)
			for name, text := range map[string]string{"test_a.py": tests, "test_b.py": more} {
				if err := os.WriteFile(filepath.Join(command.Dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			report := reported(t, command)
			for name, text := range want {
				if status := report.Results[name]; !strings.HasPrefix(report.Said[name], text) ||
					status != grade.Failed && status != grade.Errored {
					t.Errorf("%s: %s %q", name, status, report.Said[name])
				}
			}
			for name, said := range report.Said {
				if len(said) > 400 || strings.Contains(name, "test_fine") {
					t.Errorf("%s: %d bytes: %.100s", name, len(said), said)
				}
			}
		})
	}
}

// nodeReporters is the folder of the reporters, on a machine that has node.
func nodeReporters(t *testing.T) string {
	t.Helper()
	if err := exec.Command("node", "--version").Run(); err != nil {
		t.Skip("node is missing")
	}
	reporters, err := filepath.Abs("reporters")
	if err != nil {
		t.Fatal(err)
	}
	return reporters
}

// TestMochaReporter: what a runner of mocha's says is reported. Threads load the reporter, too, and
// share its descriptor: they report nothing.
func TestMochaReporter(t *testing.T) {
	reporters, dir := nodeReporters(t), t.TempDir()
	for name, text := range map[string]string{
		"node_modules/mocha/index.js": "exports.reporters = { Spec: class {} };",
		"main.js": `const runner = new (require("events"))(), Reporter = require(process.argv[2]);
new Reporter(runner, {});
new (require("worker_threads").Worker)("1", { eval: true }).on("exit", () => {
	runner.emit("pass", { titlePath: () => ["suite", "in"] });
	runner.emit("fail", { titlePath: () => ["suite", "bad"] }, new Error("they differ"));
	runner.emit("end");
});`,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755),
			os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("node", "--require", reporters+"/node.cjs", "main.js", reporters+"/node.cjs")
	command.Dir = dir
	report := reported(t, command)
	if want := (grade.Results{"suite > in": grade.Passed, "suite > bad": grade.Failed}); !maps.Equal(report.Results,
		want) || report.Said["suite > bad"] != "they differ" {
		t.Errorf("%+v, want %v", report, want)
	}
}

// TestNodeReporter: the reporter tells of tests of node's own runner by the titles around them, and
// what they failed with. Nothing that the tests start has the descriptor.
func TestNodeReporter(t *testing.T) {
	reporters, dir := nodeReporters(t), t.TempDir()
	for name, text := range map[string]string{
		"a.js": `const { test, describe, it } = require("node:test"), assert = require("node:assert");
describe("suite", () => { it("in", () => {}); it("bad", () => { assert.equal(1, 2, "they differ " + "ü".repeat(1000)); }); it.skip("off", () => {}); it.todo("later", () => { throw 1; }); });
test("outer", async (t) => { await t.test("sub", () => {}); });
test("same", () => {}); test("same", () => { throw new Error("worse"); });
test("descriptor", () => { assert.throws(() => require("fs").writeSync(9, "x"), /EBADF|EINVAL|EPIPE|EAGAIN/); });`,
		"b.js": "throw new Error('not loaded');", "c.mjs": "import { none } from './a.js';", "d.js": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("node", "--require", reporters+"/node.cjs", "--test",
		"--test-reporter="+reporters+"/node-test.mjs", "--test-reporter-destination=stderr", "a.js",
		"b.js", "c.mjs", "d.js")
	command.Dir = dir
	report := reported(t, command)
	want := grade.Results{"suite > in": grade.Passed, "suite > bad": grade.Failed, "suite > off": grade.Skipped,
		"suite > later": grade.XFailed, "outer > sub": grade.Passed, "outer": grade.Passed,
		"same": grade.Failed, "descriptor": grade.Passed}
	for name, status := range want {
		if report.Results[name] != status {
			t.Errorf("%s: %q, want %s", name, report.Results[name], status)
		}
	}
	errored := 0
	for name, status := range report.Results {
		if status == grade.Errored && (strings.HasSuffix(name, "b.js") || strings.HasSuffix(name, "c.mjs")) {
			errored++
		} else if want[name] == "" && name != "suite" {
			t.Errorf("%s: %s", name, status)
		}
	}
	if said := report.Said["suite > bad"]; errored != 2 ||
		!strings.HasPrefix(said, "they differ ü") || len(said) > 400 {
		t.Errorf("%d, %q, %+v", errored, said, report)
	}
}

// TestVitestReporter: what Vitest says behind its tests is reported, as its versions say it.
func TestVitestReporter(t *testing.T) {
	reporters, dir := nodeReporters(t), t.TempDir()
	const main = `import Reporter from "REPORTERS/node-vitest.mjs";
const test = (name, state, more) => ({ type: "test", name, mode: "run", result: { state }, ...more });
const files = [
	{ name: "a.test.ts", tasks: [
		{ type: "suite", name: "suite", mode: "run", result: { state: "fail" }, tasks: [test("in", "pass"), test("bad", "fail", { result: { state: "fail", errors: [new Error("they differ")] } })] },
		{ type: "suite", name: "broken", mode: "run", result: { state: "fail", errors: [new Error("its hook")] }, tasks: [test("left", undefined, { result: undefined })] },
		test("only", "pass", { mode: "only" }), test("off", "pass", { mode: "skip" }), test("later", "pass", { mode: "todo" }), test("benchmark", "strange"),
		test("asked to skip", "skip"),
	] },
	{ name: "b.test.ts", tasks: [], result: { state: "fail", errors: [new Error("not loaded")] } },
];
new Reporter().CALL;`
	want := grade.Results{
		"suite > in": grade.Passed, "suite > bad": grade.Failed, "broken": grade.Errored,
		"broken > left": grade.Errored, "only": grade.Passed, "off": grade.Skipped, "later": grade.Skipped,
		"benchmark": grade.Errored, "asked to skip": grade.Skipped, "b.test.ts": grade.Errored,
		"unhandled": grade.Errored,
	}
	for name, call := range map[string]string{
		"1.js": `onFinished(files, [new Error("late")])`,
		"3.js": `onTestRunEnd(files.map((task) => ({ task })), [new Error("late")], "failed")`,
	} {
		text := strings.NewReplacer("REPORTERS", reporters, "CALL", call).Replace(main)
		if err := os.WriteFile(filepath.Join(dir, name+".mjs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command("node", "--require", reporters+"/node.cjs", name+".mjs")
		command.Dir = dir
		report := reported(t, command)
		if !maps.Equal(report.Results, want) || report.Said["suite > bad"] != "they differ" ||
			report.Said["unhandled"] != "late" {
			t.Errorf("%s: %+v, want %v", name, report, want)
		}
	}
}
