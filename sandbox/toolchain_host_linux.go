package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// interpreter is a tool chain of which the folder that the host's own program lies in is all.
// It brings no cache along.
type interpreter struct {
	program string
	ask     []string // its arguments that make it print where its files are
	up      int      // how many folders above what it prints they begin
}

// interpreters are those that are known. Of Python the base is taken and not a virtual environment:
// what the task's packages are, its workspace or its image says.
var interpreters = map[string]interpreter{
	"python": {program: "python3", ask: []string{"-I", "-c", "import sys; print(sys.base_prefix)"}},
	"node":   {program: "node", ask: []string{"-p", "process.execPath"}, up: 2},
}

// mounts answers what shows the interpreter in a sandbox, and its variables. What lies in
// /usr is seen there anyway.
func (i interpreter) mounts(prefix string) (mounts []Mount, env map[string]string) {
	if prefix != "/usr" && !strings.HasPrefix(prefix, "/usr/") {
		mounts = []Mount{{Source: prefix, Target: prefix}}
	}
	if folder := prefix + "/bin"; !slices.Contains(strings.Split(DefaultPath, ":"), folder) {
		env = map[string]string{"PATH": folder + ":" + DefaultPath}
	}
	return mounts, env
}

// prefix is where the interpreter's files are: asked once, as every sandbox needs it.
func (i interpreter) prefix(ctx context.Context) (string, error) {
	knownPrefixes.Lock()
	defer knownPrefixes.Unlock()
	if known := knownPrefixes.of[i.program]; known != "" {
		return known, nil
	}
	found, err := i.find(ctx)
	if err == nil {
		knownPrefixes.of[i.program] = found
	}
	return found, err
}

var knownPrefixes = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

// find asks the program itself, which may be a wrapper or a link.
func (i interpreter) find(ctx context.Context) (string, error) {
	program, err := exec.LookPath(i.program)
	if err != nil {
		return "", fmt.Errorf("there is no %s command on the PATH", i.program)
	}
	command := exec.CommandContext(ctx, program, i.ask...)
	command.Dir = "/" // no folder whose files choose another version
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	prefix, err := filepath.EvalSymlinks(strings.TrimSpace(string(out)))
	if err != nil {
		return "", err
	}
	for range i.up {
		prefix = filepath.Dir(prefix)
	}
	if prefix == "/" || !filepath.IsAbs(prefix) {
		return "", fmt.Errorf("%s says that it lies in %q: want a folder of its own", program, prefix)
	}
	_, err = os.Stat(filepath.Join(prefix, "bin", i.program))
	return prefix, err
}
