// Package release tries the files of a release: those for this machine are installed and run, those
// for arm64 are run by qemu.
package release

import (
	"bufio"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
	"github.com/rondo-rl/rondo/tests/wheel"
)

// largest is the size that a wheel or a package may have: it is downloaded
// before the first command.
const largest = 40 << 20

// programs are what a release for Linux has in one folder.
var programs = []string{"rondo", "rondo-sandbox-init"}

// machines are the names of an architecture in Debian packages and archives, in
// wheels, and in programs.
var machines = []struct {
	deb, wheel string
	elf        elf.Machine
	qemu       []string // what runs its programs on amd64
}{
	{"amd64", "x86_64", elf.EM_X86_64, nil},
	{"arm64", "aarch64", elf.EM_AARCH64, []string{"qemu-aarch64-static"}},
}

// folder is where .ci/release has made the release.
func folder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RONDO_RELEASE")
	if dir == "" {
		program.Missing(t, "RONDO_RELEASE names no folder of a release: .ci/release makes one and runs this test")
	}
	if runtime.GOARCH != "amd64" {
		program.Missing(t, "this machine is %s: qemu runs the programs of arm64 alone", runtime.GOARCH)
	}
	return dir
}

// one gives the file that a pattern finds in a folder. It is of a size that
// is downloaded in seconds.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %s: %q, %v", pattern, dir, found, err)
	}
	info, err := os.Stat(found[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s has %.1f MB", filepath.Base(found[0]), float64(info.Size())/1e6)
	if info.Size() > largest {
		t.Errorf("%s has %d bytes: more than %d", found[0], info.Size(), largest)
	}
	return found[0]
}

// checkPrograms runs the programs in a folder. They are for one machine, and static: they run
// beside any C library, as the tags of wheels say.
func checkPrograms(t *testing.T, dir string, machine elf.Machine, qemu []string) {
	t.Helper()
	for _, name := range programs {
		f, err := elf.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if f.Machine != machine || err != nil || len(libraries) > 0 || f.Section(".interp") != nil {
			t.Errorf("%s is for %s and needs the libraries %q, %v", name, f.Machine, libraries, err)
		}
		f.Close()
	}
	command := append(slices.Clone(qemu), filepath.Join(dir, "rondo"), "--version")
	if out := wheel.Run(t, t.TempDir(), command[0], command[1:]...); !strings.HasPrefix(out, "rondo ") {
		t.Errorf("rondo --version prints %q", out)
	}
}

func TestWheels(t *testing.T) {
	dir := filepath.Join(folder(t), "../bin/release/python")
	for _, m := range machines {
		file := one(t, dir, "rondo_rl-*-py3-none-manylinux_2_17_"+m.wheel+".manylinux2014_"+m.wheel+
			".musllinux_1_1_"+m.wheel+".whl")
		if scripts := wheel.Check(t, file); !slices.Equal(scripts, programs) {
			t.Errorf("%s has %q", file, scripts)
		}
		unpacked := t.TempDir()
		wheel.Run(t, unpacked, "python3", "-m", "zipfile", "--extract", file, unpacked)
		scripts := one(t, unpacked, "*.data/scripts")
		for _, name := range programs { // zipfile leaves out the modes, which Check looks at
			if err := os.Chmod(filepath.Join(scripts, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		checkPrograms(t, scripts, m.elf, m.qemu)
	}
	if scripts := wheel.Check(t, one(t, dir, "rondo_rl-*-py3-none-any.whl")); len(scripts) > 0 {
		t.Errorf("the wheel for every system has %q", scripts)
	}
	one(t, dir, "rondo_rl-*.tar.gz")

	// Of the wheels in a folder, pip takes the one with the programs.
	inside := wheel.Environment(t, "python3")
	wheel.Run(t, t.TempDir(), "python3", append(wheel.Pip, "--python", inside, "install", "--no-deps", "--no-index",
		"--find-links", dir, "rondo-rl")...)
	checkPrograms(t, filepath.Dir(inside), elf.EM_X86_64, nil)
}

// TestDebianPackages unpacks the packages with dpkg, and installs that of this
// machine into a root of its own.
func TestDebianPackages(t *testing.T) {
	dir := folder(t)
	for _, m := range machines {
		deb, root := one(t, dir, "rondo_*_"+m.deb+".deb"), t.TempDir()
		wheel.Run(t, root, "dpkg-deb", "--extract", deb, root)
		checkPrograms(t, filepath.Join(root, "usr/bin"), m.elf, m.qemu)
	}
	root := t.TempDir()
	for _, path := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := os.WriteFile(filepath.Join(root, path), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wheel.Run(t, root, "dpkg", "--root="+root, "--force-not-root", "--log="+filepath.Join(root, "log"),
		"--install", one(t, dir, "rondo_*_amd64.deb"))
	if out := wheel.Run(t, root, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "--show",
		"--showformat=${Status} ${Architecture}", "rondo"); out != "install ok installed amd64" {
		t.Errorf("dpkg has rondo as %q", out)
	}
	checkPrograms(t, filepath.Join(root, "usr/bin"), elf.EM_X86_64, nil)
	for path, text := range map[string]string{
		"usr/share/man/man1/rondo.1":                     `.TH "RONDO" "1"`,
		"usr/share/man/man1/rondo-demo.1":                `.TH "RONDO-DEMO" "1"`,
		"usr/share/bash-completion/completions/rondo":    "complete -o default",
		"usr/share/zsh/vendor-completions/_rondo":        "#compdef rondo",
		"usr/share/fish/vendor_completions.d/rondo.fish": "complete -c rondo",
		"usr/share/doc/rondo/copyright":                  "Apache License",
	} {
		if written, err := os.ReadFile(filepath.Join(root, path)); err != nil ||
			!strings.Contains(string(written), text) {
			t.Errorf("/%s has no %s: %v", path, text, err)
		}
	}
}

func TestArchives(t *testing.T) {
	dir := folder(t)
	for _, m := range machines {
		unpacked := t.TempDir()
		wheel.Run(t, unpacked, "tar", "--extract", "--file", one(t, dir, "rondo_*_linux_"+m.deb+".tar.gz"))
		checkPrograms(t, unpacked, m.elf, m.qemu)
		for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "man/rondo.1"} {
			if _, err := os.Stat(filepath.Join(unpacked, name)); err != nil {
				t.Error(err)
			}
		}
		one(t, dir, "rondo_*_darwin_"+m.deb+".tar.gz")
	}
}

// TestSums: SHA256SUMS has each file of the release.
func TestSums(t *testing.T) {
	dir := folder(t)
	list, err := os.Open(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	sums := map[string]string{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		sums[fields[1]] = fields[0]
	}
	var files []string
	for _, pattern := range []string{"*.deb", "*.tar.gz", "../bin/release/python/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	// for each of two machines a package, two archives and a wheel; a wheel and an sdist for all
	if len(files) != 10 || len(sums) != len(files) {
		t.Errorf("a release of %q has the sums %q", files, sums)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if digest := sha256.Sum256(text); sums[filepath.Base(file)] != hex.EncodeToString(digest[:]) {
			t.Errorf("the sum of %s is %s", file, sums[filepath.Base(file)])
		}
	}
}
