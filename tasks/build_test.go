package tasks

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// load1 loads a pack of one task.
func load1(t *testing.T, pack fs.FS) *Task {
	t.Helper()
	loaded, err := LoadPack(pack)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	return loaded[0]
}

const (
	separateMode = "[verifier]\nenvironment_mode = \"separate\"\n"
	uvx          = "if uvx --with pytest pytest /tests/test_x.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
)

// TestImagesThatTasksNeed: which of a task's files need a container engine, for
// the task and for its tests.
func TestImagesThatTasksNeed(t *testing.T) {
	cases := []struct {
		name, config, dockerfile, tests, script string
		want                                    string // the files that are built, in their order
		image, verifier                         string // whose images are the roots: of a file, or as it is called
	}{
		{"an empty workspace", "", "FROM ubuntu:24.04\nWORKDIR /app", "", "", "", "", ""},
		{"the same, of the library", "", "FROM --platform=linux/amd64 docker.io/library/python@sha256:00 AS one\n", "",
			"", "", "", ""},
		{"an image that may hold a workspace", "", "FROM acme/ubuntu\nWORKDIR /app", "", "", "environment/Dockerfile",
			"environment/Dockerfile", ""},
		{"packages", "", "FROM debian\nRUN apt-get install -y git\nWORKDIR /app\nCOPY repo .", "", "",
			"environment/Dockerfile", "environment/Dockerfile", ""},
		{"asked for", "[metadata.rondo]\nimage = true", "FROM ubuntu\nWORKDIR /app", "", "", "environment/Dockerfile",
			"environment/Dockerfile", ""},
		{"built elsewhere", "[environment]\ndocker_image = \"acme/x:1\"", "FROM debian\nRUN make", "",
			"", "", "acme/x:1", ""},
		{"tests that are only copied", separateMode, "FROM ubuntu",
			"FROM python:3.12\nWORKDIR /app\nCOPY . /tests/", "", "", "", ""},
		{"tests with programs", separateMode, "FROM ubuntu", "FROM python:3.12\nRUN pip install pytest\nCOPY . /tests/",
			"", "tests/Dockerfile", "", "tests/Dockerfile"},
		{"tests on another image", separateMode, "FROM ubuntu", "FROM acme/tests\nCOPY . /tests/", "",
			"tests/Dockerfile", "", "tests/Dockerfile"},
		{"tests that are copied elsewhere", separateMode, "FROM ubuntu", "FROM python\nCOPY . /opt/", "",
			"tests/Dockerfile", "", "tests/Dockerfile"},
		{"a Dockerfile of shared tests", "", "FROM ubuntu", "FROM python:3.12\nRUN pip install pytest", "", "", "", ""},
		{"uvx", "", "FROM ubuntu\nWORKDIR /app", "", uvx, "environment/Dockerfile tests/test.sh",
			"environment/Dockerfile", "tests/test.sh"},
		{"apt-get", "", "FROM ubuntu\nWORKDIR /app", "", "apt-get -qq  install -y curl\n" + uvx,
			"environment/Dockerfile tests/test.sh", "environment/Dockerfile", "tests/test.sh"},
		{"uvx over a published image", "[environment]\ndocker_image = \"acme/x:1\"", "FROM debian\nRUN make", "", uvx,
			"tests/test.sh", "acme/x:1", "tests/test.sh"},
		{"uv in a project", "", "FROM ubuntu\nWORKDIR /app", "", "uv init\nuv add pytest==8.4.1\n",
			"environment/Dockerfile tests/test.sh", "environment/Dockerfile", "tests/test.sh"},
		{"a download", "", "FROM ubuntu\nWORKDIR /app", "", "curl -LsSf https://example.com/install.sh | sh\n",
			"environment/Dockerfile tests/test.sh", "environment/Dockerfile", "tests/test.sh"},
		{"a program of this machine", "", "FROM ubuntu\nWORKDIR /app", "",
			"curl -s http://localhost:8080/; git clone ../here; uv run pytest\n", "", "", ""},
		{"a word in a comment", "", "FROM ubuntu\nWORKDIR /app", "",
			"# apt-get install nothing, uvx neither\n", "", "", ""},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			more := fstest.MapFS{"t/task.toml": file(test.config)}
			if test.tests != "" {
				more["t/tests/Dockerfile"] = file(test.tests)
			}
			if test.script != "" {
				more["t/tests/test.sh"] = file(test.script)
			}
			task := load1(t, dockerized(test.dockerfile, more))
			of := map[string]string{}
			var built []string
			for _, b := range task.Builds {
				of[b.Image] = b.Field
				built = append(built, b.Field)
				if !strings.HasPrefix(b.Image, runfile.BuiltImages) || b.Why == "" {
					t.Errorf("%+v", b)
				}
			}
			name := func(image string) string {
				if field := of[image]; field != "" {
					return field
				}
				return image
			}
			if got := strings.Join(built, " "); got != test.want || name(task.Image) != test.image ||
				name(task.VerifierImage) != test.verifier {
				t.Errorf("builds %q, image %q, of the tests %q", got, name(task.Image), name(task.VerifierImage))
			}
			if task.Image == "" && contents(t, task.Snapshot) != "" {
				t.Errorf("the workspace holds %q", contents(t, task.Snapshot))
			}
		})
	}
}

// TestImagesAreNamedByTheirFiles: another file is another image, and another task.
func TestImagesAreNamedByTheirFiles(t *testing.T) {
	const dockerfile = "FROM debian\nRUN make\n"
	one, same := load1(t, dockerized(dockerfile, nil)), load1(t, dockerized(dockerfile, nil))
	other := load1(t, dockerized(dockerfile, fstest.MapFS{"t/environment/more": file("x")}))
	if one.Image != same.Image || one.Digest != same.Digest || one.Image == other.Image || one.Digest == other.Digest {
		t.Errorf("%s and %s, %s and %s", one.Image, same.Image, one.Image, other.Image)
	}
	compose := dockerized(dockerfile, fstest.MapFS{"t/environment/docker-compose.yaml": file("services: {}")})
	if _, err := LoadPack(compose); err == nil || !strings.Contains(err.Error(), "compose files are not supported") {
		t.Errorf("several containers: %v", err)
	}
}

// TestBuild: images of environment, tests and what test.sh installs are built by a real engine, and
// lint proves the tasks in them.
func TestBuild(t *testing.T) {
	sandboxtest.Require(t)
	base := importImage(t, "ENV PATH=/bin:/opt")
	// An installer that keeps what it installs where it may write, and fails where it has nothing.
	const installer = `RUN printf '#!/bin/sh\ntouch /opt/installed 2>/dev/null; test -e /opt/installed\n' > /bin/uvx && /bin/busybox chmod 755 /bin/uvx` + "\n"
	pack := fstest.MapFS{}
	task := func(name, config string, files map[string]string) {
		pack[name+"/task.toml"] = file(config)
		pack[name+"/instruction.md"] = file("Make the answer right.")
		pack[name+"/solution/solve.sh"] = file("echo 42 > answer\n")
		for path, text := range files {
			pack[name+"/"+path] = file(text)
		}
	}
	const judged = `[ "$(cat answer 2>/dev/null)" = 42 ] && r=1 || r=0; echo "$r" > /logs/verifier/reward.txt` + "\n"
	task("environment", "", map[string]string{
		"environment/Dockerfile": "FROM " + base + "\nRUN echo built > /opt/made\nWORKDIR /app\nRUN echo 41 > answer\n",
		"tests/test.sh": "[ \"$(cat /opt/made)\" = built ] && [ \"$(cat answer)\" != \"\" ] || exit 1\n" +
			judged,
	})
	task("tests", separateMode, map[string]string{
		"environment/Dockerfile": "FROM ubuntu\nWORKDIR /app\n",
		"tests/Dockerfile": "FROM " + base +
			"\nRUN echo tests > /opt/made\nENV OF=tests\nWORKDIR /app\nCOPY . /tests/\n",
		"tests/test.sh": "[ \"$(cat /opt/made)$OF\" = teststests ] || exit 1\n" + judged,
	})
	task("installs", "", map[string]string{
		"environment/Dockerfile": "FROM " + base + "\n" + installer + "WORKDIR /app\n",
		"tests/test.sh":          "uvx --with pytest pytest || exit 1\n[ \"$UV_OFFLINE\" = 1 ] || [ ! -e /testbed/none ] || exit 1\n" + judged,
	})
	loaded, err := LoadPack(pack)
	if err != nil || len(loaded) != 3 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	cache := t.TempDir()
	for _, task := range loaded {
		unbuilt := *task
		if report := Lint(t.Context(), &unbuilt, LintOptions{Repeats: 1,
			Machine: Machine{ToolchainCache: cache}}); report.Verdict != VerdictUnsupported ||
			!strings.Contains(strings.Join(report.Problems, " "), "rondo tasks build") {
			t.Errorf("%s before it is built: %+v", task.Name, report)
		}
		for _, b := range task.Builds {
			for _, want := range []bool{true, false} {
				if made, err := b.Make(t.Context()); err != nil || made != want {
					t.Fatalf("%s: %s is built: %v, %v", task.Name, b.Field, made, err)
				}
			}
			t.Cleanup(func() { _ = exec.Command("docker", "rmi", "--force", b.Image).Run() })
		}
		if report := Lint(t.Context(), task, LintOptions{Repeats: 1,
			Machine: Machine{ToolchainCache: cache}}); !report.OK || task.Workdir != "/app" {
			t.Errorf("%s: %+v, workspace %s", task.Name, report, task.Workdir)
		}
	}
}

// TestHarborInit loads what the real command writes, with an instruction: of each of its templates.
func TestHarborInit(t *testing.T) {
	python := os.Getenv("RONDO_HARBOR")
	if python == "" {
		t.Skip("RONDO_HARBOR names the Python of a virtual environment with harbor 0.25.0")
	}
	dir := t.TempDir()
	script := `import sys
from pathlib import Path
from harbor.cli.init import _init_task
from harbor.models.task.config import VerifierEnvironmentMode as Mode
at = Path(sys.argv[1])
_init_task("acme/init-pytest", at)
_init_task("acme/init-plain", at, no_pytest=True, include_canary_strings=True)
_init_task("acme/init-uvx", at, verifier_mode=Mode.SHARED)
_init_task("acme/init-steps", at, steps=2, no_pytest=True)
`
	if out, err := exec.Command(python, "-c", script, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"init-pytest", "init-plain", "init-uvx", "init-steps/steps/step-1",
		"init-steps/steps/step-2"} {
		if err := os.WriteFile(filepath.Join(dir, name, "instruction.md"), []byte("Do it."), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"init-plain": "", "init-pytest": "tests/Dockerfile", "init-steps": "",
		"init-uvx": "environment/Dockerfile tests/test.sh"}
	for _, task := range loaded {
		var built []string
		for _, b := range task.Builds {
			built = append(built, b.Field)
		}
		if got := strings.Join(built, " "); got != want[task.Name] {
			t.Errorf("%s: builds %q", task.Name, got)
		}
		delete(want, task.Name)
	}
	if len(want) > 0 {
		t.Errorf("not loaded: %v", want)
	}
}
