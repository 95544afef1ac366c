package readme

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/program"
)

var (
	shellBlock = regexp.MustCompile("(?s)\n```sh\n(.*?)```")
	argument   = regexp.MustCompile(`'[^']*'|\S+`)
)

// shellCommands are the commands of a document's sh blocks, split into arguments.
func shellCommands(t *testing.T, path string) [][]string {
	t.Helper()
	var commands [][]string
	for _, block := range shellBlock.FindAllStringSubmatch(read(t, path), -1) {
		for line := range strings.Lines(block[1]) {
			args := argument.FindAllString(line, -1)
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			commands = append(commands, args)
		}
	}
	return commands
}

// TestCommands runs every command of README.md that ends by itself, on a plane that has run a demo. Of the others it checks
// that the command and its flags exist.
func TestCommands(t *testing.T) {
	program.NeedSandbox(t)
	dir := t.TempDir()
	tasks := quickTasks(t)
	demo := []string{"demo", "--tasks", tasks, "--steps", "1", "--groups-per-batch", "2", "--group-size", "4", "--quiet", "--json"}
	if _, err := command(dir, rondo, demo...); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tasks, filepath.Join(dir, "my-tasks")); err != nil {
		t.Fatal(err)
	}
	fix := filepath.Join(dir, "my-fix")
	if err := os.CopyFS(fix, os.DirFS(filepath.Join(dir, "my-tasks/shell-slugify/environment/repo"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "shop"), os.DirFS(fix)); err != nil {
		t.Fatal(err)
	}
	// Keys and caches of indexes are the test's own.
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	ran := 0
	for _, args := range shellCommands(t, filepath.Join(root, "README.md")) {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if strings.HasPrefix(strings.Join(args, " "), "go run ./cmd/rondo ") {
				args = slices.Concat([]string{"rondo"}, args[3:])
			}
			if args[0] != "rondo" {
				checkOther(t, args)
				return
			}
			ran++
			args = args[1:]
			if needsAnother(args) {
				args = append(args, "--help") // last, so that the flags before it are read
			}
			_, err := command(dir, rondo, args...)
			var exit *exec.ExitError
			if slices.Contains(args, "--tools") && errors.As(err, &exit) && exit.ExitCode() == 2 {
				return // what a policy writes need not be deterministic
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	if ran < 15 {
		t.Errorf("README.md has %d rondo commands", ran)
	}
	t.Run("snippet", func(t *testing.T) { checkSnippet(t, dir) })
}

// checkSnippet runs README.md's snippet on a trajectory that the commands before have exported.
func checkSnippet(t *testing.T, dir string) {
	_, rest, found := strings.Cut(read(t, filepath.Join(root, "README.md")), "```python\nimport pyarrow")
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("README.md has no snippet that imports pyarrow")
	}
	out, err := command(dir, python(t), "-c", "import pyarrow"+code)
	if err != nil || !strings.Contains(out, "'role': 'assistant'") {
		t.Errorf("%v\n%s", err, out)
	}
}

// needsAnother: the command does not end by itself, is one of a plane that another command holds, or reads files that only a reader has.
func needsAnother(args []string) bool {
	switch args[0] {
	case "demo", "up", "service", "fork":
		return true
	case "sandbox":
		return !slices.Contains(args, "--") // a shell
	case "events":
		return args[1] == "publish"
	case "tasks":
		return args[1] == "import"
	case "eval":
		return slices.Contains(args, "--follow")
	case "run":
		return slices.Contains(args, "--dir") || args[1] == "open"
	}
	return false
}

// checkOther checks a command that is not Rondo's.
func checkOther(t *testing.T, args []string) {
	t.Helper()
	line := strings.Join(args, " ")
	switch {
	case args[0] == "docker":
		checkCompose(t, args)
	case args[0] == "cp":
		read(t, filepath.Join(root, args[1]))
	case args[0] == "pip":
		read(t, filepath.Join(root, strings.TrimSuffix(args[2], "[torch]"), "pyproject.toml"))
	case line == "python3 -m pytest clients/python": // tests/python runs it
	case args[0] == "curl":
		// tests/gateway asks the same paths.
		if !regexp.MustCompile(`^http://127\.0\.0\.1:8790/rollouts(/[\w.-]+/(v1/chat/completions|finish))?$`).MatchString(args[2]) {
			t.Errorf("the gateway has no %s", args[2])
		}
	case args[0] == "python3":
		if used := "examples/trainer.py"; args[1] != used { // TestTrainerOfYourOwn runs it
			t.Errorf("no test runs %s", args[1])
		}
	case strings.HasPrefix(line, "go test"):
		// What .ci/run runs says more: how many packages at a time, and a limit of time.
		if want := strings.Replace(line, "go test -race", "go test -race -p 3 -vet=off -timeout 20m", 1); !strings.Contains(read(t, filepath.Join(root, ".ci/run")), want) {
			t.Errorf(".ci/run does not run %s", line)
		}
	default:
		t.Errorf("nothing checks this command")
	}
}

// TestTaskfile: its commands are those that README.md and .ci/run have, or rondo's own.
func TestTaskfile(t *testing.T) {
	tasks, ci := read(t, filepath.Join(root, "Taskfile.yml")), read(t, filepath.Join(root, ".ci/run"))
	linter := regexp.MustCompile(`honnef\.co/go/tools/cmd/staticcheck@\S+`)
	if a, b := linter.FindString(tasks), linter.FindString(ci); a == "" || a != b {
		t.Errorf("Taskfile.yml lints with %q, .ci/run with %q", a, b)
	}
	found := regexp.MustCompile(`go run \./cmd/rondo ([a-z ]+)`).FindAllStringSubmatch(tasks, -1)
	for _, m := range found {
		args := append(strings.Fields(m[1]), "--help")
		if out, err := command(root, rondo, args...); err != nil || !strings.Contains(out, "Usage:\n  rondo "+strings.TrimSpace(m[1])) {
			t.Errorf("%s: %v\n%s", m[0], err, out)
		}
	}
	if len(found) < 3 {
		t.Errorf("Taskfile.yml has %d rondo commands", len(found))
	}
}

// checkCompose checks profiles, and what is run in the command line's container.
func checkCompose(t *testing.T, args []string) {
	t.Helper()
	file := read(t, filepath.Join(root, "compose.yaml"))
	if i := slices.Index(args, "--profile"); i > 0 && !strings.Contains(file, "profiles: ["+args[i+1]+"]") {
		t.Errorf("compose.yaml has no profile %s", args[i+1])
	}
	if i := slices.Index(args, "--rm"); i > 0 {
		if !strings.Contains(file, "\n  "+args[i+1]+":\n") {
			t.Errorf("compose.yaml has no service %s", args[i+1])
		}
		if _, err := command(root, rondo, append(args[i+2:], "--help")...); err != nil {
			t.Error(err)
		}
	}
}
