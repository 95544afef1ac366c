package swebench

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/rondo-rl/rondo/wording"
)

// Spec says how a version of a repository runs its tests. Published rows do not: their data set's
// harness holds a table of it.
type Spec struct {
	TestCommand Command `json:"test_cmd"`
	LogParser   string  `json:"log_parser"`
	Image       string  `json:"docker_image"`
}

// Command is one command, or several of which each needs the one before.
type Command string

// UnmarshalJSON implements json.Unmarshaler.
func (c *Command) UnmarshalJSON(data []byte) error {
	var list []string
	if json.Unmarshal(data, &list) == nil {
		*c = Command(strings.Join(list, " && "))
		return nil
	}
	return json.Unmarshal(data, (*string)(c))
}

// merge is a spec with another one below it, which says what it leaves open.
func (s Spec) merge(below Spec) Spec {
	s.TestCommand = cmp.Or(s.TestCommand, below.TestCommand)
	s.LogParser = cmp.Or(s.LogParser, below.LogParser)
	s.Image = cmp.Or(s.Image, below.Image)
	return s
}

// Specs are specifications by repository and version. The version "*" holds for all versions of a
// repository, the repository "*" for all of them.
type Specs map[string]map[string]Spec

// anything is the repository or the version that stands for all.
const anything = "*"

// ReadSpecs reads a table in JSON: {"owner/name": {"version": {"test_cmd": …, "log_parser": …}}}.
// Keys beside these are left alone.
func ReadSpecs(name string) (Specs, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var specs Specs
	if err == nil {
		err = wording.Plain(json.Unmarshal(data, &specs))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return specs, nil
}

// Else is the table with a spec for whatever it leaves open.
func (s Specs) Else(spec Spec) Specs {
	all := maps.Clone(s)
	versions := maps.Clone(s[anything])
	if versions == nil {
		versions = map[string]Spec{}
	}
	versions[anything] = versions[anything].merge(spec)
	if all == nil {
		all = Specs{}
	}
	all[anything] = versions
	return all
}

// spec is what the table says of a version of a repository.
func (s Specs) spec(repo, version string) Spec {
	var spec Spec
	for _, versions := range []map[string]Spec{s[repo], s[anything]} {
		spec = spec.merge(versions[version]).merge(versions[anything])
	}
	return spec
}

// publishedSpecs is the table of SWE-bench's own repositories, from the specifications of its
// package in version 4.1. Sphinx's tests run without tox, which would keep the reporter from them.
//
//go:embed published.json
var publishedSpecs []byte

var specTable = sync.OnceValue(func() (specs Specs) {
	if err := json.Unmarshal(publishedSpecs, &specs); err != nil {
		panic(err) // a test reads it
	}
	return specs
})

// Complete fills in what the instance's row leaves open of how its tests are run: from the table,
// and for a repository of SWE-bench that neither row nor table speaks of, from SWE-bench's own
// specifications. A command of a table gets the files of the instance's own tests as its arguments,
// as in the harness of SWE-bench; one of the row is taken as it is.
func (i Instance) Complete(specs Specs) Instance {
	spec := specs.spec(i.Repo, i.Version)
	if i.TestCommand == "" && i.EvalScript == "" && i.LogParser == "" &&
		spec.TestCommand == "" && spec.LogParser == "" {
		spec = spec.merge(specTable().spec(i.Repo, i.Version))
	}
	if i.TestCommand == "" && i.EvalScript == "" && spec.TestCommand != "" {
		i.TestCommand = strings.Join(append([]string{string(spec.TestCommand)}, i.testFiles()...), " ")
	}
	i.LogParser = cmp.Or(i.LogParser, spec.LogParser)
	i.Image = cmp.Or(i.Image, strings.ReplaceAll(spec.Image,
		"{id}", strings.ToLower(strings.ReplaceAll(i.ID, "__", "_1776_"))))
	return i
}

// Django's own test program names modules from its folder of tests on.
const django, djangoTests = "django/django", "tests/"

// dataFiles are the endings of files in a patch of tests that are no tests.
var dataFiles = []string{".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"}

// testFiles are the files that the patch of the tests changes or adds, as arguments of a test
// command: modules, for Django's own runner.
func (i Instance) testFiles() (files []string) {
	for _, found := range patchedTest.FindAllStringSubmatch(i.TestPatch, -1) {
		file := strings.TrimSpace(found[1])
		if slices.Contains(dataFiles, path.Ext(file)) {
			continue
		}
		if i.Repo == django {
			file = strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(file, djangoTests), ".py"), "/", ".")
		}
		files = append(files, quoted(file))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// quoted is a word of a shell's command line.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
