package terminalbench

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/tasks"
)

// TestConvert: a task of Terminal-Bench's first layout becomes one that fails as it is and
// passes with its solution.
func TestConvert(t *testing.T) {
	names, err := Tasks("testdata")
	if err != nil || !slices.Equal(names, []string{"hello-greeting"}) {
		t.Fatalf("%q, %v", names, err)
	}
	if names, err := Tasks("testdata/hello-greeting"); err != nil || !slices.Equal(names, []string{"."}) {
		t.Fatalf("%q, %v", names, err)
	}
	dir := t.TempDir()
	converted, err := Convert("testdata/hello-greeting", dir)
	if err != nil || converted != (Converted{Name: "hello-greeting"}) {
		t.Fatalf("%+v, %v", converted, err)
	}
	name := converted.Name
	if _, err := Convert("testdata/hello-greeting", dir); err == nil {
		t.Error("a folder that is there is written again")
	}
	var found []string
	err = fs.WalkDir(os.DirFS(filepath.Join(dir, name)), ".", func(path string, entry fs.DirEntry, err error) error {
		if !entry.IsDir() {
			found = append(found, path)
		}
		return err
	})
	want := []string{"environment/Dockerfile", "environment/greeting.txt", "instruction.md", "solution/solve.sh",
		"task.toml", "tests/test.sh", "tests/test_outputs.py"}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("%q, %v", found, err)
	}
	loaded, err := tasks.LoadDir(dir)
	if err != nil || len(loaded) != 1 {
		t.Fatalf("%d tasks, %v", len(loaded), err)
	}
	task := loaded[0]
	if task.Name != "hello-greeting" || task.AgentTimeout.Seconds() != 900 || task.VerifierTimeout.Seconds() != 180 ||
		task.Workdir != "/app" || task.Image != "" || len(task.Builds) != 0 {
		t.Errorf("%s: %v, %v, %s, %q, %+v", task.Name, task.AgentTimeout, task.VerifierTimeout, task.Workdir,
			task.Image, task.Builds)
	}
	sandboxtest.Require(t)
	if exec.Command("/usr/bin/python3", "-c", "import pytest").Run() != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal("pytest is required by RONDO_REQUIRE_ALL=1")
		}
		t.Skip("this machine has no pytest where sandboxes see it")
	}
	if report := tasks.Lint(t.Context(), task, tasks.LintOptions{Repeats: 1}); !report.OK {
		t.Errorf("%+v", report)
	}
}

// sound is a task of which tests change a file.
func sound(t testing.TB) fstest.MapFS {
	t.Helper()
	made := fstest.MapFS{}
	source := os.DirFS("testdata/hello-greeting")
	err := fs.WalkDir(source, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(source, path)
		made[path] = &fstest.MapFile{Data: data, Mode: 0o644}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

const compose = "docker-compose.yaml"

func TestRefusals(t *testing.T) {
	replace := func(file, old, new string) func(fstest.MapFS) {
		return func(f fstest.MapFS) {
			if text := string(f[file].Data); !strings.Contains(text, old) {
				t.Errorf("%s does not contain %q", file, old)
			} else {
				f[file] = &fstest.MapFile{Data: []byte(strings.Replace(text, old, new, 1))}
			}
		}
	}
	service := func(line string) func(fstest.MapFS) { return replace(compose, "    command:", line+"\n    command:") }
	put := func(file, text string) func(fstest.MapFS) {
		return func(f fstest.MapFS) { f[file] = &fstest.MapFile{Data: []byte(text)} }
	}
	without := func(file string) func(fstest.MapFS) { return func(f fstest.MapFS) { delete(f, file) } }
	for name, c := range map[string]struct {
		change func(fstest.MapFS)
		want   string // of the error; "" for none
	}{
		"as it is":              {func(fstest.MapFS) {}, ""},
		"a context by its name": {replace(compose, "build:\n      dockerfile: Dockerfile", "build: ./"), ""},
		"ports":                 {service("    ports: [\"80:80\"]"), ""},
		"a service beside it": {replace(compose, "services:", "services:\n  db:\n    image: postgres:16"),
			"services: 2 of them"},
		"networks":       {replace(compose, "services:", "networks: {a: {}}\nservices:"), "networks"},
		"privileges":     {service("    privileged: true"), "services.client.privileged"},
		"an entry point": {service("    entrypoint: /start.sh"), "services.client.entrypoint"},
		"a program":      {replace(compose, "sleep infinity", "nginx"), "starts no program"},
		"a volume": {replace(compose, "volumes:", "volumes:\n      - /:/host"),
			"services.client.volumes"},
		"another machine":         {service("    platform: linux/arm64"), "linux/amd64"},
		"this machine's value":    {replace(compose, "GREETED=world", "GREETED"), "GREETED"},
		"this machine's variable": {replace(compose, "GREETED=world", "GREETED=${HOME}"), "GREETED"},
		"a name that is none":     {replace(compose, "GREETED=world", "A B=c"), "A B"},
		"a context elsewhere":     {replace(compose, "build:", "build:\n      context: ../.."), "context"},
		"a context of tests": {replace(compose, "build:\n      dockerfile: Dockerfile", "build: tests"),
			"tests/Dockerfile"},
		"arguments": {replace(compose, "build:", "build:\n      args: {A: b}"), "args"},
		"an image with a line": {replace(compose,
			"build:\n      dockerfile: Dockerfile\n    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}",
			`image: "a\nRUN b"`), "image"},
		"no image": {replace(compose,
			"build:\n      dockerfile: Dockerfile\n    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}", "init: true"),
			"no build"},
		"an image that is pulled": {replace(compose,
			"build:\n      dockerfile: Dockerfile\n    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}",
			"image: python:3.13"), ""},
		"no compose file": {without(compose), compose},
		"no Dockerfile":   {without("Dockerfile"), "Dockerfile"},
		"tests in the image": {replace("Dockerfile", "COPY greeting.txt",
			"COPY greeting.txt ./tests/test_outputs.py"), "copies tests"},
		"a solution in the image": {replace("Dockerfile", "COPY greeting.txt ./", `ADD ["solution.sh", "/"]`),
			"copies solution.sh"},
		"a folder called tests": {replace("Dockerfile", "COPY greeting.txt ./", "COPY greeting.txt /app/tests/"),
			""},
		"no instruction": {replace("task.yaml",
			"Write the text of greeting.txt to hello.txt, in upper case.", ""), "instruction"},
		"another parser": {replace("task.yaml", "parser_name: pytest", "parser_name: jest"), "parser_name"},
		"a row of SWE-bench": {replace("task.yaml", "parser_name: pytest", "parser_name: swebench"),
			"rondo tasks import swebench"},
		"limits":                    {service("    deploy: {resources: {limits: {cpus: '0.5', memory: 2G}}}"), ""},
		"reserved":                  {service("    deploy: {resources: {reservations: {memory: 2G}}}"), ""},
		"copies of a service":       {service("    deploy: {replicas: 2}"), "services.client.deploy"},
		"no processors":             {service("    cpus: 0"), "services.client.cpus"},
		"another amount":            {service("    mem_limit: much"), "services.client.mem_limit"},
		"a limit of something else": {service("    deploy: {resources: {limits: {devices: 1}}}"), "limits.devices"},
		"no YAML":                   {put("task.yaml", "a: [b"), "task.yaml"},
		"keystrokes": {func(f fstest.MapFS) {
			delete(f,
				"solution.sh")
			f["solution.yaml"] = &fstest.MapFile{}
		}, "solution.yaml"},
		"no solution":               {without("solution.sh"), "solution.sh"},
		"no tests' script":          {without("run-tests.sh"), "run-tests.sh"},
		"a script that is too long": {put("run-tests.sh", strings.Repeat("#", maxText+1)), "run-tests.sh: more than"},
		"a grading":                 {put("tests/grading.json", "{}"), "grading.json"},
		"a link": {func(f fstest.MapFS) {
			f["tests/link"] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}
		}, "tests/link"},
		"a pipe": {func(f fstest.MapFS) { f["pipe"] = &fstest.MapFile{Mode: fs.ModeNamedPipe} }, "pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			source := sound(t)
			c.change(source)
			made, _, err := convert(source, "a")
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want %q: %v", c.want, err)
			}
			if err != nil {
				return
			}
			dir := t.TempDir()
			if err := made.write(source, filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
			if _, err := tasks.LoadDir(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLimits: a container's limits become those of the sandbox, rounded up.
func TestLimits(t *testing.T) {
	for text, want := range map[string][2]int{
		"    deploy:\n      resources:\n        limits: {cpus: '1.5', memory: 2G}": {2, 2048},
		"    cpus: 2\n    mem_limit: 1500k":                                        {2, 2},
		"    mem_limit: 1073741824":                                                {0, 1024},
		"    tty: true":                                                            {},
	} {
		source := sound(t)
		source[compose] = &fstest.MapFile{Data: []byte(strings.Replace(string(source[compose].Data),
			"    command:", text+"\n    command:", 1))}
		dir := t.TempDir()
		made, _, err := convert(source, "a")
		if err == nil {
			err = made.write(source, filepath.Join(dir, "a"))
		}
		loaded, loadErr := tasks.LoadDir(dir)
		if err != nil || loadErr != nil || len(loaded) != 1 {
			t.Fatalf("%s: %d tasks, %v, %v", text, len(loaded), err, loadErr)
		}
		if got := [2]int{loaded[0].CPUs, loaded[0].MemoryMB}; got != want {
			t.Errorf("%s: %d processors and %d MiB, want %d", text, got[0], got[1], want)
		}
	}
}

// TestShellOfTheAgent: a task whose tests were to run in the agent's shell says so.
func TestShellOfTheAgent(t *testing.T) {
	source := sound(t)
	source["task.yaml"] = &fstest.MapFile{Data: bytes.Replace(source["task.yaml"].Data, []byte("same_shell: false"),
		[]byte("same_shell: true"), 1)}
	if _, ownShell, err := convert(source, "a"); err != nil || !ownShell {
		t.Errorf("its tests have a shell of their own: %v, %v", ownShell, err)
	}
	if _, ownShell, err := convert(sound(t), "a"); err != nil || ownShell {
		t.Errorf("as it is: %v, %v", ownShell, err)
	}
}

// TestLinksLeadNowhere: what a link outside of the folder holds is in no task.
func TestLinksLeadNowhere(t *testing.T) {
	for _, name := range []string{"run-tests.sh", "solution.sh", "tests", "Dockerfile"} {
		source, elsewhere := filepath.Join(t.TempDir(), "a"), t.TempDir()
		if err := os.CopyFS(source, os.DirFS("testdata/hello-greeting")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(source, name), filepath.Join(elsewhere, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(elsewhere, name), filepath.Join(source, name)); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := Convert(source, dir); err == nil {
			t.Errorf("%s: a link that leads out is followed", name)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// TestScript: the verdict is that of the script, however it ends; the reward of a
// script that does not end is 0.
func TestScript(t *testing.T) {
	for script, want := range map[string]string{
		"true": "1", "false": "0", "exit 0": "1", "exit 3": "0", "set -e\nfalse\ntrue": "0", "true # the end": "1",
		"cat <<END\n)\nEND": "1", "kill -9 $$": "0",
		"case a in a) true ;; esac": "1", "source /nothing\nfalse": "0",
	} {
		source := sound(t)
		source["run-tests.sh"] = &fstest.MapFile{Data: []byte("#!/bin/bash\n" + script)}
		made, _, err := convert(source, "a")
		if err != nil {
			t.Fatal(err)
		}
		reward := filepath.Join(t.TempDir(), "reward.txt")
		text := strings.ReplaceAll(made["tests/test.sh"].text, "/logs/verifier/reward.txt", reward)
		_ = exec.Command("bash", "-c", text).Run() // its own code says nothing
		if got, err := os.ReadFile(reward); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%q: %q, %v, want %s", script, got, err, want)
		}
	}
}

// FuzzCompose: no file makes the reader fail otherwise than with an error, and what it adds to a
// Dockerfile is lines of two kinds.
func FuzzCompose(f *testing.F) {
	text, err := os.ReadFile("testdata/hello-greeting/docker-compose.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("services: {a: {image: x, working_dir: /a, environment: {A: \"b\\\"\\\\$$c\"}}}")
	f.Fuzz(func(t *testing.T, text string) {
		main, err := readCompose(fstest.MapFS{compose: &fstest.MapFile{Data: []byte(text)}})
		if err != nil {
			return
		}
		for line := range strings.Lines(main.additions) {
			if !strings.HasPrefix(line, "ENV ") && !strings.HasPrefix(line, "WORKDIR /") {
				t.Errorf("added %q", line)
			}
		}
	})
}
