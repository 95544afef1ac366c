package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/demo/policy"
)

// task is a repository-repair task as its folder gives it.
type task struct {
	name        string
	instruction string
	files       map[string]string
	tests       map[string]string
}

func loadTask(dir string) (*task, error) {
	instruction, err := os.ReadFile(filepath.Join(dir, "instruction.md"))
	if err != nil {
		return nil, err
	}
	t := &task{name: filepath.Base(dir), instruction: string(instruction)}
	repo := filepath.Join(dir, "environment", "repo")
	for _, other := range []string{"_repo", "."} {
		if _, err := os.Stat(repo); err != nil {
			repo = filepath.Join(dir, "environment", other)
		}
	}
	if t.files, err = readTree(repo); err != nil {
		return nil, err
	}
	delete(t.files, "Dockerfile")
	t.tests, err = readTree(filepath.Join(dir, "tests"))
	return t, err
}

func readTree(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	})
	return files, err
}

// workspace is a repository in memory; commands run on a copy of it on disk, and their outcome is remembered by content.
type workspace struct {
	task  *task
	files map[string]string
}

func (t *task) workspace() *workspace {
	w := &workspace{task: t, files: map[string]string{}}
	for name, text := range t.files {
		w.files[name] = text
	}
	return w
}

func (w *workspace) digest(extra string) string {
	salt := ""
	if strings.HasPrefix(w.task.name, "go") {
		salt = "2"
	}
	names := make([]string, 0, len(w.files))
	for name := range w.files {
		names = append(names, name)
	}
	sort.Strings(names)
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00", w.task.name, extra+salt)
	for _, name := range names {
		fmt.Fprintf(h, "%s\x00%s\x00", name, w.files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// outcomes remembers what a command printed or a verifier gave, by the content of the workspace. It is kept in a file between
// runs when one is named, which makes choosing hyperparameters quick.
var outcomes = struct {
	sync.Mutex
	known   map[string]string
	running map[string]*sync.WaitGroup
	file    *os.File
}{known: map[string]string{}, running: map[string]*sync.WaitGroup{}}

func openOutcomes(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	outcomes.file = f
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var entry [2]string
		if json.Unmarshal(lines.Bytes(), &entry) == nil {
			outcomes.known[entry[0]] = entry[1]
		}
	}
	return lines.Err()
}

func remembered(key string, compute func() string) string {
	outcomes.Lock()
	for {
		if value, ok := outcomes.known[key]; ok {
			outcomes.Unlock()
			return value
		}
		other := outcomes.running[key]
		if other == nil {
			break
		}
		outcomes.Unlock()
		other.Wait()
		outcomes.Lock()
	}
	mine := &sync.WaitGroup{}
	mine.Add(1)
	outcomes.running[key] = mine
	outcomes.Unlock()
	value := compute()
	outcomes.Lock()
	defer outcomes.Unlock()
	outcomes.known[key] = value
	delete(outcomes.running, key)
	mine.Done()
	if outcomes.file != nil {
		line, _ := json.Marshal([2]string{key, value})
		outcomes.file.Write(append(line, '\n'))
	}
	return value
}

func (w *workspace) run(call policy.ToolCall) string {
	var a struct {
		TargetFile      string `json:"target_file"`
		TargetDirectory string `json:"target_directory"`
		Pattern         string `json:"pattern"`
		FilePath        string `json:"file_path"`
		OldString       string `json:"old_string"`
		NewString       string `json:"new_string"`
		Command         string `json:"command"`
	}
	if err := json.Unmarshal([]byte(call.Function.Arguments), &a); err != nil {
		return "error: " + err.Error()
	}
	switch call.Function.Name {
	case "list_dir":
		return w.list(path.Clean(a.TargetDirectory))
	case "read_file":
		return w.read(path.Clean(a.TargetFile))
	case "grep":
		return w.grep(a.Pattern)
	case "search_replace":
		return w.replace(path.Clean(a.FilePath), a.OldString, a.NewString)
	case "run_terminal_cmd":
		return w.terminal(a.Command)
	}
	return "error: unknown tool " + call.Function.Name
}

func (w *workspace) list(dir string) string {
	entries := map[string]bool{}
	for name := range w.files {
		rest := name
		if dir != "." {
			var ok bool
			if rest, ok = strings.CutPrefix(name, dir+"/"); !ok {
				continue
			}
		}
		if first, _, deeper := strings.Cut(rest, "/"); deeper {
			entries[first+"/"] = true
		} else {
			entries[first] = true
		}
	}
	var out []string
	for entry := range entries {
		out = append(out, entry)
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

func (w *workspace) read(name string) string {
	text, ok := w.files[name]
	if !ok {
		return "error: no such file: " + name
	}
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fmt.Fprintf(&b, "%d|%s\n", i+1, line)
	}
	return b.String()
}

func (w *workspace) grep(pattern string) string {
	var b strings.Builder
	for name, text := range w.files {
		for i, line := range strings.Split(text, "\n") {
			if strings.Contains(line, pattern) {
				fmt.Fprintf(&b, "%s:%d:%s\n", name, i+1, line)
			}
		}
	}
	return b.String()
}

func (w *workspace) replace(name, old, replacement string) string {
	n := strings.Count(w.files[name], old)
	if n != 1 {
		return fmt.Sprintf("error: old_string found %d times in %s", n, name)
	}
	w.files[name] = strings.Replace(w.files[name], old, replacement, 1)
	return "replaced"
}

func (w *workspace) terminal(command string) string {
	return remembered(w.digest("run\x00"+command), func() string {
		dir, err := w.materialise()
		if err != nil {
			return err.Error()
		}
		defer os.RemoveAll(dir)
		out, code := execute(dir, command)
		return strings.ReplaceAll(out, dir, "/app") + "exit code: " + strconv.Itoa(code)
	})
}

var executed struct {
	sync.Mutex
	count int
	time  time.Duration
}

func execute(dir, command string) (string, int) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	if os.Geteuid() == 0 { // a /tmp of its own, as in a sandbox
		cmd = exec.CommandContext(ctx, "unshare", "-m", "sh", "-c", `mount -t tmpfs none /tmp && exec sh -c "$1"`, "sh", command)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "GOFLAGS=-buildvcs=false", "GOPROXY=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	executed.Lock()
	executed.count++
	executed.time += time.Since(start)
	executed.Unlock()
	text := out.String()
	if len(text) > 20000 {
		text = text[:10000] + "\n...\n" + text[len(text)-10000:]
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err == nil {
		return text, 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return text, exit.ExitCode()
	}
	return text + err.Error() + "\n", 1
}

func (w *workspace) materialise() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "rondo-sim")
	if err != nil {
		return "", err
	}
	return dir, writeTree(dir, w.files)
}

func writeTree(dir string, files map[string]string) error {
	for name, text := range files {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// score runs the task's verifier with its absolute paths moved into a temporary directory.
func (w *workspace) score() float64 {
	text := remembered(w.digest("score"), func() string {
		dir, err := w.materialise()
		if err != nil {
			return "0"
		}
		defer os.RemoveAll(dir)
		place, _ := os.MkdirTemp("/dev/shm", "rondo-verify")
		defer os.RemoveAll(place)
		os.MkdirAll(filepath.Join(place, "logs", "verifier"), 0o755)
		moved := map[string]string{}
		for name, text := range w.task.tests {
			text = strings.ReplaceAll(text, "/logs/verifier", place+"/logs/verifier")
			text = strings.ReplaceAll(text, "/tests/", place+"/tests/")
			moved["tests/"+name] = strings.ReplaceAll(text, "/app", dir)
		}
		writeTree(place, moved)
		execute(dir, "timeout 30 sh "+place+"/tests/test.sh")
		return strconv.FormatFloat(reward(filepath.Join(place, "logs", "verifier")), 'g', -1, 64)
	})
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

func reward(dir string) float64 {
	if data, err := os.ReadFile(filepath.Join(dir, "reward.json")); err == nil {
		var r map[string]float64
		if json.Unmarshal(data, &r) == nil {
			return r["reward"]
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "reward.txt")); err == nil {
		v, _ := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		return v
	}
	return 0
}
