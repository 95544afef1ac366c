package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/sandbox"
)

// sandboxFailed is the exit code where the sandbox, and not the command in it, failed.
const sandboxFailed = 125

// maxStdin bounds what is passed to a command's standard input.
const maxStdin = 16 << 20

// sandboxRun is what one `rondo sandbox run` is asked for.
type sandboxRun struct {
	spec     sandbox.Spec
	snapshot string
	env      []string
	mounts   []string
	stdin    bool
	json     bool
	report   sandboxReport
}

// sandboxReport is what --json prints. Times are in milliseconds.
type sandboxReport struct {
	ExitCode  int     `json:"exit_code"`
	Isolation string  `json:"isolation"`
	FSMode    string  `json:"fs_mode"`
	Cgroup    string  `json:"cgroup"`
	CreateMS  float64 `json:"create_ms"` // the snapshot included
	RunMS     float64 `json:"run_ms"`
	DestroyMS float64 `json:"destroy_ms"`
	Stdout    int64   `json:"stdout_bytes"`
	Stderr    int64   `json:"stderr_bytes"`
	Dropped   int64   `json:"dropped_bytes"`
	Killed    string  `json:"killed,omitempty"` // for which limit: timeout, memory or output
	Leftovers int     `json:"leftovers"`        // processes that the command left running, killed
	Error     string  `json:"error,omitempty"`  // why the sandbox failed, with exit code 125
	out       tally
	err       tally
}

// tally passes bytes on and counts them.
type tally struct {
	w    io.Writer
	n    int64
	last byte
}

func (t *tally) Write(data []byte) (int, error) {
	n, err := t.w.Write(data)
	if n > 0 {
		t.last = data[n-1]
	}
	t.n += int64(n)
	return n, err
}

func newSandboxRun(g *app.Global) *cobra.Command {
	var o sandboxRun
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARGUMENT...]",
		Short: "Run one command in a sandbox of its own",
		Long: `Run one command in a fresh sandbox: no network, nothing of this machine but its system folders to read, and limits
on memory, processes, disk, output and time. Its output is passed on as it comes, and its exit code is that of this program.

When the command is over, or this program is interrupted, the sandbox and all that runs in it is gone.

Exit codes: the command's own; 128 + N where signal N ended it; 126 and 127 where it could not be started or found;
125 where the sandbox failed; 130 after an interruption.`,
		Example: `  rondo sandbox run -- sh -c 'id; ls /'
  rondo sandbox run --snapshot ./repo --timeout 30s -- python3 -m unittest
  rondo sandbox run --mem 64m --pids 16 --json -- sh -c 'yes | tail'
  echo 'print(6 * 7)' | rondo sandbox run --stdin -- python3 -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.json = g.JSON
			return o.run(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command's name is its own
	o.spec.Name = "run"
	l := &o.spec.Limits
	*l = sandbox.Limits{MemoryBytes: sandbox.DefaultMemoryBytes, DiskBytes: sandbox.DefaultDiskBytes}
	output := app.Size(16 << 20)
	flags.StringVar(&o.snapshot, "snapshot", "", "folder whose files the workspace begins with")
	flags.Var((*app.Size)(&l.MemoryBytes), "mem", "memory of all processes together")
	flags.IntVar(&l.PIDs, "pids", sandbox.DefaultPIDs, "processes and threads")
	flags.DurationVar(&l.Wall, "timeout", sandbox.DefaultWall, "time of the command")
	flags.Var((*app.Size)(&l.DiskBytes), "disk", "bytes of all that is written")
	flags.Var(&output, "output",
		"bytes of standard output, and of standard error, that are passed on; a thousand times as many end the command")
	flags.StringVar(&o.spec.Workdir, "workdir", sandbox.DefaultWorkdir,
		"the workspace inside, where the command starts")
	flags.StringArrayVar(&o.env, "env", nil, "`NAME=VALUE` in the command's environment; again for more")
	flags.StringArrayVar(&o.mounts, "mount", nil,
		"`SOURCE[:TARGET]` of this machine shown inside, read-only; again for more")
	flags.BoolVar(&o.stdin, "stdin", false,
		"read standard input to its end, 16 MiB at most, and pass it to the command")
	flags.StringVar(&o.spec.MinIsolation, "min-isolation", sandbox.IsolationNamespaces,
		"weakest isolation to accept where the kernel refuses more: "+strings.Join(sandbox.Isolations(), ", "))
	cmd.PreRun = func(*cobra.Command, []string) { l.OutputBytes = int(output) }
	_ = cmd.MarkFlagDirname("snapshot")
	_ = cmd.RegisterFlagCompletionFunc("min-isolation",
		cobra.FixedCompletions(sandbox.Isolations(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *sandboxRun) run(cmd *cobra.Command, args []string) error {
	snapshot, command, err := o.prepare(args, cmd.InOrStdin())
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // who reads the output may go; the sandbox is destroyed then
	defer signal.Reset(syscall.SIGPIPE)
	r := &o.report
	r.out.w, r.err.w = cmd.OutOrStdout(), cmd.ErrOrStderr()
	command.Stdout, command.Stderr = &r.out, &r.err
	err = o.inSandbox(cmd.Context(), snapshot, command)
	r.Stdout, r.Stderr = r.out.n, r.err.n
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, syscall.EPIPE):
		return &app.ExitError{Code: 128 + int(syscall.SIGPIPE),
			Err: errors.New("the reader of the output is gone, so the command was ended")}
	case err != nil:
		r.ExitCode, r.Error = sandboxFailed, err.Error()
	}
	if o.json {
		if r.Stdout > 0 && r.out.last != '\n' {
			fmt.Fprintln(cmd.OutOrStdout()) // the report is a line of its own
		}
		if printErr := app.PrintJSON(cmd.OutOrStdout(), r); printErr != nil {
			return printErr
		}
	}
	switch {
	case err != nil:
		return &app.ExitError{Code: sandboxFailed, Err: err}
	case r.Killed != "":
		return &app.ExitError{Code: r.ExitCode, Err: o.limitReached()}
	case r.ExitCode != 0:
		return &app.ExitError{Code: r.ExitCode, Err: nil}
	}
	return nil
}

// prepare looks at all that was asked for before a sandbox is made.
func (o *sandboxRun) prepare(args []string, stdin io.Reader) (snapshot []byte, command sandbox.Command, err error) {
	switch l := o.spec.Limits; { // 0 would stand for the default
	case l.PIDs < 1:
		return nil, command, fmt.Errorf("--pids %d: must be at least 1", l.PIDs)
	case l.Wall <= 0:
		return nil, command, fmt.Errorf("--timeout %v: must be positive", l.Wall)
	}
	command.Argv = args
	o.spec.Env = map[string]string{}
	for _, pair := range o.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, command, fmt.Errorf("--env %q: NAME=VALUE is needed", pair)
		}
		o.spec.Env[name] = value
	}
	for _, text := range o.mounts {
		source, target, _ := strings.Cut(text, ":")
		if source, err = filepath.Abs(source); err != nil {
			return nil, command, err
		}
		o.spec.Mounts = append(o.spec.Mounts, sandbox.Mount{Source: source, Target: cmp.Or(target, source)})
	}
	if o.stdin {
		if command.Stdin, err = io.ReadAll(io.LimitReader(stdin, maxStdin+1)); err != nil {
			return nil, command, fmt.Errorf("read standard input: %w", err)
		}
		if len(command.Stdin) > maxStdin {
			return nil, command, fmt.Errorf("standard input has more than %d MiB: put it in a file of the --snapshot",
				maxStdin>>20)
		}
	}
	if o.snapshot == "" {
		return nil, command, nil
	}
	if info, err := os.Stat(o.snapshot); err != nil {
		return nil, command, fmt.Errorf("--snapshot: %w", err)
	} else if !info.IsDir() {
		return nil, command, fmt.Errorf("--snapshot %s: a folder is needed", o.snapshot)
	}
	if snapshot, err = sandbox.Pack(os.DirFS(o.snapshot)); err != nil {
		err = fmt.Errorf("--snapshot %s: %w", o.snapshot, err)
	}
	return snapshot, command, err
}

// inSandbox makes the sandbox, runs the command and takes the times.
func (o *sandboxRun) inSandbox(ctx context.Context, snapshot []byte, command sandbox.Command) (err error) {
	r, begin := &o.report, time.Now()
	sb, err := sandbox.New(ctx, o.spec)
	if err != nil {
		return err
	}
	defer func() {
		begin := time.Now()
		err = errors.Join(err, sb.Close())
		r.DestroyMS = milliseconds(time.Since(begin))
	}()
	r.Isolation, r.FSMode, r.Cgroup = sb.Isolation(), sb.FSMode(), sb.Cgroup()
	if snapshot != nil {
		if err := sb.Unpack(ctx, sb.Workdir(), snapshot); err != nil {
			return err
		}
	}
	r.CreateMS = milliseconds(time.Since(begin))
	begin = time.Now()
	result, err := sb.Exec(ctx, command)
	r.RunMS = milliseconds(time.Since(begin))
	if err != nil {
		return err
	}
	// A program that cannot be started says why by the result alone.
	for w, text := range map[io.Writer][]byte{command.Stdout: result.Stdout, command.Stderr: result.Stderr} {
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	r.ExitCode, r.Dropped, r.Leftovers = result.ExitCode, result.DroppedBytes, result.Leftovers
	switch {
	case result.TimedOut:
		r.Killed = "timeout"
	case result.OutOfMemory:
		r.Killed = "memory"
	case result.OutputExceeded:
		r.Killed = "output"
	}
	return nil
}

// limitReached says which limit ended the command, and what to do.
func (o *sandboxRun) limitReached() error {
	switch o.report.Killed {
	case "timeout":
		return fmt.Errorf("the command ran longer than --timeout %v and was ended", o.spec.Limits.Wall)
	case "memory":
		return fmt.Errorf("a process was ended as memory ran out: --mem is %v", app.Size(o.spec.Limits.MemoryBytes))
	}
	return fmt.Errorf("the command wrote more than a thousand times --output %v and was ended",
		app.Size(o.spec.Limits.OutputBytes))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
