package sandbox_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// workspace is a sandbox with files as its base.
func workspace(t *testing.T, files map[string]string) *sandbox.Sandbox {
	t.Helper()
	sb := sandboxtest.New(t, sandbox.Spec{})
	if err := sb.Unpack(t.Context(), sb.Workdir(), sandboxtest.Pack(t, files)); err != nil {
		t.Fatal(err)
	}
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sb
}

func changes(t *testing.T, sb *sandbox.Sandbox) []byte {
	t.Helper()
	data, err := sb.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestChangesMoveAWorkspace(t *testing.T) {
	files := map[string]string{"src/a.sh": "#!/bin/sh\necho a\n", "src/b": "b", "gone/c": "c", "same": "same"}
	first, second := workspace(t, files), workspace(t, files)
	if data := changes(t, first); data != nil {
		t.Errorf("an untouched workspace has a change of %d bytes", len(data))
	}
	script := `echo edited > src/b; rm -r gone; mkdir new; echo n > new/n; chmod 700 src/a.sh; ln -s /usr/bin/env env; chmod 000 new/n; chmod 555 new; touch same`
	output(t, first, script)
	data := changes(t, first)
	output(t, second, "sleep 0.01; "+script)
	if !bytes.Equal(data, changes(t, second)) {
		t.Error("equal workspaces have different changes")
	}
	third := workspace(t, files)
	if err := third.Apply(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	look := `find . | sort | while read -r f; do stat -c '%A %n %N' "$f"; done; chmod 755 new; chmod 644 new/n; cat src/b new/n`
	if got, want := output(t, third, look), output(t, first, look); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestChangesAfterEachTurn(t *testing.T) {
	sb := workspace(t, map[string]string{"file": "0"})
	seen := map[string]bool{}
	for _, content := range []string{"1", "2", "3"} {
		if err := sb.WriteFile(t.Context(), "file", []byte(content), 0); err != nil {
			t.Fatal(err)
		}
		seen[string(changes(t, sb))] = true
	}
	if len(seen) != 3 {
		t.Errorf("three contents of one size, written at once, gave %d changes", len(seen))
	}
	if err := sb.WriteFile(t.Context(), "file", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	if data := changes(t, sb); data != nil {
		t.Error("back at the base there is still a change")
	}
}

func TestChangesWhileSomethingRuns(t *testing.T) {
	sb := workspace(t, map[string]string{"file": "0"})
	run(t, sb, sandbox.Command{Background: true, Argv: []string{"sh", "-c",
		"while :; do mkdir d; echo x > d/x; mv d e; rm -r e; rm -f f; ln -s / f; rm f; mkfifo f; rm f; echo y > f; rm f; mkdir f; rmdir f; done 2>/dev/null"}})
	for range 100 {
		if _, err := sb.Changes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func init() {
	actors["deep"] = func() {
		for range 30 {
			name := strings.Repeat("d", 200)
			if err := errors.Join(os.Mkdir(name, 0o755), os.Chdir(name)); err != nil {
				panic(err)
			}
		}
	}
}

func TestHostileWorkspace(t *testing.T) {
	sb, _ := inside(t, sandbox.Spec{}, map[string]string{"RONDO_TEST_ACTOR": "nothing"})
	output(t, sb, "printf 0 > file")
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	output(t, sb, `truncate -s 200M sparse1; truncate -s 200M sparse2; truncate -s 200M sparse3`)
	if _, err := sb.Changes(t.Context()); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("600 MB of nothing: %v, want ErrTooLarge", err)
	}
	output(t, sb, "rm sparse*; RONDO_TEST_ACTOR=deep /opt/program")
	if _, err := sb.Changes(t.Context()); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("a path of 6000 bytes: %v, want ErrTooLarge", err)
	}
	if err := sb.Unpack(t.Context(), "/app", []byte("no archive")); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Unpack of nonsense: %v, want ErrInvalid", err)
	}
	if err := sb.Apply(t.Context(), []byte("no archive")); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("Apply of nonsense: %v, want ErrInvalid", err)
	}
	if got := output(t, sb, "cat file"); got != "0" {
		t.Errorf("file: %q", got)
	}
}

func TestMounts(t *testing.T) {
	host := t.TempDir()
	if err := errors.Join(os.Chmod(host, 0o700), os.Mkdir(filepath.Join(host, "sub"), 0o755),
		os.WriteFile(filepath.Join(host, "sub", "file"), []byte("lower"), 0o644)); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(host, "sub") // below a folder that only its owner may enter, as tool chains in homes are
	sb := sandboxtest.New(t, sandbox.Spec{
		Workdir: "/root/project",
		Mounts: []sandbox.Mount{{Source: sub, Target: "/mnt/ro"}, {Source: sub, Target: sub},
			{Source: sub, Target: "/mnt/rw", Overlay: true}},
		ReadOnly: map[string][]byte{"/tests": sandboxtest.Pack(t,
			map[string]string{"test.sh": "#!/bin/sh\necho tested"})},
	})
	if got := output(t, sb,
		"cat /mnt/ro/file "+sub+
			"/file /mnt/rw/file; pwd; /tests/test.sh"); got != "lowerlowerlower/root/project\ntested" {
		t.Errorf("got %q", got)
	}
	for _, target := range []string{"/mnt/ro/file", "/mnt/ro/new", sub + "/new", "/tests/test.sh", "/tests/new"} {
		if result := run(t, sb, sh("echo x > "+target)); result.ExitCode == 0 {
			t.Errorf("%s could be written", target)
		}
	}
	if result := run(t, sb, sh("rm -f /tests/test.sh; mv /tests /t; chmod 777 /tests/test.sh")); result.ExitCode == 0 {
		t.Errorf("/tests could be changed: %s", result.Stdout)
	}
	output(t, sb, "echo new > /mnt/rw/new; mkdir /mnt/rw/d; cat /mnt/rw/new")
	if entries, err := os.ReadDir(sub); err != nil || len(entries) != 1 {
		t.Errorf("the host's folder now holds %v, %v", entries, err)
	}
}

// toolchainCache outlives the test: to fill it takes half a minute.
func toolchainCache(t *testing.T) string {
	t.Helper()
	folder, err := os.UserCacheDir()
	if err == nil {
		folder = filepath.Join(folder, "rondo", "toolchains-of-tests")
		err = os.MkdirAll(folder, 0o755)
	}
	if err != nil {
		return t.TempDir() // a user without a home
	}
	return folder
}

// TestInterpreters: Python and Node of the host run in a sandbox, together and with their own
// libraries, wherever they lie.
func TestInterpreters(t *testing.T) {
	sandboxtest.Require(t)
	names := []string{"node", "python"}
	for _, name := range names {
		if err := sandbox.HasToolchain(t.Context(), name); err != nil {
			if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	mounts, env, err := sandbox.Toolchains(t.Context(), names, toolchainCache(t))
	if err != nil {
		t.Fatal(err)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Mounts: mounts, Env: env})
	for command, want := range map[string]string{
		`python3 -c 'import json, sqlite3, unittest, sys; print(json.dumps(sys.base_prefix))'`: `python3 -I -c 'import json, sys; print(json.dumps(sys.base_prefix))'`,
		`node -p 'require("node:path"); JSON.stringify(process.execPath)'`:                     `node -p 'JSON.stringify(process.execPath)'`,
	} {
		host := exec.Command("sh", "-c", want)
		host.Dir = "/"
		out, err := host.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, sb, command); got != strings.TrimSpace(string(out)) {
			t.Errorf("%s: %q, and %q on the host", command, got, out)
		}
	}
}

func TestGoToolchain(t *testing.T) {
	sandboxtest.Require(t)
	sandbox.FewGoPackages(t)
	cache := toolchainCache(t)
	mounts, env, err := sandbox.Toolchain(t.Context(), "go", cache)
	if err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	begin := time.Now()
	if again, _, err := sandbox.Toolchain(t.Context(), "go", cache); err != nil ||
		len(again) != len(mounts) || again[1] != mounts[1] {
		t.Errorf("again: %v, %v", again, err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("a warm cache was filled again: %v", took)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Mounts: mounts, Env: env})
	for name, content := range map[string]string{
		"go.mod":       "module example\n",
		"main.go":      "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"built inside\") }\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestMain(t *testing.T) {}\n",
	} {
		content = strings.ReplaceAll(content, "TestMain", "TestNothing")
		if err := sb.WriteFile(t.Context(), name, []byte(content), 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := output(t, sb,
		"go build -o program . && ./program && go test ./... && go env GOPROXY"); !strings.HasPrefix(got,
		"built inside\nok") || !strings.HasSuffix(got, "off") {
		t.Errorf("got %q", got)
	}
	// Nothing of the standard library is compiled again: -x would show it.
	if got := run(t, sb,
		sh("touch main.go; echo >> main.go; go build -x . 2>&1 | grep -c 'compile -o'")); strings.TrimSpace(
		string(got.Stdout)) != "1" {
		t.Errorf("packages compiled for one changed file: %s", got.Stdout)
	}
	if entries, err := filepath.Glob(filepath.Join(cache, "*", "build", "*", "*")); err != nil || len(entries) == 0 {
		t.Errorf("cache: %v, %v", entries, err)
	}
	if _, _, err := sandbox.Toolchain(t.Context(), "cobol", cache); err == nil {
		t.Error("an unknown tool chain was accepted")
	}
}
