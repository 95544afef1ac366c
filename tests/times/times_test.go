package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOutputIsThatOfGoTest: of what passes a line, of what fails all that it said, and each test's
// and package's time is noted.
func TestOutputIsThatOfGoTest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times")
	var out strings.Builder
	stream := `go: a word of go's own
{"Action":"output","Package":"github.com/rondo-rl/rondo/a","Test":"TestGood","Output":"said and forgotten\n"}
{"Action":"pass","Package":"github.com/rondo-rl/rondo/a","Test":"TestGood","Elapsed":1.5}
{"Action":"output","Package":"github.com/rondo-rl/rondo/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/rondo-rl/rondo/a","Output":"ok  \tgithub.com/rondo-rl/rondo/a\t2.000s\n"}
{"Action":"pass","Package":"github.com/rondo-rl/rondo/a","Elapsed":2}
{"Action":"output","Package":"github.com/rondo-rl/rondo/b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"github.com/rondo-rl/rondo/b","Test":"TestBad/part","Output":"    b_test.go:7: wrong\n"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/b","Test":"TestBad/part","Elapsed":0.5}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/b","Test":"TestBad","Elapsed":0.5}
{"Action":"output","Package":"github.com/rondo-rl/rondo/b","Output":"FAIL\tgithub.com/rondo-rl/rondo/b\t0.600s\n"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/b","Elapsed":0.6}
{"ImportPath":"github.com/rondo-rl/rondo/c","Action":"build-output","Output":"c.go:1: no such thing\n"}
`
	failures, err := follow(&out, strings.NewReader(stream), file)
	if err != nil {
		t.Fatal(err)
	}
	if want := []failure{{pkg: module + "b"}}; !slices.Equal(failures, want) {
		t.Errorf("failed %v, want %v", failures, want)
	}
	want := `go: a word of go's own
ok  	github.com/rondo-rl/rondo/a	2.000s
    b_test.go:7: wrong
FAIL	github.com/rondo-rl/rondo/b	0.600s
c.go:1: no such thing
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
	m, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "guarantees.md")
	rows := "| guarantee | tests |\n|---|---|\n| Good | `TestGood`, `TestElsewhere` |\n| Bad | `TestBad` |\n"
	if err := os.WriteFile(page, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	promises, err := guarantees(page)
	if err != nil || len(promises) != 2 {
		t.Fatalf("%+v, %v", promises, err)
	}
	out.Reset()
	m.table(&out, promises)
	for _, line := range []string{"1.5             a TestGood\n", "0.5             b TestBad\n",
		"2.0        0.0  a                                3\n", "0.6        0.0  b                                \n",
		"2.6        0.0  all 2 packages\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("there is no %q in\n%s", line, &out)
		}
	}
	// What failed or was skipped guards nothing.
	if err := m.guarded(promises); err == nil ||
		!strings.Contains(err.Error(), "docs/guarantees.md:4: none of TestBad passed") ||
		strings.Contains(err.Error(), ":3:") {
		t.Errorf("guarded: %v", err)
	}
	if err := m.guarded(promises[:1]); err != nil {
		t.Errorf("one of two tests is enough: %v", err)
	}
	// only the package that is named
	for test, guards := range map[string]bool{"a.TestGood": true, "z/b.TestGood": false} {
		if err := m.guarded([]guarantee{{line: 5, tests: []string{test}}}); (err == nil) != guards {
			t.Errorf("%s guards: %v", test, err)
		}
	}
}

// TestFailed: a test that fails now and then is named with its first failure, a package that fails
// without a test by itself, and what passes is not.
func TestFailed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "times")
	for _, e := range []entry{
		{Folder: "a", Test: "TestNow", Outcome: "pass"}, {Folder: "a", Outcome: "pass"},
		{Folder: "a", Test: "TestNow", Outcome: "fail", Text: "first\n"},
		{Folder: "a", Outcome: "fail", Text: "FAIL\n"},
		{Folder: "a", Test: "TestNow", Outcome: "fail", Text: "second\n"},
		{Folder: "a", Outcome: "fail", Text: "FAIL\n"},
		{Folder: "b", Test: "TestGood", Outcome: "pass"}, {Folder: "b", Outcome: "fail", Text: "exit status 2\n"},
		{Folder: "b", Outcome: "pass"},
		{Folder: "c", Test: "TestGood", Outcome: "pass"}, {Folder: "c", Outcome: "pass"},
	} {
		if err := add(file, e); err != nil {
			t.Fatal(err)
		}
	}
	m, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	want := "a TestNow failed 2 of 3 times, at first so:\nfirst\nb failed 1 of 2 times, at first so:\nexit status 2\n"
	if code := m.failed(&out); code != 1 || out.String() != want {
		t.Errorf("%d, printed\n%s\nwant\n%s", code, &out, want)
	}
	out.Reset()
	if code := (measurement{tests: []entry{{Folder: "c", Test: "TestGood", Outcome: "pass"}}}).failed(
		&out); code != 0 || out.Len() > 0 {
		t.Errorf("all passed: %d, printed %q", code, &out)
	}
}

// TestRetried: few packages that failed by what may be chance are tested again, with the run's
// flags. Races, what does not build, and many at once are sure.
func TestRetried(t *testing.T) {
	stream := `{"Action":"output","Package":"github.com/rondo-rl/rondo/a","Test":"TestRace","Output":"WARNING: DATA RACE\n"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/a","Test":"TestRace"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/a"}
{"Action":"output","Package":"github.com/rondo-rl/rondo/b","Output":"FAIL\tgithub.com/rondo-rl/rondo/b [build failed]\n"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/b"}
{"Action":"output","Package":"github.com/rondo-rl/rondo/c","Output":"exit status 1\n"}
{"Action":"fail","Package":"github.com/rondo-rl/rondo/c"}
`
	all, err := follow(io.Discard, strings.NewReader(stream), filepath.Join(t.TempDir(), "times"))
	if err != nil || len(all) != 3 {
		t.Fatalf("failed %v, %v", all, err)
	}
	args := []string{"-race", "-timeout", "20m", module + "a", module + "b", module + "c", module + "good"}
	again, why := retried(args, all[2:])
	if want := []string{"-race", "-timeout", "20m", "-p=1", module + "c"}; !slices.Equal(again, want) {
		t.Errorf("again %v, %q, want %v", again, why, want)
	}
	for want, failures := range map[string][]failure{
		"a data race": all[:1], "not build": all[1:], "4 packages": slices.Repeat(all[2:], 4), "no package": nil,
	} {
		if again, why := retried(args, failures); again != nil || !strings.Contains(why, want) {
			t.Errorf("again %v, %q, want %q", again, why, want)
		}
	}
}

// TestGuaranteesAreRead: each row of the document that is checked at the end of .ci/run.
func TestGuaranteesAreRead(t *testing.T) {
	promises, err := guarantees("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(string(text), "\n| ") - strings.Count(string(text),
		"\n| guarantee |"); len(promises) != rows {
		t.Errorf("%d rows are read of %d", len(promises), rows)
	}
	if _, err := guarantees("times_test.go"); err == nil {
		t.Error("a file without rows is read")
	}
}

// TestProcessorTimeIsMeasured: a program's own, and that of what it waits for; its
// exit status is its own, too.
func TestProcessorTimeIsMeasured(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "times")
	code, err := measured(file, []string{root, shell, "-c",
		`sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 3`})
	if err != nil || code != 3 {
		t.Fatalf("exit status %d, %v; want 3", code, err)
	}
	m, err := read(file)
	if err != nil || len(m.packages) != 1 || m.packages[0].Folder != "tests/times" || m.packages[0].CPU <= 0 {
		t.Errorf("noted %+v, %v", m.packages, err)
	}
}

func TestUnknownVerb(t *testing.T) {
	if _, err := run([]string{"fastest", os.DevNull}); err == nil || !strings.Contains(err.Error(), "fastest") {
		t.Errorf("an unknown verb: %v", err)
	}
}
