package toolrunner

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/agents"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// maxSaid is how much of an agent's last line of errors a failure repeats, in bytes.
const maxSaid = 300

// whyUnstarted is what can be said of an agent that ended before it asked its model: that its home
// cannot be written, that the image may lack a C library for its layer, and the last line of its
// errors. home is what agent.env says, "" for nothing.
func whyUnstarted(ctx context.Context, box *sandbox.Sandbox, store storage.Store, home string, layer *agents.Opened,
	done *events.WorkspaceAnswered) (why string) {
	stderr, _ := done.Errors.Get(ctx, store) // without them less is said
	if home != "" {
		const no = 1
		if r, err := box.Exec(ctx, sandbox.Command{Argv: []string{"test", "-w", home}}); err == nil &&
			r.ExitCode == no {
			why += fmt.Sprintf("; HOME of agent.env, %s, is no folder that it can write", home)
		}
	}
	if layer != nil && done.ExitCode != nil {
		why += whyLibrary(layer.Layer.Glibc, *done.ExitCode, string(stderr))
	}
	if line := lastLine(string(stderr)); line != "" {
		why += fmt.Sprintf("; it wrote %q", line)
	}
	return why
}

// whyLibrary says which C library a layer's programs need, where an agent's end may be for want of
// one. A program whose loader is not there, as in images with musl, counts as not found.
func whyLibrary(glibc string, code int, stderr string) string {
	missing := strings.Contains(stderr, "GLIBC_") || strings.Contains(stderr, "libc.so.6")
	if glibc == "" || code != exitNotFound && code != exitNotExecutable && !missing {
		return ""
	}
	return "; the programs of agent.layer need glibc " + glibc + " or later in the task's image"
}

// lastLine is the last line of a text that says something, cut.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	return wording.Clean(line[:min(len(line), maxSaid)])
}
