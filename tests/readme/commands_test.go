package readme

import (
	"errors"
	"fmt"
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

// TestCommands runs every command of README.md, ARCHITECTURE.md, the guide and the benchmarks that
// ends by itself, each once, on one plane that has run a demo. Of the others it checks that the
// command and its flags exist.
func TestCommands(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := t.TempDir()
	tasks := quickTasks(t)
	demo := []string{"demo", "--tasks", tasks, "--steps", "1", "--groups-per-batch", "2", "--group-size",
		"4", "--quiet", "--json"}
	if _, err := command(dir, rondo, demo...); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tasks, filepath.Join(dir, "my-tasks")); err != nil {
		t.Fatal(err)
	}
	for name, repository := range map[string]string{"my-fix": "demo/packs/small/password",
		"shop": "demo/packs/sample/shell-slugify"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, repository,
			"environment/repo"))); err != nil {
			t.Fatal(err)
		}
	}
	retention, err := os.ReadFile(filepath.Join(root, "examples/retention.yaml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "retention.yaml"), retention, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, document := range commandDocuments(t) {
		for _, args := range shellCommands(t, document) {
			line := strings.Join(args, " ")
			if seen[line] {
				continue
			}
			seen[line] = true
			t.Run(line, func(t *testing.T) { checkCommand(t, dir, args) })
		}
	}
	if len(seen) < 70 {
		t.Errorf("the documents have %d commands", len(seen))
	}
	t.Run("snippet", func(t *testing.T) { checkSnippet(t, dir) })
}

// commandDocuments are the documents whose commands are run, in this order. The guide's
// pages for users of other libraries have planes of their own:
// clients/python/tests/test_pages.py runs their commands.
func commandDocuments(t *testing.T) []string {
	t.Helper()
	guide, err := filepath.Glob(filepath.Join(root, "docs/guide/*.md"))
	if err != nil || len(guide) < 10 {
		t.Fatalf("guide %v: %v", guide, err)
	}
	guide = slices.DeleteFunc(guide, func(page string) bool { return strings.HasPrefix(filepath.Base(page), "from-") })
	list := []string{filepath.Join(root, "README.md"), filepath.Join(root, "ARCHITECTURE.md")}
	return append(append(list, guide...), filepath.Join(root, "docs/benchmarks.md"),
		filepath.Join(root, "docs/scale.md"))
}

// checkCommand runs a command of a document, or checks that its command and flags exist.
func checkCommand(t *testing.T, dir string, args []string) {
	t.Helper()
	switch {
	case args[0] == "rondo-bench" || args[0] == "bin/rondo-bench":
		if _, err := command(dir, program.Bench(rondo), append(args[1:], "--help")...); err != nil {
			t.Error(err)
		}
		return
	case strings.HasPrefix(strings.Join(args, " "), "go run ./cmd/rondo "):
		args = args[3:]
	case args[0] == "rondo" || args[0] == "bin/rondo" || args[0] == "rondo/bin/rondo":
		args = args[1:]
	default:
		checkOther(t, args)
		return
	}
	if needsAnother(args) {
		args = append(args, "--help") // last, so that the flags before it are read
	}
	// Keys and caches of indexes are the test's own.
	own := []string{"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}
	_, err := commandWith(own, dir, rondo, args...)
	var exit *exec.ExitError
	if slices.Contains(args, "--tools") && errors.As(err, &exit) && exit.ExitCode() == 2 {
		return // what a policy writes need not be deterministic
	}
	if err != nil {
		t.Error(err)
	}
}

// checkSnippet runs the guide's snippet on a trajectory that the commands before have exported.
func checkSnippet(t *testing.T, dir string) {
	_, rest, found := strings.Cut(read(t, filepath.Join(root, "docs/guide/trainers.md")), "```python\nimport pyarrow")
	code, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("docs/guide/trainers.md has no snippet that imports pyarrow")
	}
	out, err := command(dir, python(t), "-c", "import pyarrow"+code)
	if err != nil || !strings.Contains(out, "'role': 'assistant'") {
		t.Errorf("%v\n%s", err, out)
	}
}

// needsAnother: the command does not end by itself, is one of a plane that another command holds,
// or reads files that only a reader has.
func needsAnother(args []string) bool {
	switch args[0] {
	case "demo", "up", "dashboard", "service", "fork", "track", "invalidate", "release":
		return true
	case "doctor":
		return slices.Contains(args, "--endpoint") // TestDoctorOfAnEndpoint asks one
	case "sandbox":
		return !slices.Contains(args, "--") // a shell
	case "agents":
		return args[1] == "build" || args[1] == "remove" || args[1] == "show" // tests/agents builds them
	case "events":
		return args[1] == "publish"
	case "tasks":
		return args[1] == "import"
	case "eval", "weights":
		return slices.Contains(args, "--follow")
	case "run":
		return slices.Contains(args, "--dir") || args[1] == "open"
	}
	return false
}

// releaseFiles are the names of a wheel and a Debian package, as their makers are told them.
// tests/release has the files.
func releaseFiles(t *testing.T) []string {
	t.Helper()
	platform := regexp.MustCompile(`RONDO_WHEEL_PLATFORM=(\S+)`).FindStringSubmatch(read(t,
		filepath.Join(root, "clients/python/wheels")))
	if platform == nil || !strings.Contains(read(t, filepath.Join(root, ".goreleaser.yaml")),
		`file_name_template: "{{ .ConventionalFileName }}"`) {
		t.Fatal("clients/python/wheels and .goreleaser.yaml do not name their files")
	}
	return []string{"rondo_rl-0.1.0-py3-none-" + strings.ReplaceAll(platform[1], "$machine", "x86_64") + ".whl",
		"rondo_0.1.0_amd64.deb"}
}

// checkOther checks a command that is not Rondo's.
func checkOther(t *testing.T, args []string) {
	t.Helper()
	line := strings.Join(args, " ")
	switch {
	case args[0] == "docker" && args[1] == "build":
		if !strings.Contains(read(t, filepath.Join(root, "Dockerfile")), " AS "+args[3]+"\n") {
			t.Errorf("Dockerfile has no target %s", args[3])
		}
	case args[0] == "docker":
		checkCompose(t, args)
	case args[0] == "echo": // tests/compose adds the files so, and runs the commands that follow
		for file := range strings.SplitSeq(strings.TrimPrefix(args[1], "COMPOSE_FILE="), ":") {
			read(t, filepath.Join(root, file))
		}
	case args[0] == "sbatch": // tests/slurm runs the script
		read(t, filepath.Join(root, args[len(args)-1]))
	case args[0] == "helm" || args[0] == "kubectl" || args[0] == "deploy/helm/secrets":
		checkKubernetes(t, args)
	case args[0] == "cp":
		read(t, filepath.Join(root, args[1]))
	case strings.HasSuffix(line, ".whl") || strings.HasSuffix(line, ".deb"):
		if file := strings.TrimPrefix(args[2], "./"); !slices.ContainsFunc(releaseFiles(t),
			func(name string) bool { ok, _ := filepath.Match(file, name); return ok }) {
			t.Errorf("a release has no file %s", file)
		}
	case args[0] == "clients/python/wheels" || args[0] == ".ci/goreleaser":
		if !strings.Contains(read(t, filepath.Join(root, ".ci/release"))+
			read(t, filepath.Join(root, ".goreleaser.yaml")), strings.Join(args[:len(args)-1], " ")) {
			t.Errorf("no release is made by %s", line)
		}
		read(t, filepath.Join(root, args[0]))
	case line == "sha256sum --check --ignore-missing SHA256SUMS" || line == "python3 -m venv rondo":
	case args[0] == "pip":
		read(t, filepath.Join(root, strings.TrimSuffix(args[2], "[torch]"), "pyproject.toml"))
	case line == "CGO_ENABLED=0 go build -o bin/ ./cmd/...":
		if !strings.Contains(read(t, filepath.Join(root, "Taskfile.yml")), "go build -o bin/ ./cmd/...") {
			t.Errorf("Taskfile.yml does not run %s", line)
		}
	case args[0] == "curl":
		// tests/gateway asks the same paths, and tests/e2e with the key of the plane's directory.
		if len(args) < 5 || !slices.Equal(args[1:4], []string{"-s", "-H", `"$key"`}) ||
			!regexp.MustCompile(
				`^http://127\.0\.0\.1:8790/rollouts(/[\w.-]+/(v1/chat/completions|finish))?$`).MatchString(args[4]) {
			t.Errorf("the gateway has no %s", line)
		}
	// TestKilledGatewayLosesNoAnswer reads the file
	case line == `key="Authorization: Bearer $(cat .rondo/gateway.key)"`:
	case args[0] == "python3":
		if used := "examples/trainer.py"; args[1] != used { // TestTrainerOfYourOwn runs it
			t.Errorf("no test runs %s", args[1])
		}
	// tests/lanes: all of these packages are in the lanes of .ci/run
	case line == "go test ./..." || line == "go test -race ./...":
	case args[0] == "task":
		for _, name := range args[1:] {
			if !strings.Contains(read(t, filepath.Join(root, "Taskfile.yml")), "\n  "+name+":\n") {
				t.Errorf("Taskfile.yml has no task %s", name)
			}
		}
	default:
		t.Errorf("nothing checks this command")
	}
}

// TestTaskfile: its commands are the lanes that .ci/run has, or rondo's own.
func TestTaskfile(t *testing.T) {
	tasks, ci := read(t, filepath.Join(root, "Taskfile.yml")), read(t, filepath.Join(root, ".ci/run"))
	for _, lane := range []string{"lint", "test", "sandbox", "e2e", "compose"} {
		if script := ".ci/" + lane; !regexp.MustCompile(`\n  `+lane+`:\n.*\n +cmds:[ \n-]*\[?`+script+
			`\b`).MatchString(tasks) || !regexp.MustCompile(`(?m)^[^#\n]*`+script+`\b`).MatchString(ci) {
			t.Errorf("Taskfile.yml or .ci/run does not run %s", script)
		}
	}
	found := regexp.MustCompile(`go run \./cmd/rondo ([a-z ]+)`).FindAllStringSubmatch(tasks, -1)
	for _, m := range found {
		args := append(strings.Fields(m[1]), "--help")
		if out, err := command(root, rondo, args...); err != nil ||
			!strings.Contains(out, "Usage:\n  rondo "+strings.TrimSpace(m[1])) {
			t.Errorf("%s: %v\n%s", m[0], err, out)
		}
	}
	if want := []string{"demo", "up"}; len(found) != len(want) {
		t.Errorf("Taskfile.yml has %d rondo commands, want %v", len(found), want)
	}
}

// checkCompose checks profiles, and what is run in the command line's container.
func checkCompose(t *testing.T, args []string) {
	t.Helper()
	file := read(t, filepath.Join(root, "compose.yaml")) + read(t, filepath.Join(root, "compose.cluster.yaml"))
	if args[2] == "kill" || args[2] == "start" {
		if !strings.Contains(file, "\n  "+args[3]+":\n") {
			t.Errorf("compose.cluster.yaml has no service %s", args[3])
		}
	}
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

var (
	inlineCommand = regexp.MustCompile("`rondo ([a-z][^`\n]*)`")
	usage         = regexp.MustCompile(`(?m)^Usage:\n  rondo(.*)$`)
	plainWord     = regexp.MustCompile(`^[a-z]+$`)
)

// TestInlineCommands: every command that a document names in a sentence exists, and has
// the flags that stand there.
func TestInlineCommands(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, document := range documents(t) {
		for _, m := range inlineCommand.FindAllStringSubmatch(read(t, filepath.Join(root, document)), -1) {
			if seen[m[1]] || strings.Contains(m[1], "…") || strings.Contains(m[1], "|") {
				continue
			}
			seen[m[1]] = true
			if err := checkInline(m[1]); err != nil {
				t.Errorf("%s: %v", document, err)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("the documents name %d commands in sentences", len(seen))
	}
	for _, wrong := range []string{"frobnicate", "index frobnicate", "audit demo-1 --frobnicate"} {
		if checkInline(wrong) == nil {
			t.Errorf("this check would not find that there is no rondo %s", wrong)
		}
	}
}

// isSetting reports whether a command, whose help says that there are more flags, has one of them:
// it is in the file of all settings.
func isSetting(help, flag string) (bool, error) {
	if !strings.Contains(help, "`rondo config init`") {
		return false, nil
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "rondo.yaml")
	if _, err := command(root, rondo, "config", "init", file); err != nil {
		return false, err
	}
	text, err := os.ReadFile(file)
	return strings.Contains(string(text), "\n# "+flag+": "), err
}

// checkInline asks the program for help on a command: its usage begins with the command's verbs,
// and its help names the flags.
func checkInline(line string) error {
	args := strings.Fields(line)
	end := slices.IndexFunc(args, func(arg string) bool { return arg[0] == '-' })
	if end < 0 {
		end = len(args)
	}
	out, err := command(root, rondo, append(slices.Clone(args[:end]), "--help")...)
	if err != nil {
		return err
	}
	m := usage.FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("rondo %s --help shows no usage", line)
	}
	words := strings.Fields(m[1])
	for i, arg := range args[:end] {
		if i < len(words) && words[i] == "[command]" && plainWord.MatchString(arg) {
			return fmt.Errorf("there is no command rondo %s", line)
		}
		if i >= len(words) || words[i] != arg {
			break
		}
	}
	for _, arg := range args[end:] {
		flag, _, _ := strings.Cut(arg, "=")
		if flag == "--" {
			break
		}
		if strings.HasPrefix(flag, "--") && !regexp.MustCompile(regexp.QuoteMeta(flag)+`(\s|$)`).MatchString(out) {
			hidden, err := isSetting(out, strings.TrimPrefix(flag, "--"))
			if err != nil {
				return err
			}
			if !hidden {
				return fmt.Errorf("rondo %s: there is no flag %s", line, flag)
			}
		}
	}
	return nil
}
