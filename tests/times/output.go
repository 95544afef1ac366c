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

// follow prints what go test prints without -json: all that failing tests said, and a line for each package. It adds their times to the file.
func follow(w io.Writer, stream io.Reader, file string) error {
	said := map[[2]string]*strings.Builder{} // by package and test; of tests that have not ended
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(w, "%s", line) // go's own words
			continue
		}
		if err := follower(w, said, e, file); err != nil {
			return err
		}
	}
}

func follower(w io.Writer, said map[[2]string]*strings.Builder, e event, file string) error {
	top, _, _ := strings.Cut(e.Test, "/")
	key := [2]string{e.Package, top}
	switch e.Action {
	case "build-output":
		fmt.Fprint(w, e.Output)
	case "output":
		if said[key] == nil {
			said[key] = &strings.Builder{}
		}
		said[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test != top {
			return nil // a part's end: what it said stands at its test
		}
		noted := entry{Folder: strings.TrimPrefix(e.Package, module), Test: e.Test, Outcome: e.Action, Seconds: e.Elapsed}
		if b := said[key]; b != nil && (e.Action == "fail" || e.Test == "") {
			text := printed(b.String(), e.Action == "fail")
			fmt.Fprint(w, text)
			if e.Action == "fail" {
				noted.Text = text
			}
		}
		delete(said, key)
		return add(file, noted)
	}
	return nil
}

// printed leaves out the lines by which a test program marks beginnings and pauses, and a passed package's all but its last.
func printed(text string, failed bool) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "=== "), strings.HasPrefix(strings.TrimLeft(line, " "), "--- PASS"), line == "PASS\n":
		case failed, strings.HasPrefix(line, "ok  \t"), strings.HasPrefix(line, "?   \t"), strings.HasPrefix(line, "\t"):
			b.WriteString(line)
		}
	}
	return b.String()
}
