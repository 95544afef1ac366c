package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// slowest prints the ten tests and the ten packages that took longest, and what all took.
func slowest(w io.Writer, file string) error {
	tests, packages, err := read(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%9s  %s\n", "seconds", "slowest tests")
	for _, e := range top(tests) {
		fmt.Fprintf(w, "%9.1f  %s %s\n", e.Seconds, e.Folder, e.Test)
	}
	fmt.Fprintf(w, "%9s  %9s  %s\n", "seconds", "processor", "slowest packages")
	var all entry
	for _, e := range packages {
		all.Seconds, all.CPU = all.Seconds+e.Seconds, all.CPU+e.CPU
	}
	all.Folder = fmt.Sprintf("all %d packages", len(packages))
	for _, e := range append(slices.Clip(top(packages)), all) {
		fmt.Fprintf(w, "%9.1f  %9.1f  %s\n", e.Seconds, e.CPU, e.Folder)
	}
	return nil
}

func top(all []entry) []entry {
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return all[:min(10, len(all))]
}

// read gives the entries of tests, and those of packages with their processor time.
func read(file string) (tests, packages []entry, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	folders := map[string]*entry{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", file, err)
		}
		if e.Test != "" {
			tests = append(tests, e)
			continue
		}
		if folders[e.Folder] == nil {
			folders[e.Folder] = &entry{Folder: e.Folder}
		}
		p := folders[e.Folder]
		p.Seconds, p.CPU = p.Seconds+e.Seconds, p.CPU+e.CPU
	}
	for _, p := range folders {
		packages = append(packages, *p)
	}
	return tests, packages, lines.Err()
}
