package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutputIsThatOfGoTest: of what passes a line, of what fails all that it said, and each test's and package's time is noted.
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
	if err := follow(&out, strings.NewReader(stream), file); err != nil {
		t.Fatal(err)
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
	out.Reset()
	if err := slowest(&out, file); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"1.5  a TestGood\n", "0.5  b TestBad\n", "2.0        0.0  a\n", "2.6        0.0  all 2 packages\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("there is no %q in\n%s", line, &out)
		}
	}
}

// TestProcessorTimeIsMeasured: a program's own, and that of what it waits for; its exit status is its own, too.
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
	code, err := measured(file, []string{root, shell, "-c", `sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 3`})
	if err != nil || code != 3 {
		t.Fatalf("exit status %d, %v; want 3", code, err)
	}
	_, packages, err := read(file)
	if err != nil || len(packages) != 1 || packages[0].Folder != "tests/times" || packages[0].CPU <= 0 {
		t.Errorf("noted %+v, %v", packages, err)
	}
}

func TestUnknownVerb(t *testing.T) {
	if _, err := run([]string{"fastest", os.DevNull}); err == nil || !strings.Contains(err.Error(), "fastest") {
		t.Errorf("an unknown verb: %v", err)
	}
}
