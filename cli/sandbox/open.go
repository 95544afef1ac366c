package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/service"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/services/toolrunner"
)

// openOptions say which workspace is opened, and for how long a command may run there.
type openOptions struct {
	run     string
	turn    int // -1: the last
	timeout time.Duration
	service.Settings
}

func newSandboxOpen(g *app.Global) *cobra.Command {
	o := openOptions{Settings: service.DefaultSettings()}
	cmd := &cobra.Command{
		Use: "open ROLLOUT [-- COMMAND…]", Short: "Open a rollout's workspace as one of its turns left it",
		Args: cobra.MinimumNArgs(1),
		Long: `Open makes a new sandbox with the workspace as it was after a turn of a rollout, and with the toolchains and the environment of its
task: the task's snapshot and the change that the turn's tool runner stored. Without a command it is a shell at a terminal; with one, the
command's output and exit code are its own.

What is changed there is thrown away: neither the rollout nor its run is touched. Processes of the rollout are not there, nor what it left
outside of the workspace. What a program writes there reaches your terminal as it is.`,
		Example: `  rondo sandbox open g000003-1 --turn 4
  rondo sandbox open g000003-1 --run demo-1 -- git diff
  rondo sandbox open g000003-1 --json -- sh -c 'go test ./... | tail'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			if len(command) > 0 && cmd.ArgsLenAtDash() != 1 {
				return fmt.Errorf("%q: write the command behind --", app.Line(command[0], 80))
			}
			if o.timeout <= 0 { // 0 would stand for the task's own
				return fmt.Errorf("--timeout %v: must be positive", o.timeout)
			}
			if len(command) == 0 && g.JSON {
				return errors.New("--json needs a command: rondo sandbox open ROLLOUT --json -- COMMAND…")
			}
			if len(command) == 0 && !term.IsTerminal(int(os.Stdin.Fd())) {
				return errors.New("there is no terminal for a shell: give a command after --")
			}
			opened, err := o.open(cmd.Context(), g, args[0])
			if err != nil {
				return err
			}
			defer opened.Close()
			if len(command) == 0 {
				return opened.shell(cmd.Context())
			}
			return opened.execute(cmd, g, command, o.timeout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.run, "run", "", "run of the rollout (default: the one run that has it)")
	f.IntVar(&o.turn, "turn", -1, "after this turn, counted from 0 (default: the last)")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "what a command may take; a shell may take any time")
	o.AddSandboxFlags(cmd)
	return cmd
}

// openedSandbox is a sandbox with an old workspace.
type openedSandbox struct {
	*sandbox.Sandbox
	rollout *events.Rollout
	turn    int
}

// open reads what it needs and lets the log and the store go: a shell that is left open must keep
// no plane from its folder.
func (o openOptions) open(ctx context.Context, g *app.Global, rollout string) (*openedSandbox, error) {
	p, err := plane.Connect(ctx, g)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	r, err := plane.FindRollout(ctx, p, o.run, rollout)
	if err != nil {
		return nil, err
	}
	turn, err := turnOf(r, o.turn)
	if err != nil {
		return nil, err
	}
	task, err := plane.TaskOf(ctx, p.Log, r)
	if err != nil {
		return nil, fmt.Errorf("rollout %s of run %s: %w", r.ID, r.Run, err)
	}
	opts := toolrunner.Options{Machine: o.Machine}
	sb, err := toolrunner.Open(ctx, p.Store, opts, task, r, turn)
	if err != nil {
		return nil, err
	}
	return &openedSandbox{sb, r, turn}, nil
}

// turnOf is the turn that --turn asks for: -1 is the last of which the workspace is known.
func turnOf(r *events.Rollout, turn int) (int, error) {
	switch {
	case turn >= 0:
		return turn, nil
	case turn != -1:
		return 0, fmt.Errorf("--turn %d: turns are counted from 0", turn)
	case r.Elsewhere() && r.Finished != nil:
		return r.End(), nil
	case r.AwaitsTools():
		return max(r.LastTurn().Turn-1, 0), nil
	case r.LastTurn() == nil:
		return 0, nil
	}
	return r.LastTurn().Turn, nil
}

// executedCommand is what `rondo sandbox open --json` answers.
type executedCommand struct {
	Run             string  `json:"run"`
	Rollout         string  `json:"rollout"`
	Turn            int     `json:"turn"`
	Isolation       string  `json:"isolation"`
	Filesystem      string  `json:"filesystem"`
	ExitCode        int     `json:"exit_code"`
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	DroppedBytes    int64   `json:"dropped_bytes"` // of the output, from its middle
	TimedOut        bool    `json:"timed_out"`
	OutOfMemory     bool    `json:"out_of_memory"`
	DurationSeconds float64 `json:"duration_seconds"`
}

// execute runs a command. Its exit code is this process's.
func (s *openedSandbox) execute(cmd *cobra.Command, g *app.Global, command []string, timeout time.Duration) error {
	result, err := s.Exec(cmd.Context(), sandbox.Command{Argv: command, Wall: timeout})
	if err != nil {
		return err
	}
	if g.JSON {
		return app.PrintJSON(cmd.OutOrStdout(), executedCommand{
			Run: s.rollout.Run, Rollout: s.rollout.ID, Turn: s.turn, Isolation: s.Isolation(), Filesystem: s.FSMode(),
			ExitCode: result.ExitCode,
			Stdout:   string(result.Stdout), Stderr: string(result.Stderr), DroppedBytes: result.DroppedBytes,
			TimedOut:    result.TimedOut,
			OutOfMemory: result.OutOfMemory, DurationSeconds: result.Duration.Seconds(),
		})
	}
	_, _ = cmd.OutOrStdout().Write(result.Stdout)
	_, _ = cmd.ErrOrStderr().Write(result.Stderr)
	switch {
	case result.TimedOut:
		return &app.ExitError{Code: result.ExitCode, Err: fmt.Errorf("the command was killed after %s (--timeout)",
			timeout)}
	case result.ExitCode != 0:
		return &app.ExitError{Code: result.ExitCode, Err: fmt.Errorf("the command ended with %d", result.ExitCode)}
	}
	return nil
}

// shellScript prefers bash, which people are used to, with a prompt that says where they are.
const shellScript = `if command -v bash >/dev/null; then exec bash --norc -i; fi; PS1="$RONDO_PROMPT$ "; export PS1; exec sh -i`

// shell lets a person work at the terminal of this process.
func (s *openedSandbox) shell(ctx context.Context) error {
	stdin := int(os.Stdin.Fd())
	fmt.Printf("The workspace of %s (run %s) after turn %d; isolation: %s. Changes are thrown away when the shell ends.\n",
		s.rollout.ID, s.rollout.Run, s.turn, s.Isolation())
	prompt := fmt.Sprintf("%s@%d", s.rollout.ID, s.turn)
	env := map[string]string{"TERM": os.Getenv("TERM"), "RONDO_PROMPT": prompt, "PS1": prompt + `:\w\$ `}
	columns, rows, err := term.GetSize(stdin)
	if err != nil {
		return fmt.Errorf("ask for the terminal's size: %w", err)
	}
	terminal, err := s.Terminal(ctx, sandbox.Command{Argv: []string{"sh", "-c", shellScript}, Env: env}, rows, columns)
	if err != nil {
		return err
	}
	before, err := term.MakeRaw(stdin)
	if err != nil {
		return fmt.Errorf("take the terminal over: %w", err)
	}
	defer term.Restore(stdin, before)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go func() {
		for range resized {
			if columns, rows, err := term.GetSize(stdin); err == nil {
				_ = terminal.Resize(rows, columns)
			}
		}
	}()
	go io.Copy(terminal, os.Stdin) // ends with this process
	if _, err := io.Copy(os.Stdout, terminal); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if code := terminal.ExitCode(); code != 0 {
		return &app.ExitError{Code: code, Err: fmt.Errorf("the shell ended with %d", code)}
	}
	return nil
}
