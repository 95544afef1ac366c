package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

const (
	maxShellEnv = 16 << 10 // bytes of the variables that a shell leaves to the next
	maxShellDir = 4 << 10
	// leftBehind takes what a shell leaves. It is the agent's own to damage: what makes no
	// sense counts as nothing left.
	leftBehind = "/tmp/.rondo-shell"
)

// A command goes on where the last one left off with these three texts. The first finds bash, or
// another shell, without PATH, which may be the agent's. The second gets the command, the folder
// in which it begins, OLDPWD, what to do at the end, and the variables that are not to be set; it
// is one line, so that the shell counts a command's lines from 1. The third leaves folder and
// exported variables behind.
const (
	anyShell = `for shell in /bin/bash /usr/bin/bash /usr/local/bin/bash /bin/sh; do [ -x "$shell" ] && break; done; exec "$shell" -c "$0" "${shell##*/}" "$@"`
	goOn     = `rondo_command=$1; cd -- "$2" 2>/dev/null || echo "the folder $2 of the last command is gone: this one begins in $PWD" >&2; ` +
		`OLDPWD=$3; [ -z "$4" ] || trap "$4" EXIT; shift 4; unset -- "$@"; set --; eval "$rondo_command"`
	leave = `{ printf '%s\0' "$PWD"; /usr/bin/env -0; } 2>/dev/null > ` + leftBehind
)

// continueShell runs a command where the last one left off.
func continueShell(ctx context.Context, w *work, a terminalArguments) (observation, error) {
	if refused := refusedCommand(a); refused != nil {
		return *refused, nil
	}
	before := toolset.Shell{Dir: w.sb.Workdir()}
	if s := w.state.Shell; s != nil {
		before = *s
		if before.Dir == "" {
			before.Dir = w.sb.Workdir()
		}
	}
	atEnd := leave
	if a.IsBackground {
		atEnd = ""
	}
	argv := append([]string{"/bin/sh", "-c", anyShell, goOn, a.Command, before.Dir, before.Env["OLDPWD"], atEnd},
		before.Unset...)
	seen, err := runCommand(ctx, w, sandbox.Command{Argv: argv, Env: before.Env,
		Background: a.IsBackground, Wall: w.wall})
	if err != nil || a.IsBackground {
		return seen, err
	}
	left, why, err := leftShell(ctx, w.sb)
	switch {
	case err != nil:
		return observation{}, err
	case why != "":
		seen.content += "\n[" + why + "; the next command begins where this one did]"
	case left != nil:
		w.state.Shell = left
	}
	return seen, nil
}

// leftShell reads what the last shell left; nil is nothing, as of one that was killed, and why
// says what could not be kept.
func leftShell(ctx context.Context, sb *sandbox.Sandbox) (left *toolset.Shell, why string, err error) {
	data, err := readLeft(ctx, sb)
	removed := sb.Remove(ctx, leftBehind)
	for _, err := range []error{err, removed} {
		if err != nil && (InsideFault(err) == "" || ctx.Err() != nil) {
			return nil, "", err
		}
	}
	if errors.Is(err, sandbox.ErrTooLarge) {
		return nil, "the shell's folder and variables are too large to be kept", nil
	}
	if err != nil {
		return nil, "", nil
	}
	left = parseShell(data, sb.Workdir(), sb.Env())
	if left == nil {
		return nil, "", nil
	}
	size := len(left.Dir)
	for name, value := range left.Env {
		size += len(name) + len(value)
	}
	if size > maxShellEnv {
		return nil, fmt.Sprintf("the shell's folder and variables of %d bytes are not kept (limit %d)", size,
			maxShellEnv), nil
	}
	return left, "", nil
}

func readLeft(ctx context.Context, sb *sandbox.Sandbox) ([]byte, error) {
	if sb.Isolation() != "none" {
		return sb.ReadFile(ctx, leftBehind, maxShellDir+maxShellEnv+sandboxEnv(sb))
	}
	// Without isolation names are rewritten, which a command's output is read back from.
	result, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"cat", leftBehind}})
	return result.Stdout, err
}

// sandboxEnv is room for the environment that every command has.
func sandboxEnv(sb *sandbox.Sandbox) (size int64) {
	for name, value := range sb.Env() {
		size += int64(len(name) + len(value) + 2)
	}
	return size
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ofEachShell are variables that a shell sets anew.
var ofEachShell = []string{"PWD", "SHLVL", "_"}

// parseShell reads a folder and variables, each ended by a zero byte, and keeps what differs from
// those of the sandbox; nil is no state.
func parseShell(data []byte, workdir string, base map[string]string) *toolset.Shell {
	fields := strings.Split(strings.ToValidUTF8(string(bytes.TrimSuffix(data, []byte{0})), "\uFFFD"), "\x00")
	if !path.IsAbs(fields[0]) || len(fields[0]) > maxShellDir {
		return nil
	}
	left := &toolset.Shell{Env: map[string]string{}}
	if dir := path.Clean(fields[0]); dir != workdir {
		left.Dir = dir
	}
	gone := maps.Clone(base)
	for _, field := range fields[1:] {
		name, value, ok := strings.Cut(field, "=")
		if !ok || name == "" || slices.Contains(ofEachShell, name) {
			continue
		}
		if old, known := base[name]; !known || old != value {
			left.Env[name] = value
		}
		delete(gone, name)
	}
	for name := range gone {
		if variableName.MatchString(name) && !slices.Contains(ofEachShell, name) {
			left.Unset = append(left.Unset, name)
		}
	}
	slices.Sort(left.Unset)
	if len(fields) == 1 {
		left.Unset = nil // a shell that could not tell its variables
	}
	return left
}
