package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
)

// TestVariablesOfTheProject: the program takes every variable that anything of
// the project reads or sets.
func TestVariablesOfTheProject(t *testing.T) {
	reads := regexp.MustCompile(`(?:(?:[Gg]etenv|LookupEnv|environ(?:\.get)?|setenv|Setenv)[(\[]\s*["']|\$\{?|\n\s*(?:export )?|[{"' ])(RONDO_[A-Z0-9_]*[A-Z0-9])(?:["'][,)\]]|[:}=]|\b\S*=)`)
	streams := regexp.MustCompile(`^RONDO_(IN|DEAD|LEASE|OUTSIDE|S)$`)
	root, found := New(), map[string]bool{}
	for _, pattern := range []string{
		"compose*.yaml", ".env.example", ".ci/*", "clients/python/rondo/*.py", "clients/python/rondo/*/*.py",
		"examples/*", "deploy/helm/rondo/values.yaml", "deploy/helm/rondo/templates/*",
		"tests/*/*.go", "tests/*/run", "tests/*/*.py", "clients/python/tests/*.py", "cli/*/*.go", "docs/guide/*.md",
	} {
		files, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files: %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || strings.HasSuffix(file, "global_test.go") || strings.HasSuffix(file, "test_variables.py") {
				continue // a folder
			}
			for _, name := range reads.FindAllStringSubmatch(string(text), -1) {
				if streams.MatchString(name[1]) || found[name[1]] {
					continue
				}
				found[name[1]] = true
				if err := app.CheckVariables(root, []string{name[1] + "="}); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
	if len(found) < 40 {
		t.Errorf("only %d variables are found", len(found))
	}
}
