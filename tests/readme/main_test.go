// Package readme holds the documents to the truth: it runs their commands and examples, and
// generates what follows from the code.
package readme

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// rondo is the binary under test; root is the repository.
var rondo, root string

func TestMain(m *testing.M) {
	var err error
	if root, err = filepath.Abs("../.."); err != nil {
		panic(err) // there is no working directory
	}
	// Tests that run side by side have one environment.
	os.Setenv("PYTHONPATH", filepath.Join(root, "clients/python"))
	os.Setenv("NO_MKDOCS_2_WARNING", "1")
	program.Main(m, &rondo)
}

// python is an interpreter that has the modules of examples/requirements.txt, this
// repository's client, and some more.
func python(t *testing.T, modules ...string) string {
	t.Helper()
	interpreter := os.Getenv("RONDO_PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	if out, err := exec.Command(interpreter, "-c", "import "+
		strings.Join(append(modules, "nats", "pyarrow"), ", ")).CombinedOutput(); err != nil {
		program.Missing(t, "%s lacks the modules of examples/requirements.txt (or set RONDO_PYTHON): %v\n%s",
			interpreter, err, out)
	}
	return interpreter
}

// command runs a program to its end in a folder and gives what it prints.
func command(dir string, name string, args ...string) (string, error) {
	return commandWith(nil, dir, name, args...)
}

// commandWith runs a program with more variables in its environment.
func commandWith(env []string, dir string, name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(c.Environ(), env...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out), err
}

// ask runs a rondo command and decodes the JSON that it prints.
func ask(dir string, into any, args ...string) error {
	out, err := command(dir, rondo, append(args, "--json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// background starts a program that ends with the test.
func background(t *testing.T, dir, name string, args ...string) *program.Process {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	return program.Start(t, c)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// quickTasks is a pack of the sample tasks that need no tool chain.
func quickTasks(t *testing.T) string {
	t.Helper()
	pack := t.TempDir()
	for _, name := range []string{"shell-slugify", "shell-invoice"} {
		if err := os.CopyFS(filepath.Join(pack, name),
			os.DirFS(filepath.Join(root, "demo/packs/sample", name))); err != nil {
			t.Fatal(err)
		}
	}
	return pack
}
