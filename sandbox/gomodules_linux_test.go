package sandbox_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// packed is a folder as an archive, with its digest.
func packed(t *testing.T, folder string) (digest string, fetch sandbox.Fetch) {
	t.Helper()
	data, err := sandbox.Pack(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), func(context.Context) (io.ReadCloser,
		error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}
}

// TestGoModules: a module is found in a sandbox, without a network, and nothing inside can change
// it. It is unpacked once.
func TestGoModules(t *testing.T) {
	sandboxtest.Require(t)
	proxy, cache := t.TempDir(), t.TempDir()
	sandboxtest.Module(t, proxy, "example.test/Pad", "v1.0.0",
		map[string]string{"go.mod": "module example.test/Pad\n", "pad.go": "package pad\n"})
	digest, fetch := packed(t, proxy)
	mount, env, err := sandbox.GoModules(t.Context(), cache, digest, fetch)
	if err != nil {
		t.Fatal(err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	goRoot := strings.TrimSpace(string(root))
	sb := sandboxtest.New(t, sandbox.Spec{Mounts: []sandbox.Mount{mount, {Source: goRoot, Target: goRoot}}, Env: env})
	script := `printf 'module a.test/a\nrequire example.test/Pad v1.0.0\n' > go.mod && printf 'package a\nimport _ "example.test/Pad"\n' > a.go &&
GOPROXY=off GOSUMDB=off GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-mod=mod ` + goRoot + `/bin/go list -deps . | tail -2; touch $GOMODCACHE/x "$GOMODCACHE/example.test/!pad@v1.0.0/pad.go"`
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}})
	if err != nil || string(result.Stdout) != "example.test/Pad\na.test/a\n" ||
		strings.Count(string(result.Stderr), "Read-only file system") != 2 {
		t.Errorf("%v, %s, %s", err, result.Stdout, result.Stderr)
	}
	again := func(context.Context) (io.ReadCloser, error) { return nil, errors.New("it is fetched again") }
	if _, _, err := sandbox.GoModules(t.Context(), cache, digest, again); err != nil {
		t.Error(err)
	}
}

// TestGoModulesAreChecked: what is not what its digest says, or no set of
// modules, leaves nothing behind.
func TestGoModulesAreChecked(t *testing.T) {
	sandboxtest.Require(t)
	good, odd, option, broken, empty := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	sandboxtest.Module(t, good, "example.test/pad", "v1.0.0", map[string]string{"go.mod": "module example.test/pad\n"})
	err := errors.Join(os.WriteFile(filepath.Join(odd, "pad.zip"), nil, 0o644),
		os.WriteFile(filepath.Join(empty, "a.mod"), nil, 0o644))
	sandboxtest.Module(t, broken, "example.test/pad", "v1.0.0",
		map[string]string{"go.mod": "module example.test/pad\n"})
	sandboxtest.Module(t, option, "!-C=x/y", "v1.0.0", nil)
	err = errors.Join(err, os.WriteFile(filepath.Join(broken, "example.test/pad/@v/v1.0.0.zip"),
		[]byte("no zip"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ folder, digest, want string }{
		"another digest": {good, strings.Repeat("0", 64), "another digest"},
		"no digest":      {good, "../up", "want the SHA-256"},
		"an odd place":   {odd, "", "not the place of a module's version"},
		"an option":      {option, "", "not the place of a module's version"},
		"no zip":         {broken, "", "not a valid zip file"},
		"no module":      {empty, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			digest, fetch := packed(t, c.folder)
			if c.digest != "" {
				digest = c.digest
			}
			_, _, err := sandbox.GoModules(t.Context(), cache, digest, fetch)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			// the lock
			if left, _ := filepath.Glob(filepath.Join(cache, "go-modules", "*")); err != nil && len(left) > 1 {
				t.Errorf("left: %q", left)
			}
		})
	}
}
