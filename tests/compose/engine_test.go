package compose_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// root is the repository, seen from this folder.
const root = "../.."

// tools is the module that pins Docker Compose and the servers of the stand-in images.
const tools = root + "/tools/compose"

// needEngine skips unless it is asked for: the test takes minutes, and builds images.
func needEngine(t *testing.T) {
	t.Helper()
	if os.Getenv("RONDO_DOCKER") != "1" {
		t.Skip("RONDO_DOCKER=1 brings compose.yaml up on this machine's Docker engine (.ci/docker installs and starts one)")
	}
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		t.Fatalf("RONDO_DOCKER=1, but there is no Docker engine (.ci/docker installs and starts one): %v\n%s", err, out)
	}
}

// projects begins the name of what a test makes on the engine.
const projects = "rondo-test-"

// alone waits until no other test has the ports, and removes what tests left that were
// killed: the engine starts their containers anew whenever it starts itself, and they would
// keep the ports for ever.
func alone(t *testing.T) {
	t.Helper()
	lock, err := os.Create(filepath.Join(cacheDir(t), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"container", "network", "volume"} {
		if left := leftovers(t, kind); len(left) > 0 {
			t.Logf("%d of another test's left behind, kind %s: removed", len(left), kind)
			remove := []string{kind, "rm", "--force"}
			if kind == "network" {
				remove = remove[:2]
			}
			must(t, docker(append(remove, left...)...))
		}
	}
}

// leftovers are the engine's containers, networks or volumes of any test.
func leftovers(t *testing.T, kind string) []string {
	t.Helper()
	list := docker(kind, "ls", "--quiet", "--filter", "name=^"+projects)
	if kind == "container" {
		list.Args = append(list.Args, "--all")
	}
	return strings.Fields(must(t, list))
}

// cacheDir keeps what is built for the test: binaries, and Debian's base system.
func cacheDir(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "rondo", "compose-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// toolBinary builds a command of the tools module.
func toolBinary(t *testing.T, dir, name, pkg string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-C", tools, "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	must(t, build)
	return file
}

// useCompose makes `docker compose` work for this test: the machine's own, or else the one that
// is built from its module.
func useCompose(t *testing.T, cache string) {
	t.Helper()
	if out, err := exec.Command("docker", "compose", "version", "--short").Output(); err == nil {
		t.Logf("docker compose %s of this machine", strings.TrimSpace(string(out)))
		return
	}
	config := t.TempDir()
	plugins := filepath.Join(config, "cli-plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := toolBinary(t, cache, "docker-compose", "github.com/docker/compose/v2/cmd")
	if err := os.Symlink(binary, filepath.Join(plugins, "docker-compose")); err != nil {
		t.Fatal(err)
	}
	// The client hands a machine's proxy on to builds and containers by this file alone.
	proxies := map[string]string{}
	for key, variable := range map[string]string{"httpProxy": "http_proxy", "httpsProxy": "https_proxy",
		"noProxy": "no_proxy"} {
		for _, v := range []string{variable, strings.ToUpper(variable)} {
			if value := os.Getenv(v); value != "" {
				proxies[key] = value
			}
		}
	}
	text, err := json.Marshal(map[string]any{"proxies": map[string]any{"default": proxies}})
	if err == nil {
		err = os.WriteFile(filepath.Join(config, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", config)
	must(t, exec.Command("docker", "compose", "version"))
	t.Logf("docker compose %s, built from its module",
		find(t, filepath.Join(tools, "go.mod"), `docker/compose/v2 (\S+)`))
}

// must runs a command and gives what it wrote to standard output.
func must(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := output(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// output runs a command; its error has what the command wrote to standard error.
func output(c *exec.Cmd) (string, error) {
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		// Complaints come last: what a build printed ends well before what the
		// engine refused behind it.
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(c.Args, " "), err, out, complaints.String())
	}
	return strings.TrimSpace(string(out)), err
}

func docker(args ...string) *exec.Cmd { return exec.Command("docker", args...) }
