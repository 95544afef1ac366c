// Package wheel holds Python wheels to their format, and installs them in
// environments of their own.
package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

// Check fails the test unless RECORD has each file with its digest and size, and the tags are those
// of the name. It gives the names of the programs that the wheel puts on the path.
func Check(t testing.TB, file string) (scripts []string) {
	t.Helper()
	packed, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	var record, found [][]string
	for _, f := range packed.File {
		text, err := read(f)
		if err != nil {
			t.Fatalf("%s: %s: %v", file, f.Name, err)
		}
		folder, name := path.Split(f.Name)
		switch {
		case name == "RECORD" && strings.HasSuffix(folder, ".dist-info/"):
			if record, err = csv.NewReader(bytes.NewReader(text)).ReadAll(); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			found = append(found, []string{f.Name, "", ""})
			continue
		case name == "WHEEL" && strings.HasSuffix(folder, ".dist-info/"):
			checkTags(t, file, string(text))
		case strings.HasSuffix(folder, ".data/scripts/"):
			scripts = append(scripts, name)
			if f.Mode().Perm() != 0o755 {
				t.Errorf("%s has the mode %s", f.Name, f.Mode())
			}
		}
		digest := sha256.Sum256(text)
		found = append(found, []string{f.Name, "sha256=" + base64.RawURLEncoding.EncodeToString(digest[:]),
			fmt.Sprint(len(text))})
	}
	slices.SortFunc(record, slices.Compare)
	slices.SortFunc(found, slices.Compare)
	if !slices.EqualFunc(record, found, slices.Equal) {
		t.Errorf("%s: RECORD has\n%q\nand the wheel\n%q", filepath.Base(file), record, found)
	}
	return scripts
}

func read(f *zip.File) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// checkTags compares the tags of a wheel with those that its name stands for.
func checkTags(t testing.TB, file, wheel string) {
	t.Helper()
	var written, named []string
	for line := range strings.Lines(wheel) {
		if tag, ok := strings.CutPrefix(strings.TrimSpace(line), "Tag: "); ok {
			written = append(written, tag)
		}
	}
	parts := strings.Split(strings.TrimSuffix(filepath.Base(file), ".whl"), "-")
	if len(parts) != 5 {
		t.Fatalf("%s is no name of a wheel", file)
	}
	for platform := range strings.SplitSeq(parts[4], ".") {
		named = append(named, parts[2]+"-"+parts[3]+"-"+platform)
	}
	slices.Sort(written)
	slices.Sort(named)
	if !slices.Equal(written, named) {
		t.Errorf("%s has the tags %q", filepath.Base(file), written)
	}
}

// Environment makes a Python without packages. It gives its interpreter.
func Environment(t testing.TB, python string) string {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import pip, venv").CombinedOutput(); err != nil {
		program.Missing(t, "%s has no venv and pip, which install wheels: %s", python, out)
	}
	dir := t.TempDir()
	Run(t, dir, python, "-m", "venv", "--without-pip", dir)
	return filepath.Join(dir, "bin", "python")
}

// Pip is how an interpreter runs pip without a cache and without asking for a newer one.
var Pip = []string{"-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"}

// Install installs a wheel from its file into an environment, by the pip of another interpreter.
func Install(t testing.TB, python, inside, file string) {
	t.Helper()
	Run(t, t.TempDir(), python, append(Pip, "--python", inside, "install", "--no-deps", "--no-index", file)...)
}

// Run runs a program in a folder to its end and gives what it prints. It sees no Go tool chain.
func Run(t testing.TB, dir string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(bytes.TrimSpace(out))
}
