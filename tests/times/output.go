package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of what does not build
	Test       string
	Elapsed    float64
	Output     string
}

// failure is a package that failed. Where a second run would not tell chance
// from fault, sure says why.
type failure struct{ pkg, sure string }

// follower reads the stream of one run of go test.
type follower struct {
	w        io.Writer
	file     string
	said     map[[2]string]*strings.Builder // by package and test; of tests that have not ended
	sure     map[string]string              // by package
	failures []failure
}

// follow prints what go test prints without -json: all that failing tests said, and a line for each
// package. It adds their times to the file.
func follow(w io.Writer, stream io.Reader, file string) ([]failure, error) {
	f := follower{w: w, file: file, said: map[[2]string]*strings.Builder{}, sure: map[string]string{}}
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			if err == io.EOF {
				return f.failures, nil
			}
			return nil, err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(w, "%s", line) // go's own words
			continue
		}
		if err := f.take(e); err != nil {
			return nil, err
		}
	}
}

func (f *follower) take(e event) error {
	top, _, _ := strings.Cut(e.Test, "/")
	key := [2]string{e.Package, top}
	switch e.Action {
	case "build-output":
		fmt.Fprint(f.w, e.Output)
	case "output":
		if f.said[key] == nil {
			f.said[key] = &strings.Builder{}
		}
		f.said[key].WriteString(e.Output)
		switch {
		case strings.HasPrefix(e.Output, "WARNING: DATA RACE"):
			f.sure[e.Package] = "it has a data race"
		case strings.HasSuffix(e.Output, " failed]\n"):
			f.sure[e.Package] = "it does not build"
		}
	case "pass", "fail", "skip":
		if e.Test != top {
			return nil // a part's end: what it said stands at its test
		}
		return f.end(key, e)
	}
	return nil
}

// end is that of a test, or of a package.
func (f *follower) end(key [2]string, e event) error {
	noted := entry{Folder: strings.TrimPrefix(e.Package, module), Test: e.Test, Outcome: e.Action, Seconds: e.Elapsed}
	if b := f.said[key]; b != nil && (e.Action == "fail" || e.Test == "") {
		text := printed(b.String(), e.Action == "fail")
		fmt.Fprint(f.w, text)
		if e.Action == "fail" {
			noted.Text = text
		}
	}
	delete(f.said, key)
	if e.Action == "fail" && e.Test == "" {
		f.failures = append(f.failures, failure{pkg: e.Package, sure: f.sure[e.Package]})
	}
	return add(f.file, noted)
}

// printed leaves out the lines by which a test program marks beginnings and pauses, and a passed
// package's all but its last.
func printed(text string, failed bool) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "=== "), strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS"),
			line == "PASS\n":
		case failed, strings.HasPrefix(line, "ok  \t"), strings.HasPrefix(line, "?   \t"),
			strings.HasPrefix(line, "\t"):
			b.WriteString(line)
		}
	}
	return b.String()
}
