package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/sandbox"
)

type terminalArguments struct {
	Command      string `json:"command"`
	IsBackground bool   `json:"is_background"`
	Explanation  string `json:"explanation"`
}

// shell runs the command with bash where there is one.
const shell = `if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi`

func runTerminalCommand(ctx context.Context, w *work, a terminalArguments) (observation, error) {
	if refused := refusedCommand(a); refused != nil {
		return *refused, nil
	}
	return runCommand(ctx, w, sandbox.Command{Argv: []string{"sh", "-c", shell, "sh", a.Command},
		Background: a.IsBackground, Wall: w.wall})
}

// refusedCommand says why a command cannot be run, nil where it can.
func refusedCommand(a terminalArguments) *observation {
	var why observation
	switch {
	case strings.TrimSpace(a.Command) == "":
		why = refusal("command is missing")
	case strings.ContainsRune(a.Command, 0):
		why = refusal("the command has a zero byte")
	case len(a.Command) >= 128<<10: // Linux takes no single argument of that size
		why = refusal("command of %d bytes (limit %d); write a script file and run that", len(a.Command), 128<<10-1)
	default:
		return nil
	}
	return &why
}

func runCommand(ctx context.Context, w *work, c sandbox.Command) (observation, error) {
	result, err := w.sb.Exec(ctx, c)
	if err != nil {
		return observation{}, err
	}
	if c.Background && result.Log != "" {
		w.state.Background = true
		return observation{content: fmt.Sprintf("Started in the background: process %d, output in %s.", result.PID,
			result.Log)}, nil
	}
	cut := result.TimedOut || result.OutOfMemory || result.OutputExceeded || result.Leftovers > 0
	return observation{content: terminalText(result), exitCode: &result.ExitCode, dropped: result.DroppedBytes,
		hurried: cut, waited: result.Starved}, nil
}

// terminalText is the output, then the error output, then what the limits did, then the exit
// code on a line of its own.
func terminalText(result sandbox.Result) string {
	var out strings.Builder
	for _, stream := range [][]byte{result.Stdout, result.Stderr} {
		out.Write(stream)
		if len(stream) > 0 && stream[len(stream)-1] != '\n' {
			out.WriteByte('\n')
		}
	}
	if result.TimedOut {
		fmt.Fprintf(&out, "timed out: killed after %.1f s\n", result.Duration.Seconds())
	}
	if result.OutOfMemory {
		out.WriteString("out of memory: killed\n")
	}
	if result.OutputExceeded {
		out.WriteString("too much output: killed\n")
	}
	fmt.Fprintf(&out, "exit code: %d", result.ExitCode)
	return out.String()
}
