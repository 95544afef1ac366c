package sandbox_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// tarball writes a package's archive into a set, and answers its digest.
func tarball(t *testing.T, set string, files map[string]string) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	out := tar.NewWriter(zipped)
	for name, text := range files {
		err := out.WriteHeader(&tar.Header{Name: "package/" + name, Typeflag: tar.TypeReg, Mode: 0o644,
			Size: int64(len(text))})
		if _, writeErr := io.WriteString(out, text); err != nil || writeErr != nil {
			t.Fatal(err, writeErr)
		}
	}
	if err := errors.Join(out.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("%x", sha512.Sum512(packed.Bytes()))
	if err := os.WriteFile(filepath.Join(set, digest+".tgz"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return digest
}

func writeList(t *testing.T, set, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(set, sandbox.NodePackageList), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestNodePackages: packages lie in node_modules of the workspace, with their programs, and nothing
// inside can change them. They are no part of the workspace's changes, as is what programs keep in
// the caches there, of which each sandbox has its own.
func TestNodePackages(t *testing.T) {
	sandboxtest.Require(t)
	set, cache := t.TempDir(), t.TempDir()
	pad := tarball(t, set, map[string]string{"index.js": "pad\n", "cli.js": "#!/bin/sh\necho padded\n"})
	data, err := sandbox.WriteNodePackages([]sandbox.NodePackage{
		{Path: "node_modules/@a/b/node_modules/pad", SHA512: pad, Programs: map[string]string{"pad": "cli.js"}},
		{Path: "node_modules/pad", SHA512: pad, Programs: map[string]string{"pad": "cli.js", "gone": "gone.js"}},
		{Path: "node_modules/@a/b", SHA512: tarball(t, set, map[string]string{"x": "x"})},
	})
	if err != nil {
		t.Fatal(err)
	}
	writeList(t, set, string(data))
	digest, fetch := packed(t, set)
	mounts, err := sandbox.NodePackages(t.Context(), cache, digest, "/work", fetch)
	if err != nil {
		t.Fatal(err)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Workdir: "/work", Mounts: mounts})
	if err := sb.Unpack(t.Context(), sb.Workdir(), sandboxtest.Pack(t, map[string]string{"a.js": "a"})); err != nil {
		t.Fatal(err)
	}
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	script := `cat node_modules/pad/index.js node_modules/@a/b/node_modules/pad/index.js; node_modules/.bin/pad; node_modules/@a/b/node_modules/.bin/pad; ls -A node_modules/.bin; touch node_modules/x node_modules/pad/index.js
mkdir -p node_modules/.vite/deps && touch node_modules/.vite-temp/x node_modules/.vite/deps/x node_modules/.cache/x`
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}})
	if err != nil || string(result.Stdout) != "pad\npad\npadded\npadded\npad\n" ||
		strings.Count(string(result.Stderr), "Read-only file system") != 2 {
		t.Errorf("%v, %s, %s", err, result.Stdout, result.Stderr)
	}
	if data, err := sb.Changes(t.Context()); err != nil || data != nil {
		t.Errorf("a change of %d bytes, %v", len(data), err)
	}
	again := func(context.Context) (io.ReadCloser, error) { return nil, errors.New("it is fetched again") }
	if _, err := sandbox.NodePackages(t.Context(), cache, digest, "", again); err != nil {
		t.Error(err)
	}
	snapshots, err := sandbox.OpenSnapshots(t.TempDir(), sandbox.RoleAgent, sandbox.SnapshotBytes)
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "a.js"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	of, open := packed(t, tree)
	snapshot, err := snapshots.Use(t.Context(), of, open)
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Release()
	shared := sandboxtest.New(t, sandbox.Spec{Workdir: "/work", Mounts: mounts, Snapshot: snapshot})
	if data, err := shared.Changes(t.Context()); err != nil || data != nil {
		t.Errorf("over a snapshot (%s): a change of %d bytes, %v", shared.FSMode(), len(data), err)
	}
}

// TestNodePackagesAreChecked: what is no set of packages leaves nothing behind, and is told from
// a failure of the machine.
func TestNodePackagesAreChecked(t *testing.T) {
	sandboxtest.Require(t)
	zero := strings.Repeat("0", 128)
	for name, c := range map[string]struct{ list, want string }{
		"no list":        {"", "there is no packages.json"},
		"no JSON":        {"x", "invalid character"},
		"an unknown key": {`{"packages":[],"more":1}`, "unknown field"},
		"up":             {`{"packages":[{"path":"node_modules/../x","sha512":"` + zero + `"}]}`, "want a path"},
		"hidden":         {`{"packages":[{"path":"node_modules/.bin","sha512":"` + zero + `"}]}`, "want a path"},
		"beside":         {`{"packages":[{"path":"x","sha512":"` + zero + `"}]}`, "want a path"},
		"twice": {`{"packages":[{"path":"node_modules/a","sha512":"` + zero +
			`"},{"path":"node_modules/A","sha512":"` + zero + `"}]}`, "is there twice"},
		"another file": {`{"packages":[{"path":"node_modules/a","sha512":"../x"}]}`, "want the SHA-512"},
		"no archive": {`{"packages":[{"path":"node_modules/a","sha512":"` + zero + `"}]}`,
			"not among the files"},
		"a program outside": {`{"packages":[{"path":"node_modules/a","sha512":"` + zero +
			`","programs":{"a":"../x"}}]}`, "no path of a file"},
		"another content": {`{"packages":[{"path":"node_modules/a","sha512":"` + strings.Repeat("1", 128) + `"}]}`,
			"another digest"},
		"in another":        {`{"packages":[{"path":"node_modules/a","sha512":"GOOD"},{"path":"node_modules/a/node_modules/b","sha512":"GOOD"}]}`, "has it already"},
		"a file in the way": {`{"packages":[{"path":"node_modules/a","sha512":"FILE"},{"path":"node_modules/a/node_modules/b","sha512":"FILE"}]}`, "has it already"},
		"no place for programs": {`{"packages":[{"path":"node_modules/a","sha512":"BIN"},{"path":"node_modules/a/node_modules/b","sha512":"GOOD","programs":{"x":"node_modules/b/x"}}]}`,
			"node_modules/a/node_modules/b"},
	} {
		t.Run(name, func(t *testing.T) {
			set, cache := t.TempDir(), t.TempDir()
			good := tarball(t, set, map[string]string{"node_modules/b/x": "x"})
			file := tarball(t, set, map[string]string{"node_modules": "x"})
			bin := tarball(t, set, map[string]string{"node_modules/.bin": "x"})
			if err := os.WriteFile(filepath.Join(set, strings.Repeat("1", 128)+".tgz"),
				[]byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if c.list != "" {
				writeList(t, set, strings.NewReplacer("GOOD", good, "FILE", file, "BIN", bin).Replace(c.list))
			}
			digest, fetch := packed(t, set)
			_, err := sandbox.NodePackages(t.Context(), cache, digest, "/work", fetch)
			if !errors.Is(err, sandbox.ErrPackages) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(cache, "node-packages", "*")); len(left) > 1 { // the lock
				t.Errorf("left: %q", left)
			}
		})
	}
}
