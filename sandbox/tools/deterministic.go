package tools

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// A task marks command lines that leave nothing outside of the workspace and whose answer follows
// from the workspace and the shell alone. What the mark says is the task's to know; whether other
// commands came before, and whether the workspace is as it was, is looked at here.

// RunsCommands reports whether a tool, by the Tool of its Key, runs command lines.
func RunsCommands(key string) bool { return key == "run_terminal_cmd" || key == newShellEachTime }

// marked gives the command line of a call that waits for a marked command.
func marked(t *tool, lines []string, call Call) (string, bool) {
	if !RunsCommands(t.key) || len(lines) == 0 {
		return "", false
	}
	a, refused := parse[terminalArguments](call.Arguments)
	return a.Command, refused == nil && !a.IsBackground && slices.Contains(lines, a.Command)
}

// Settled reports whether calls, in a workspace, were such that marked commands after them answer
// by the workspace and the shell alone: there were no other commands, and nothing else that may
// have changed what is outside of the workspace.
func (s *Set) Settled(workdir string, lines []string, calls []Call) bool {
	return !slices.ContainsFunc(s.repairCalls(calls), func(call Call) bool {
		t := s.lookup(call.Name)
		if t == nil || t.effectOf(workdir, call) != Anything {
			return false
		}
		_, ok := marked(t, lines, call)
		return !ok
	})
}

// shell is what the next command's shell begins with.
func (w *work) shell() string {
	state, _ := json.Marshal(toolset.State{Shell: w.state.Shell}.OrNil()) // texts alone
	return string(state)
}

// watch runs a call and reports whether its answer is one to keep: where it has a key, and a
// command left workspace and shell as they were.
func (w *work) watch(ctx context.Context, t *tool, key *Key,
	run func() (observation, error)) (seen observation, quiet bool, err error) {
	if key == nil || t.ReadOnly {
		seen, err = run()
		return seen, key != nil, err
	}
	shell := w.shell()
	before, unread := w.workspace(ctx)
	if seen, err = run(); err != nil || unread != nil {
		return seen, false, err
	}
	after, unread := w.workspace(ctx)
	return seen, unread == nil && before == after && w.shell() == shell, nil
}

// workspace is the digest of the workspace's change.
func (w *work) workspace(ctx context.Context) (sum [sha256.Size]byte, err error) {
	digest := sha256.New()
	_, err = w.sb.ChangesTo(ctx, digest)
	digest.Sum(sum[:0])
	return sum, err
}

// remembered notes a call whose answer is known, or can be: the tree is what it was. A command may
// have changed times all the same.
func (w *work) remembered(t *tool) {
	if !t.ReadOnly {
		w.memory.effect = Anything
	}
}
