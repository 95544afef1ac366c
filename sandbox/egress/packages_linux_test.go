package egress

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
)

// zipped packs files as a wheel or a module has them.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, err := w.Create(name)
		if err == nil {
			_, err = file.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))})
		if err == nil {
			_, err = w.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// registries serves one package in each registry.
func registries(t *testing.T) *httptest.Server {
	wheel := zipped(t, map[string]string{
		"rondo_demo/__init__.py":                 "print('installed by pip')\n",
		"rondo_demo-1.0.dist-info/METADATA":      "Metadata-Version: 2.1\nName: rondo-demo\nVersion: 1.0\n",
		"rondo_demo-1.0.dist-info/WHEEL":         "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"rondo_demo-1.0.dist-info/top_level.txt": "rondo_demo\n",
		"rondo_demo-1.0.dist-info/RECORD":        "rondo_demo/__init__.py,,\nrondo_demo-1.0.dist-info/METADATA,,\nrondo_demo-1.0.dist-info/WHEEL,,\nrondo_demo-1.0.dist-info/top_level.txt,,\nrondo_demo-1.0.dist-info/RECORD,,\n",
	})
	npm := tarball(t, map[string]string{"package/package.json": `{"name":"rondo-demo","version":"1.0.0","main":"i.js"}`,
		"package/i.js": "console.log('installed by npm')\n"})
	module := zipped(t, map[string]string{"example.org/rondo@v1.0.0/go.mod": "module example.org/rondo\n",
		"example.org/rondo@v1.0.0/a.go": "package rondo\n"})
	sha, integrity := sha1.Sum(npm), sha512.Sum512(npm)
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/rondo-demo/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w,
				`<!DOCTYPE html><html><body><a href="/files/rondo_demo-1.0-py3-none-any.whl">rondo_demo-1.0-py3-none-any.whl</a></body></html>`)
		case "/files/rondo_demo-1.0-py3-none-any.whl":
			_, _ = w.Write(wheel)
		case "/npm/rondo-demo":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w,
				`{"name":"rondo-demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"rondo-demo","version":"1.0.0","dist":{"tarball":"%s/npm/rondo-demo/-/rondo-demo-1.0.0.tgz","shasum":"%s","integrity":"sha512-%s"}}}}`,
				server.URL, hex.EncodeToString(sha[:]), base64.StdEncoding.EncodeToString(integrity[:]))
		case "/npm/rondo-demo/-/rondo-demo-1.0.0.tgz":
			_, _ = w.Write(npm)
		case "/go/example.org/rondo/@v/list":
			fmt.Fprint(w, "v1.0.0\n")
		case "/go/example.org/rondo/@v/v1.0.0.info":
			fmt.Fprint(w, `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`)
		case "/go/example.org/rondo/@v/v1.0.0.mod":
			fmt.Fprint(w, "module example.org/rondo\n")
		case "/go/example.org/rondo/@v/v1.0.0.zip":
			_, _ = w.Write(module)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// where finds the folder that a program of the host needs, to be shown in a sandbox, and what
// is asked prints its path.
func where(t *testing.T, ask ...string) string {
	t.Helper()
	out, err := exec.Command(ask[0], ask[1:]...).Output()
	folder := strings.TrimSpace(string(out))
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	switch {
	case err == nil:
		return folder
	case os.Getenv("RONDO_REQUIRE_ALL") == "1":
		t.Fatalf("%s is required by RONDO_REQUIRE_ALL=1: %v", ask[0], err)
	default:
		t.Skipf("%s: %v", ask[0], err)
	}
	return ""
}

// TestPackagesInstall has the real package managers install from scripted registries, in sandboxes,
// and again in a replay when the registries are gone.
func TestPackagesInstall(t *testing.T) {
	sandboxtest.Require(t)
	for name, c := range map[string]struct {
		registry string
		ask      []string
		command  string
		want     string
	}{
		"pip": {"pypi", []string{"python3", "-c", "import sys; print(sys.base_prefix)"},
			`$FOLDER/bin/python3 -m pip install -q --no-cache-dir --target /tmp/here rondo-demo && PYTHONPATH=/tmp/here $FOLDER/bin/python3 -c 'import rondo_demo'`, "installed by pip"},
		"npm": {"npm", []string{"node", "-p", "require('path').dirname(require('path').dirname(process.execPath))"},
			`mkdir -p /tmp/here && cd /tmp/here && $FOLDER/bin/npm install --silent rondo-demo >/dev/null && $FOLDER/bin/node -e "require('rondo-demo')"`, "installed by npm"},
		"go": {"go", []string{"go", "env", "GOROOT"},
			`mkdir -p /tmp/here && cd /tmp/here && export GOTOOLCHAIN=local GOROOT=$FOLDER && $FOLDER/bin/go mod init here 2>/dev/null && $FOLDER/bin/go get example.org/rondo 2>&1 | grep -v downloading && cat go.mod | grep example`,
			"example.org/rondo v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := where(t, c.ask...)
			server := registries(t)
			store, err := dir.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			opts := Options{Allow: []string{c.registry}, Registries: map[string][]string{
				"pypi": {server.URL + "/simple/", server.URL + "/files/"}, "npm": {server.URL + "/npm/"},
				"go": {server.URL + "/go/"},
			}}
			use := install(t, store, opts, Session{}, c.registry, folder, c.command, c.want)
			server.Close()
			again := install(t, store, Options{}, Session{Replay: true}, c.registry, folder, c.command, c.want)
			if use < 2 || again != use {
				t.Errorf("%d requests, and %d in the replay", use, again)
			}
		})
	}
}

// install runs a command in a sandbox with a proxy, and gives how many requests it made.
func install(t *testing.T, store storage.Store, opts Options, session Session, registry, folder,
	command, want string) int {
	t.Helper()
	session.Run, session.Network = "r", allow(registry)
	g, err := New(store, opts)
	if err != nil {
		t.Fatal(err)
	}
	env := Env(sandbox.ProxyAddress, func(name string) bool { return g.Registry(session, name) })
	env["FOLDER"] = folder
	spec := sandbox.Spec{Proxy: true, Env: env, Limits: sandbox.Limits{MemoryBytes: 1 << 30}}
	if !strings.HasPrefix(folder, "/usr") || strings.HasPrefix(folder, "/usr/local/") {
		spec.Mounts = []sandbox.Mount{{Source: folder, Target: folder}}
	}
	sb := sandboxtest.New(t, spec)
	p := g.Serve(sb.ProxyListener(), session)
	defer p.Close()
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"bash", "-c", command}})
	if err != nil || result.ExitCode != 0 || !strings.Contains(string(result.Stdout), want) {
		t.Fatalf("%v, exit code %d\n%s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	use, err := p.Take(t.Context(), nil)
	if err != nil || use == nil || use.Refused > 0 {
		t.Fatalf("the list is %+v, %v", use, err)
	}
	return use.Requests
}
