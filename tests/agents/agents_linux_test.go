// Package agents installs the real packages of the shipped profiles, starts them with nothing but
// their layer, and has them play tasks against a scripted model.
package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// byDay are agents that install in less than a minute; all are installed by night.
var byDay = []string{"codex", "qwen-code"}

// TestShippedAgents: each shipped agent installs at its pinned version, starts with nothing but its
// layer, and plays tasks; by night at the newest version, too.
func TestShippedAgents(t *testing.T) {
	sandboxtest.Require(t)
	requireRegistry(t)
	root := bareRoot(t)
	for name, p := range agents.Shipped() {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(byDay, name) {
				nightly.Only(t)
			}
			log := natstest.LogWithDisk(t)
			built := build(t, log.Store(), p)
			t.Logf("%s says %q: %d files, %d bytes, glibc %q, %s", name, built.Reported, built.Files, built.Bytes,
				built.Glibc, built.Interpreter)
			startBare(t, root, log.Store(), built)
			if nightly.On() {
				if again := build(t, log.Store(), p); again.Digest != built.Digest {
					t.Errorf("built again it is %s, and was %s", again.Digest, built.Digest)
				}
			}
			play(t, log, name, built.Digest)
		})
		t.Run(name+"@newest", func(t *testing.T) {
			nightly.Only(t)
			version := newest(t, p.Install)
			if version == p.Install.Version {
				t.Skipf("the pinned version, %s, is the newest", version)
			}
			t.Logf("%s is the newest version of %s, and the profile was tried with %s", version, name,
				strings.Join(p.Seen, ", "))
			p, err := agents.Named(name + "@" + version)
			if err != nil {
				t.Fatal(err)
			}
			log := natstest.LogWithDisk(t)
			play(t, log, name, build(t, log.Store(), p).Digest)
		})
	}
}

// newest asks a package's registry which version is the newest.
func newest(t *testing.T, in agents.Install) string {
	t.Helper()
	address := "https://registry.npmjs.org/" + url.PathEscape(in.NPM) + "/latest"
	if in.PyPI != "" {
		address = "https://pypi.org/pypi/" + in.PyPI + "/json"
	}
	page, err := ask(t.Context(), address)
	var answer struct {
		Version string
		Info    struct{ Version string }
	}
	if err == nil {
		err = json.Unmarshal(page, &answer)
	}
	version := cmp.Or(answer.Version, answer.Info.Version)
	if err != nil || version == "" {
		t.Fatalf("%s names no version: %v", address, err)
	}
	return version
}

// TestPythonIsWhole: the copy of Python has the libraries that its modules need, whatever machine
// it came from.
func TestPythonIsWhole(t *testing.T) {
	sandboxtest.Require(t)
	requireRegistry(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := agents.Profile{
		Name: "small", Program: "tqdm", Install: agents.Install{PyPI: "tqdm", Version: "4.67.1", Before: "2026-11-28"},
		Command: []string{agents.Folder + "/bin/tqdm",
			agents.Instruction}, Help: []string{agents.Folder + "/bin/tqdm", "--help"},
		Check: []string{agents.Folder + "/python/bin/python3", "-c",
			"import zlib, ssl, ctypes, bz2, lzma, hashlib, multiprocessing, tqdm; print('whole')"},
	}
	built := build(t, store, p)
	startBare(t, bareRoot(t), store, built)
	if again := build(t, store, p); again.Digest != built.Digest {
		t.Errorf("built again it is %s, and was %s", again.Digest, built.Digest)
	}
}

// TestRegistryRefuses: a version that the registry does not have is the recipe's failure, and what
// the installer says is told.
func TestRegistryRefuses(t *testing.T) {
	sandboxtest.Require(t)
	requireRegistry(t)
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p, err := agents.Named("codex@0.0.99999")
	if err != nil {
		t.Fatal(err)
	}
	_, err = agents.Builder{Store: store, Scratch: t.TempDir()}.Build(t.Context(), p)
	if !errors.Is(err, agents.ErrInstall) || !strings.Contains(err.Error(), "@openai/codex@0.0.99999") {
		t.Errorf("%v, want that the registry has no such version", err)
	}
}

// build installs an agent. A machine without the Python that it needs skips the test: no machine
// has all of them, and mini-swe-agent takes any.
func build(t *testing.T, store storage.Store, p agents.Profile) agents.Built {
	t.Helper()
	b := agents.Builder{Store: store, Scratch: t.TempDir(),
		Python: os.Getenv("RONDO_TEST_AGENTS_PYTHON"), Progress: t.Logf}
	built, err := b.Build(t.Context(), p)
	switch {
	case errors.Is(err, agents.ErrNoPython) && (len(p.Install.Python) > 0 && p.Name != "mini-swe-agent" ||
		os.Getenv("RONDO_REQUIRE_ALL") != "1"):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return built
}

// startBare starts an agent where there is a C library, a shell, and the layer.
func startBare(t *testing.T, root string, store storage.Store, built agents.Built) {
	t.Helper()
	cache, err := agents.OpenCache(filepath.Join(t.TempDir(), "layers"), agents.CacheBytes)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := cache.Open(t.Context(), store, built.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	sb := sandboxtest.New(t, sandbox.Spec{
		Root: root, Mounts: []sandbox.Mount{opened.Mount()}, Limits: sandbox.Limits{MemoryBytes: 4 << 30,
			DiskBytes: 1 << 30, PIDs: 1024, Wall: 5 * time.Minute},
	})
	p := built.Profile
	command := p.Check
	if command == nil {
		command = []string{p.Command[0], "--version"}
	}
	for _, argv := range [][]string{command, p.Help} {
		result, err := sb.Exec(t.Context(), sandbox.Command{Argv: argv, Env: p.Env})
		if err != nil || result.ExitCode != 0 {
			t.Errorf("%v ends with %d, %v: %.2000s%.2000s", argv, result.ExitCode, err, result.Stdout, result.Stderr)
		}
	}
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", ": >" + p.Command[0]}})
	if err != nil || result.ExitCode == 0 {
		t.Errorf("an agent can change its layer: %+v, %v", result, err)
	}
}

// requireRegistry skips the test on a machine that reaches no package registry, unless all must
// run.
func requireRegistry(t *testing.T) {
	t.Helper()
	_, err := ask(t.Context(), "https://registry.npmjs.org/npm/latest")
	switch {
	case err == nil:
	case os.Getenv("RONDO_REQUIRE_ALL") == "1":
		t.Fatalf("the npm registry is required by RONDO_REQUIRE_ALL=1: %v", err)
	default:
		t.Skipf("the npm registry cannot be reached: %v", err)
	}
}

// ask asks a registry for a page.
func ask(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	const most = 64 << 20
	page, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", address, response.Status)
	}
	return page, err
}

// bareRoot makes the root of an image with the C library, those of C++, and a shell: what every
// image of Debian has and no more.
func bareRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { // another user looks into it from inside
		t.Fatal(err)
	}
	known, err := exec.CommandContext(t.Context(), "/sbin/ldconfig", "-p").Output()
	if err != nil {
		t.Skipf("this machine does not say where its libraries are: %v", err)
	}
	libraries := []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
		"libutil.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
	for line := range strings.Lines(string(known)) {
		name, source, found := strings.Cut(strings.TrimSpace(line), " => ")
		name, _, _ = strings.Cut(name, " ")
		switch {
		case !found:
		case strings.HasPrefix(name, "ld-linux"):
			for _, folder := range []string{"lib", "lib64"} {
				copyFile(t, source, filepath.Join(root, folder, name))
			}
		case slices.Contains(libraries, name):
			copyFile(t, source, filepath.Join(root, "usr", "lib", filepath.Base(filepath.Dir(source)), name))
			copyFile(t, source, filepath.Join(root, "lib", filepath.Base(filepath.Dir(source)), name))
		}
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, shell, filepath.Join(root, "bin", "sh"))
	return root
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
}
