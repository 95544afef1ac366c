package rules

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFindingsAreThoseOfGitleaks compares what is found with what gitleaks finds in the same texts.
// tests/gitleaks recorded them.
func TestFindingsAreThoseOfGitleaks(t *testing.T) {
	set, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("testdata/findings.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(unpacked)
	texts := 0
	for ; ; texts++ {
		var record struct {
			Text  string
			Found [][2]string
		}
		if err := lines.Decode(&record); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found := [][2]string{}
		for _, f := range set.Find(record.Text) {
			found = append(found, [2]string{f.Rule, f.Secret})
		}
		slices.SortFunc(found, func(a, b [2]string) int {
			return cmp.Or(cmp.Compare(a[0], b[0]),
				cmp.Compare(a[1], b[1]))
		})
		if !slices.Equal(found, record.Found) {
			t.Errorf("in %q found %q, gitleaks %q", record.Text, found, record.Found)
		}
	}
	if texts < 5000 {
		t.Errorf("only %d texts are recorded", texts)
	}
}

// TestUnknownConditionsAreRefused shows that a rule with a condition that is not applied here does
// not find more or less in silence.
func TestUnknownConditionsAreRefused(t *testing.T) {
	known := string(source)
	for name, change := range map[string][2]string{
		"field of a rule":       {"secretGroup = 2", "secretGroup = 2\nskipReport = true"},
		"field of an allowlist": {"regexTarget = \"line\"", "commits = [\"a\"]"},
		"required rule":         {"secretGroup = 2", "[[rules.required]]\nid = \"x\"\n"},
		"global list":           {"[allowlist]", "[[allowlists]]\ntargetRules = [\"x\"]\n[allowlist]"},
		"target":                {"regexTarget = \"line\"", "regexTarget = \"file\""},
		"condition":             {"condition = \"AND\"", "condition = \"XOR\""},
		"group":                 {"secretGroup = 2", "secretGroup = 3"},
		"guarded rule":          {`id = "generic-api-key"`, `id = "general-api-key"`},
	} {
		changed := strings.Replace(known, change[0], change[1], 1)
		if changed == known {
			t.Fatalf("%s: the rules have no %s", name, change[0])
		}
		if _, err := parse([]byte(changed)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
