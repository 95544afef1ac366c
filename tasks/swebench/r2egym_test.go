package swebench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/tasks"
)

// r2eSample is the sample row, and the object that it is.
func r2eSample(t testing.TB) (text string, row map[string]any) {
	t.Helper()
	data, err := os.ReadFile("testdata/r2egym.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &row); err != nil {
		t.Fatal(err)
	}
	return string(data), row
}

// oneR2E reads a row.
func oneR2E(t testing.TB, text, command string) (one Instance, err error) {
	t.Helper()
	rows := 0
	if failed := ReadR2E(strings.NewReader(text), command,
		func(i Instance, wrong error) { one, err, rows = i, wrong, rows+1 }); failed != nil {
		return one, failed
	}
	if rows != 1 {
		t.Fatalf("%d rows", rows)
	}
	return one, err
}

// TestR2ERow: a row has the fields of the data set and no others, and becomes a task that fails
// without its fix and passes with it.
func TestR2ERow(t *testing.T) {
	text, row := r2eSample(t)
	fields := strings.Fields("repo_name docker_image commit_hash parsed_commit_content execution_result_content modified_files modified_entity_summaries relevant_files " +
		"num_non_test_files num_non_test_func_methods num_non_test_lines prompt problem_statement expected_output_json")
	for _, name := range fields {
		if _, there := row[name]; !there || len(row) != len(fields) {
			t.Errorf("%s: %v, of %d fields", name, there, len(row))
		}
	}
	one, err := oneR2E(t, text, "python3 -m pytest -rA r2e_tests")
	if err != nil {
		t.Fatal(err)
	}
	kept := Names{"r2e_tests/test_1.py::TestSlugs::test_words", "r2e_tests/test_1.py::test_forms[a - b]",
		"r2e_tests/test_1.py::test_forms[a b]", "r2e_tests/test_1.py::test_forms[a::b]"}
	if !slices.Equal(one.FailToPass, Names{"r2e_tests/test_1.py::TestSlugs::test_edges"}) ||
		!slices.Equal(one.PassToPass, kept) {
		t.Errorf("graded are %q and %q", one.FailToPass, one.PassToPass)
	}
	if !strings.HasPrefix(one.Problem, "**Title:**") || strings.Contains(one.Problem, "ISSUE]") ||
		strings.Contains(one.Patch, "tests/") {
		t.Errorf("problem %q, patch %q", one.Problem, one.Patch)
	}
	sandboxtest.Require(t)
	need(t, "python3", "git", "pytest")
	dir := t.TempDir()
	if err := one.Write(t.Context(), dir, Repositories{"slugs/slugs": "testdata/repos/slugs"}); err != nil {
		t.Fatal(err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 || loaded[0].Image != "" {
		t.Fatalf("%+v, %v", loaded, err)
	}
	if report := tasks.Lint(t.Context(), loaded[0], tasks.LintOptions{Repeats: 1,
		Machine: tasks.Machine{ToolchainCache: cacheDir(t)}}); !report.OK {
		t.Errorf("%+v", report)
	}
}

// TestR2EImage: without a repository the task has the row's image without what would show the
// tests, and runs its script.
func TestR2EImage(t *testing.T) {
	text, _ := r2eSample(t)
	one, err := oneR2E(t, text, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := one.Write(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, one.ID, "environment/Dockerfile"))
	if want := "FROM acme/slugs_final:1234567890abcdef1234567890abcdef12345678\nRUN rm -rf /r2e_tests /testbed/r2e_tests\n"; err != nil ||
		string(file) != want {
		t.Errorf("%q, %v", file, err)
	}
	script, err := os.ReadFile(filepath.Join(dir, one.ID, "tests/test.sh"))
	if err != nil || !strings.Contains(string(script), " && bash run_tests.sh\ncode=$?\n") {
		t.Errorf("%q, %v", script, err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	task := loaded[0]
	if !strings.HasPrefix(task.Image, "rondo-task:") || len(task.Builds) != 1 ||
		task.Workdir != workdir || task.Snapshot != nil {
		t.Errorf("image %q, builds %+v, workdir %s", task.Image, task.Builds, task.Workdir)
	}
	for _, name := range []string{"run_tests.sh", "Tests/helper.py", "r2e_tests/test_1.py", "r2e_tests/__init__.py"} {
		if !slices.Contains(task.Protected, name) {
			t.Errorf("%s is not protected: %q", name, task.Protected)
		}
	}
}

func TestR2ERefusals(t *testing.T) {
	inside := func(field, old, new string) func(map[string]any) {
		return func(row map[string]any) {
			if text := row[field].(string); !strings.Contains(text, old) {
				t.Errorf("%s does not contain %q", field, old)
			} else {
				row[field] = strings.ReplaceAll(text, old, new)
			}
		}
	}
	set := func(field string, value any) func(map[string]any) {
		return func(row map[string]any) { row[field] = value }
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string // of the error; "" for none
	}{
		"as it is":           {func(map[string]any) {}, ""},
		"no expected output": {set("expected_output_json", ""), ""},
		"a coloured name": {inside("expected_output_json", "TestSlugs.test_edges",
			`\u001b[1mTestSlugs.test_edges\u001b[0m`), ""},
		"a file that is none": {inside("parsed_commit_content", `"is_binary_file": false`, `"is_binary_file": true`),
			""},
		"no log": {inside("execution_result_content", "short test summary info", ""),
			"no test of pytest's"},
		"another program": {inside("execution_result_content", "r2e_tests/test_1.py::", "r2e_tests.test_1::"),
			"no test of pytest's"},
		"an unknown test": {inside("expected_output_json", "test_umlauts\": \"FAILED", "test_other\": \"PASSED"),
			`"test_other"`},
		"nothing fails before": {inside("expected_output_json", "test_edges\": \"PASSED", "test_edges\": \"FAILED"),
			"fail_to_pass"},
		"no JSON inside":   {set("execution_result_content", "{"), "execution_result_content"},
		"no JSON expected": {set("expected_output_json", "[]"), "expected_output_json"},
		"no commit":        {set("parsed_commit_content", "7"), "parsed_commit_content"},
		"another line":     {inside("parsed_commit_content", `"deleted"`, `"moved"`), "moved"},
		"a file elsewhere": {inside("execution_result_content", `"test_1.py"`, `"../test_1.py"`),
			"test_file_names"},
		"a file too few":      {inside("execution_result_content", `"test_1.py"`, ``), "test_file_names"},
		"no hash":             {set("commit_hash", "HEAD"), "commit_hash"},
		"a repository's path": {set("repo_name", "../x"), "instance_id"},
		"an image of two":     {set("docker_image", "a\nRUN b"), "docker_image"},
		"no problem":          {set("problem_statement", "[ISSUE][/ISSUE]"), "problem_statement"},
		"a number":            {set("repo_name", 7), "row 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, row := r2eSample(t)
			c.change(row)
			text, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			one, err := oneR2E(t, string(text), "")
			dir := t.TempDir()
			if err == nil {
				err = one.Write(t.Context(), dir, nil)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q: %v", c.want, err)
			}
			if left, _ := os.ReadDir(dir); err != nil && len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	if _, err := oneR2E(t, strings.Repeat("x", maxRow+1), ""); err == nil ||
		!strings.Contains(err.Error(), "row 1: more than") {
		t.Errorf("a row that is too long: %v", err)
	}
}

// FuzzReadR2E: no row makes the reader fail otherwise than with an error, and what it takes
// names tests that its log has.
func FuzzReadR2E(f *testing.F) {
	text, _ := r2eSample(f)
	f.Add(text)
	f.Add(`{"commit_hash": "0123456", "execution_result_content": "{\"old_commit_res_stdout\": \"short test summary info\\nFAILED r2e_tests/a.py::b - c\"}"}`)
	f.Fuzz(func(t *testing.T, text string) {
		_ = ReadR2E(strings.NewReader(text), "", func(one Instance, err error) {
			for _, name := range slices.Concat(one.FailToPass, one.PassToPass) {
				if !strings.HasPrefix(name, r2eTests+"/") {
					t.Errorf("graded is %q", name)
				}
			}
		})
	})
}
