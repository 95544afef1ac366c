package tasks

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// importImage makes a container image of one static busybox and the files, and answers its name.
func importImage(t *testing.T, changes ...string) string {
	t.Helper()
	if os.Getenv("RONDO_DOCKER") != "1" {
		t.Skip("RONDO_DOCKER=1 uses this machine's Docker engine (.ci/docker installs and starts one)")
	}
	const busybox = "/bin/busybox" // Debian's busybox-static
	root := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	for _, folder := range []string{"bin", "etc", "testbed", "testbed/.git", "opt", "root", "var"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run("cp", busybox, filepath.Join(root, "bin/busybox"))
	for _, applet := range []string{"sh", "cat", "echo", "mkdir", "ls", "touch", "grep", "cp", "test", "["} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"etc/release": "image 7\n", "testbed/answer": "41\n", "testbed/.git/fix": "42\n",
		"opt/tool": "#!/bin/sh\necho tool\n", "root/.profile": "kept\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	run("tar", "--create", "--file", archive, "--directory", root, ".")
	name := "rondo-test/" + strings.ToLower(filepath.Base(root)) + ":1"
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	run("docker", append(args, archive, name)...)
	t.Cleanup(func() { run("docker", "rmi", "--force", name) })
	return name
}

// TestTaskOfAnImage: the image's tree is the root file system of solution and verifier, its work
// directory the workspace, its variables theirs.
func TestTaskOfAnImage(t *testing.T) {
	sandboxtest.Require(t)
	name := importImage(t, "WORKDIR /testbed", "ENV PATH=/opt:/bin", "ENV FLAVOUR=image")
	dir := t.TempDir()
	for file, content := range map[string]string{
		"task.toml":      "[task]\nname = \"x/image\"\n[environment]\ndocker_image = \"" + name + "\"\n",
		"instruction.md": "Make the answer right.",
		"tests/test.sh": `[ "$(cat /etc/release)" = "image 7" ] && [ "$(tool)" = tool ] && [ "$FLAVOUR" = image ] && [ "$(cat /root/.profile)" = kept ] || exit 1
[ -e /usr/lib/os-release ] || [ -e .git/fix ] || [ ! -e .git/HEAD ] && exit 1
touch /etc/x 2>/dev/null && exit 1
[ "$(cat answer)" = 42 ] && r=1 || r=0
echo "$r" > /logs/verifier/reward.txt
`,
		"solution/solve.sh": "touch /root/home && echo 42 > answer\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	task := list[0]
	if task.Image != name || task.Snapshot != nil {
		t.Fatalf("loaded with image %q", task.Image)
	}
	cache := t.TempDir()
	report := Lint(t.Context(), task, LintOptions{Repeats: 1, Machine: Machine{ToolchainCache: cache}})
	if !report.OK || task.Workdir != "/testbed" || !strings.HasPrefix(task.ImageID, "sha256:") {
		t.Errorf("%+v, workspace %s, image %s", report, task.Workdir, task.ImageID)
	}
	if found, err := os.ReadDir(filepath.Join(cache, "images")); err != nil || len(found) != 1 {
		t.Errorf("the cache holds %v, %v", found, err)
	}
	missing := *list[0]
	missing.Root, missing.Image = "", "rondo-test/there-is-none:1"
	if report := Lint(t.Context(), &missing, LintOptions{Repeats: 1,
		Machine: Machine{ToolchainCache: cache}}); report.OK ||
		!strings.Contains(strings.Join(report.Problems, " "), "there-is-none") {
		t.Errorf("without the image: %+v", report)
	}
}
