package table

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/bench/feed"
)

// TestRecordedResults makes rows of what the benchmarks have printed.
func TestRecordedResults(t *testing.T) {
	for name, want := range map[string][]string{
		"pipeline": {"nats.go: event to event", "nats.go: event to event"},
		"feed":     {"Arrow files, each synced", "Arrow files, read"},
		"sandbox":  {"fork and exec"}, // the machine had no bubblewrap
	} {
		text, err := os.ReadFile(filepath.Join("..", "scale", "measured", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(measurements, func(m measurement) bool { return m.name == name })
		rows, err := measurements[i].rows(text)
		if name == "sandbox" && (err == nil || !strings.Contains(err.Error(), "bwrap is not installed")) || name != "sandbox" && err != nil || len(rows) < len(want) {
			t.Fatalf("%s: %d rows: %v", name, len(rows), err)
		}
		for at, beside := range want {
			if r := rows[at]; r.Beside != beside || !(r.Rondo > 0 && r.Other > 0 && r.Ratio > 0) {
				t.Errorf("%s: row %d is %+v", name, at, r)
			}
		}
	}
}

// TestPushBesideAppends: a push is shown beside the files and beside NATS, each of which does a part of it.
func TestPushBesideAppends(t *testing.T) {
	rows, err := feedRows(feed.Result{Turns: []feed.Turn{{Push: 3, RawWrite: 6, Pull: 1, RawRead: 1, RawAppend: 12}}})
	if err != nil || len(rows) != 3 || rows[2].Rondo != 3 || rows[2].Other != 12 || rows[2].Ratio != 0.25 || rows[2].What != rows[0].What {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestRecordedRivals puts Rondo beside each rival that ran, and names the others.
func TestRecordedRivals(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "rivals", "measured", "*.json"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d recorded rows: %v", len(files), err)
	}
	all := map[string]json.RawMessage{"absent": []byte(`{"not_run":"it needs python3.12"}`)}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = text
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]string{}
	rows, err := rivalRows(missing)(text)
	if err != nil {
		t.Fatal(err)
	}
	lost := slices.IndexFunc(rows, func(r Row) bool { return r.Beside == "trl" && r.Other > 0 && r.Rondo == 0 })
	if want := 3 * (len(files) - 1); len(rows) != want || lost < 0 {
		t.Errorf("%d rows instead of %d, and what TRL loses is row %d", len(rows), want, lost)
	}
	if missing["rivals: absent"] != "it needs python3.12" {
		t.Errorf("what did not run: %v", missing)
	}
	delete(all, "rondo-always")
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	if rows, err := rivalRows(missing)(text); err == nil {
		t.Errorf("without Rondo there are rows: %v", rows)
	}
}

// TestWhatCannotBeMeasured is named with its last words, and keeps nothing else from being measured.
func TestWhatCannotBeMeasured(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rondo-bench")
	script := "#!/bin/sh\n[ \"$1\" = sandbox ] && { echo starting >&2; echo 'no user namespaces' >&2; exit 1; }\necho progress\necho '{\"barrier\":0.25,\"queue\":0.5,\"rondo\":1}'\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), Options{Program: program, Only: []string{"sandbox", "utilisation", "rivals"}}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Ratio != 4 || r.Rows[1].Ratio != 2 || r.Rows[0].Measurement != "utilisation" {
		t.Errorf("rows: %+v", r.Rows)
	}
	if len(r.Missing) != 2 || !strings.Contains(r.Missing["sandbox"], "no user namespaces") || !strings.Contains(r.Missing["rivals"], "--rivals") {
		t.Errorf("missing: %v", r.Missing)
	}
	if _, err := Run(t.Context(), Options{Program: program, Only: []string{"sandboxes"}}, func(string) {}); err == nil || !strings.Contains(err.Error(), "sandbox, index") {
		t.Errorf("an unknown name: %v", err)
	}
}
