package readme

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

// contract is a test against packages of others, as tests/adapters/contracts.toml names it.
type contract struct {
	Name     string
	Nightly  bool `toml:"nightly"`
	Packages []struct{ Name, Shown, Ours, Covers string }
}

// passed is what tests/adapters/seen.json says of a contract's requirements.
type passed struct{ Pins, On, Python string }

// pinned are the lines of requirements that fix a version.
var pinned = regexp.MustCompile(`(?m)^([@A-Za-z0-9._/-]+)==(\S+)`)

// TestCompatibility: the table of the guide has the versions that the contracts' requirements pin,
// each contract is in it, and all of them were seen to pass with these pins.
func TestCompatibility(t *testing.T) {
	folder := filepath.Join(root, "tests/adapters")
	var listed struct{ Contract []contract }
	if err := toml.Unmarshal([]byte(read(t, filepath.Join(folder, "contracts.toml"))), &listed); err != nil {
		t.Fatal(err)
	}
	seen := map[string]passed{}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(folder, "seen.json"))), &seen); err != nil {
		t.Fatal(err)
	}
	table := "| package | version | Rondo's part | what is the package's own | seen |\n|---|---|---|---|---|\n"
	var names, nightly []string
	for _, c := range listed.Contract {
		if names = append(names, c.Name); c.Nightly {
			nightly = append(nightly, c.Name)
		}
		versions, last := map[string][]string{}, passed{}
		files, err := filepath.Glob(filepath.Join(folder, c.Name, "requirements*.txt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("contract %s has no requirements: %v", c.Name, err)
		}
		for _, file := range files {
			was, key := seen[c.Name+"/"+filepath.Base(file)], c.Name+"/"+filepath.Base(file)
			var pins []string
			for _, pin := range pinned.FindAllStringSubmatch(read(t, file), -1) {
				pins = append(pins, pin[0])
				versions[pin[1]] = append(versions[pin[1]], pin[2])
			}
			sum := sha256.Sum256([]byte(strings.Join(pins, "\n")))
			if was.Pins != hex.EncodeToString(sum[:])[:16] {
				t.Errorf("%s was not seen to pass with these pins: task contracts -- %s", key, c.Name)
			}
			delete(seen, key)
			last = passed{On: max(last.On, was.On), Python: cmp.Or(was.Python, last.Python)}
		}
		for _, p := range c.Packages {
			of := versions[p.Name]
			if len(of) == 0 {
				t.Errorf("the requirements of contract %s do not pin %s", c.Name, p.Name)
			}
			slices.Reverse(of)
			by := last.On + ", Python " + last.Python
			if c.Nightly {
				by = "by CI"
			}
			table += fmt.Sprintf("| %s | %s | `%s` | %s | %s |\n", p.Shown,
				strings.Join(of, ", "), p.Ours, p.Covers, by)
		}
	}
	for key := range maps.Keys(seen) {
		t.Errorf("seen.json has %s, and contracts.toml no such contract", key)
	}
	tests, err := filepath.Glob(filepath.Join(folder, "*/contract.py"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range tests {
		tests[i] = filepath.Base(filepath.Dir(tests[i]))
	}
	if slices.Sort(names); !slices.Equal(names, tests) {
		t.Errorf("contracts.toml has %v, and there are the tests %v", names, tests)
	}
	slices.Sort(nightly)
	if want := "tests/adapters/run " + strings.Join(nightly, " ") +
		"\n"; !strings.Contains(read(t, filepath.Join(root, ".ci/nightly")), want) {
		t.Errorf(".ci/nightly does not run %q", want)
	}
	generated(t, "docs/guide/compatibility.md", "compatibility", table)
}
