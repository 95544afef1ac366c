package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// python is an interpreter of this machine. No registry has one that can be moved, so a layer gets
// a copy: the program, the standard library, and the shared libraries that they need beside those
// of the C library.
type python struct {
	Version string // 3.12.1
	Minor   string // 3.12
	Program string // with no link on the way
	Library string // the folder of the standard library
}

// askPython prints what python holds.
const askPython = `import json, os, sys, sysconfig
print(json.dumps({"Version": "%d.%d.%d" % sys.version_info[:3], "Minor": "%d.%d" % sys.version_info[:2],
  "Program": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable), "Library": os.path.realpath(os.path.dirname(os.__file__))}))`

// ErrNoPython says that this machine has no Python that a package of PyPI takes.
var ErrNoPython = errors.New("this machine has no Python of the right version")

// findPython looks for an interpreter of one of the versions; given is the only one to look at,
// unless it is empty.
func findPython(ctx context.Context, given string, versions []string) (python, error) {
	if len(versions) == 0 {
		versions = []string{"3.12", "3.13", "3.11", "3.10"}
	}
	programs := []string{given}
	if given == "" {
		programs = nil
		for _, v := range versions {
			programs = append(programs, "python"+v)
		}
		programs = append(programs, "python3", "/usr/bin/python3")
	}
	var seen []string
	for _, program := range programs {
		command := exec.CommandContext(ctx, program, "-I", "-c", askPython)
		command.Dir = "/"
		out, err := command.Output()
		var found python
		if err == nil {
			err = json.Unmarshal(out, &found)
		}
		if err != nil {
			continue // not there, or a starter of a version that is not there
		}
		if slices.Contains(versions, found.Minor) {
			return found, nil
		}
		seen = append(seen, program+" is "+found.Version)
	}
	return python{},
		fmt.Errorf("%w: the package needs Python %s (%s): install one, or name its program with --python",
			ErrNoPython,
			strings.Join(versions, " or "), strings.Join(append(seen, "looked for "+strings.Join(programs, ", ")),
				"; "))
}

// unneeded are folders of the standard library that no agent needs.
var unneeded = []string{"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo",
	"ensurepip", "lib2to3", "__pycache__"}

// copyTo copies the interpreter into a folder: bin/python3.12, lib/python3.12, lib/*.so.
func (p python) copyTo(ctx context.Context, folder string) error {
	library := filepath.Join(folder, "lib", "python"+p.Minor)
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "bin"), 0o755), os.MkdirAll(library, 0o755)); err != nil {
		return err
	}
	program := filepath.Join(folder, "bin", "python"+p.Minor)
	err := errors.Join(copyFile(p.Program, program, 0o755), os.Symlink(filepath.Base(program), filepath.Join(folder,
		"bin", "python3")),
		os.Symlink("python3", filepath.Join(folder, "bin", "python")))
	if err != nil {
		return err
	}
	linked := []string{p.Program}
	err = filepath.WalkDir(p.Library, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inner, err := filepath.Rel(p.Library, name)
		if err != nil {
			return err
		}
		switch base := entry.Name(); {
		case entry.IsDir() && (slices.Contains(unneeded, base) || strings.HasPrefix(base, "config-")):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(library, inner), 0o755)
		case !entry.Type().IsRegular() || base == "EXTERNALLY-MANAGED" || base == "sitecustomize.py" ||
			strings.HasSuffix(base, ".pyc"):
			return nil
		case strings.HasSuffix(base, ".so"):
			linked = append(linked, name)
		}
		return copyFile(name, filepath.Join(library, inner), 0o644)
	})
	if err != nil {
		return err
	}
	return copyLibraries(ctx, linked, filepath.Join(folder, "lib"))
}

// systemLibraries begin the names of the C library's own, which must be the image's.
var systemLibraries = []string{"ld-linux", "linux-vdso", "libc.so", "libm.so", "libpthread.so", "libdl.so",
	"librt.so", "libutil.so", "libresolv.so", "libnsl.so", "libanl.so"}

// copyLibraries copies the shared libraries that files are linked to.
func copyLibraries(ctx context.Context, files []string, folder string) error {
	out, err := exec.CommandContext(ctx, "ldd", files...).Output()
	if err != nil && len(out) == 0 {
		return fmt.Errorf("ask for the libraries of Python: ldd: %w", err)
	}
	done := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), " => ")
		source, _, _ := strings.Cut(rest, " (")
		system := slices.ContainsFunc(systemLibraries, func(prefix string) bool {
			return strings.HasPrefix(name,
				prefix)
		})
		if !found || system || done[name] || !filepath.IsAbs(source) || filepath.Base(name) != name {
			continue
		}
		done[name] = true
		if err := copyFile(source, filepath.Join(folder, name), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, source)
	return errors.Join(err, file.Chmod(mode), file.Close())
}
