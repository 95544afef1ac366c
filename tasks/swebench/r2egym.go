package swebench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/wording"
)

// r2eRow is a row of R2E-Gym's data sets, as far as a task needs it. Two of its fields
// are JSON inside of a text.
type r2eRow struct {
	Repo      string `json:"repo_name"`
	Image     string `json:"docker_image"`
	Commit    string `json:"commit_hash"`
	Problem   string `json:"problem_statement"`
	Expected  string `json:"expected_output_json"`
	Parsed    string `json:"parsed_commit_content"`
	Execution string `json:"execution_result_content"`
}

// r2eExecution is what R2E-Gym's authors saw of a row's tests: the files, and what pytest printed
// behind the commit and before it.
type r2eExecution struct {
	Codes  []string `json:"test_file_codes"`
	Names  []string `json:"test_file_names"`
	Before string   `json:"old_commit_res_stdout"`
	Behind string   `json:"new_commit_res_stdout"`
}

// maxRow bounds a row in bytes: it holds all files that its commit touches, before and behind it.
const maxRow = 64 << 20

// r2eOwners are the owners of the repositories that R2E-Gym's data sets name without one.
var r2eOwners = map[string]string{
	"aiohttp": "aio-libs/aiohttp", "bokeh": "bokeh/bokeh", "coveragepy": "nedbat/coveragepy",
	"datalad": "datalad/datalad", "numpy": "numpy/numpy", "orange3": "biolab/orange3",
	"pandas": "pandas-dev/pandas", "pillow": "python-pillow/Pillow", "pyramid": "Pylons/pyramid",
	"scrapy": "scrapy/scrapy", "sympy": "sympy/sympy", "tornado": "tornadoweb/tornado",
}

// r2eTests is where R2E-Gym has a row's tests in the workspace, and r2eCommand what runs them in
// its images. A helper of Pillow's tests is no part of the row.
const (
	r2eTests   = "r2e_tests"
	r2eHelper  = "Tests/helper.py"
	r2eScript  = "run_tests.sh"
	r2eCommand = "bash " + r2eScript
)

// ReadR2E reads rows of R2E-Gym's data sets, a JSON object on each line, and gives each one as an
// instance, or with what is wrong with it. It keeps one row at a time. command runs the tests; ""
// is the script of the row's image.
func ReadR2E(from io.Reader, command string, each func(Instance, error)) error {
	number := 0
	return readRows(from, maxRow, func(text json.RawMessage, wrong error) {
		number++
		var row r2eRow
		var one Instance
		if wrong == nil {
			wrong = json.Unmarshal(text, &row)
		}
		var field *json.UnmarshalTypeError
		if errors.As(wrong, &field) {
			wrong = fmt.Errorf("%s: want text, not a %s", field.Field, field.Value)
		}
		if wrong == nil {
			one, wrong = row.instance(command)
		}
		if wrong != nil {
			wrong = fmt.Errorf("row %d, %.40s %.40s: %w", number, row.Repo, row.Commit, wrong)
		}
		each(one, wrong)
	})
}

// instance turns a row into an instance of SWE-bench's form: its tests become the patch of the
// tests, and those that expected_output_json has as passed are graded.
func (r r2eRow) instance(command string) (one Instance, err error) {
	var seen r2eExecution
	if err := json.Unmarshal([]byte(r.Execution), &seen); err != nil {
		return one, fmt.Errorf("execution_result_content: %w", wording.Plain(err))
	}
	if !validCommit.MatchString(r.Commit) {
		return one, fmt.Errorf("commit_hash %.60q: want a commit's hexadecimal digits", r.Commit)
	}
	command = cmp.Or(command, r2eCommand)
	repo := r2eOwners[r.Repo]
	repo = cmp.Or(repo, r.Repo+"/"+r.Repo)
	one = Instance{Set: "r2egym", ID: r.Repo + "-" + r.Commit[:min(12, len(r.Commit))], Repo: repo,
		BaseCommit: r.Commit + "^", Problem: issueOf(r.Problem), LogParser: "pytest", Image: r.Image,
		TestCommand: "{ [ ! -f " + r2eHelper + " ] || cp " + r2eHelper + " " + r2eTests + "/; } && " + command,
		Hidden:      []string{"/" + r2eTests, workdir + "/" + r2eTests},
		Protected:   []string{r2eHelper, r2eScript}}
	if one.FailToPass, one.PassToPass, err = seen.graded(r.Expected); err != nil {
		return one, err
	}
	if one.TestPatch, err = seen.patch(); err != nil {
		return one, err
	}
	one.Patch, err = fixOf(r.Parsed)
	return one, err
}

// issueOf is the text between the marks that R2E-Gym has around an issue, or all of it.
func issueOf(text string) string {
	if _, behind, found := strings.Cut(text, "[ISSUE]"); found {
		text = behind
	}
	text, _, _ = strings.Cut(text, "[/ISSUE]")
	return strings.TrimSpace(text)
}

// graded are the tests that must begin to pass, and those that must go on passing, by the ids
// that pytest has for them.
func (e r2eExecution) graded(expected string) (fixed, kept Names, err error) {
	before, behind := outcomes(e.Before), outcomes(e.Behind)
	if len(before) == 0 || len(behind) == 0 {
		return nil, nil,
			fmt.Errorf("execution_result_content: its logs name no test of pytest's in %s: rows with a test program of their own, such as tornado's, are not read", r2eTests)
	}
	wanted := map[string]string{}
	if strings.TrimSpace(expected) == "" {
		expected = "{}"
	}
	var told map[string]string
	if err := json.Unmarshal([]byte(expected), &told); err != nil {
		return nil, nil, fmt.Errorf("expected_output_json: %w", err)
	}
	for name, status := range told {
		name, _, _ = strings.Cut(colours.ReplaceAllString(name, ""), " - ")
		wanted[name] = status
	}
	found := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(behind)) {
		name := shortName(id)
		if behind[id] != passed || len(told) > 0 && wanted[name] != passed {
			continue
		}
		found[name] = true
		if before[id] == passed {
			kept = append(kept, id)
		} else {
			fixed = append(fixed, id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[name] == passed && !found[name] {
			return nil, nil,
				fmt.Errorf("expected_output_json: %.100q is no test that passes in execution_result_content", name)
		}
	}
	return fixed, kept, nil
}

const passed = "PASSED"

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m|\r")

// outcomes are the tests in pytest's summary, by their ids; of one that is there
// twice, the worse outcome.
func outcomes(log string) map[string]string {
	found := map[string]string{}
	_, log, _ = strings.Cut(colours.ReplaceAllString(log, ""), "short test summary info")
	for line := range strings.Lines(log) {
		status, id, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		switch status {
		case passed:
		case "FAILED", "ERROR":
			id, _, _ = strings.Cut(id, " - ")
		default:
			continue
		}
		if strings.HasPrefix(id, r2eTests+"/") && strings.Contains(id, ".py::") &&
			(found[id] == "" || status != passed) {
			found[id] = status
		}
	}
	return found
}

// shortName is a test's name as expected_output_json has it: without the file.
func shortName(id string) string {
	_, name, _ := strings.Cut(id, "::")
	name, _, _ = strings.Cut(strings.ReplaceAll(name, "::", "."), " - ")
	return name
}

var testFile = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py$`)

// patch adds the row's tests to a repository.
func (e r2eExecution) patch() (string, error) {
	if len(e.Names) == 0 || len(e.Names) != len(e.Codes) {
		return "", fmt.Errorf("execution_result_content: %d test_file_names and %d test_file_codes", len(e.Names),
			len(e.Codes))
	}
	files := map[string]string{"__init__.py": ""}
	for i, name := range e.Names {
		if !testFile.MatchString(name) {
			return "", fmt.Errorf("execution_result_content: test_file_names: %.60q: want the name of a Python file",
				name)
		}
		files[name] = e.Codes[i]
	}
	var patch strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		name, text := path.Join(r2eTests, name), files[name]
		fmt.Fprintf(&patch, "diff --git a/%s b/%s\nnew file mode 100644\n", name, name)
		if text == "" {
			continue
		}
		lines := slices.Collect(strings.Lines(text))
		fmt.Fprintf(&patch, "--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n+%s", name, len(lines),
			strings.Join(lines, "+"))
		if !strings.HasSuffix(text, "\n") {
			patch.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return patch.String(), nil
}
