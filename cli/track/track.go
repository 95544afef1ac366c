// Package track is the command that writes training steps to an experiment tracker.
package track

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/cli/tables"
	"github.com/rondo-rl/rondo/evaluation/steps"
	"github.com/rondo-rl/rondo/events/runfile"
)

// tracking is where the steps go.
type tracking struct {
	target         runfile.Tracker // of the flags
	logdir, python string
	once           bool
	json           bool
	stdout, stderr io.Writer
	plane          *plane.Plane
}

// defaultProject is the project where neither flag nor run file names one.
const defaultProject = "rondo"

// New makes the command `rondo track`.
func New(g *app.Global) *cobra.Command {
	var o tracking
	cmd := &cobra.Command{
		Use: "track [RUN]", Short: "Write runs' training steps to TensorBoard, MLflow, wandb or trackio",
		Args: cobra.MaximumNArgs(1),
		Long: `Track writes the figures of each training step (see ` + "`rondo run steps`" + `) to an experiment tracker, as one row with the step's number. It follows the run
until no step can follow. A finished or archived run is written from its first step. Started again, also after a kill, it asks the tracker for its last step
and goes on behind it.

Without --to it writes to the trackers that the run's file names:

  trackers:
    - {to: wandb, project: maths}
    - {to: tensorboard}

Without RUN it does so for every run whose file names some, those that are opened later too, until it is interrupted.

The trackers are Python packages. Track starts --python with the package rondo (clients/python) and hands it the rows; nothing else of Rondo starts Python.

  tensorboard  event files in --logdir/RUN/FEED
  mlflow       experiment --project at MLFLOW_TRACKING_URI
  wandb        project --project; WANDB_MODE=offline, WANDB_ENTITY and WANDB_DIR count
  trackio      project --project; TRACKIO_DIR counts`,
		Example: `  rondo track demo-1 --to tensorboard --logdir runs
  MLFLOW_TRACKING_URI=sqlite:///mlflow.db rondo track demo-1 --to mlflow --once
  WANDB_MODE=offline rondo track demo-1 --to wandb --project rondo --python ~/venv/bin/python
  rondo track --nats nats://10.0.0.1:4222 --store s3://rondo`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.target.To == "" && o.target.Feed != "":
				return errors.New("--feed belongs to --to: a run's file names the feeds of its trackers")
			case o.target.To != "" && !slices.Contains(runfile.Trackers, o.target.To):
				return fmt.Errorf("--to %q: must be %s", o.target.To, strings.Join(runfile.Trackers, ", "))
			case o.target.To != "" && len(args) == 0:
				return errors.New("--to needs a RUN: without one, each run's file says where its steps go")
			}
			if err := o.checkPython(cmd.Context()); err != nil {
				return err
			}
			if g.NATS == "" && !plane.InUse(cmd.Context(), g.Dir) { // nothing can come
				o.once = true
			}
			g.Follows = !o.once
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			o.json, o.plane, o.stdout, o.stderr = g.JSON, p, &shared{to: cmd.OutOrStdout()},
				&shared{to: cmd.ErrOrStderr()}
			if len(args) == 0 {
				return plane.LostOr(cmd.Context(), o.all(cmd.Context()))
			}
			if err := p.MustRun(cmd.Context(), args[0]); err != nil {
				return err
			}
			if o.target.To != "" {
				return o.write(cmd.Context(), args[0], o.target)
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.target.To, "to", "", "tracker: "+strings.Join(runfile.Trackers, ", ")+
		" (default: those of the run's file)")
	flags.StringVar(&o.target.Project, "project", "",
		"project of wandb and trackio, experiment of MLflow, where the run's file names none (default: "+defaultProject+
			")")
	flags.StringVar(&o.logdir, "logdir", "runs", "folder of TensorBoard")
	flags.StringVar(&o.python, "python", "python3", "Python interpreter that has the tracker's package and rondo")
	flags.StringVar(&o.target.Feed, "feed", "", "feed whose steps are written (default: the run's first)")
	flags.BoolVar(&o.once, "once", false, "write the steps that there are, and end")
	return cmd
}

// checkPython says clearly where Python or the package rondo is missing. The package
// says what the tracker lacks.
func (o *tracking) checkPython(ctx context.Context) error {
	path, err := exec.LookPath(o.python)
	if err != nil {
		return fmt.Errorf("track needs Python: %w: install it, or name it by --python", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-c", "import rondo.track").CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
	return fmt.Errorf("%s has no package rondo.track (%s): run `pip install ./clients/python` in Rondo's repository, or name another Python by --python", path,
		app.Line(lines[len(lines)-1], 200))
}

// write hands a run's rows to Python, which asks the tracker for the last one that it has.
func (o *tracking) write(ctx context.Context, run string, to runfile.Tracker) error {
	r, err := steps.Describe(ctx, o.plane.Log.Reader, run, to.Feed)
	if err != nil {
		return err
	}
	args := []string{"-m", "rondo.track", r.Run, "--to", to.To, "--project",
		cmp.Or(to.Project, o.target.Project, defaultProject), "--logdir", o.logdir}
	if o.json {
		args = append(args, "--json")
	}
	python := exec.Command(o.python, args...) //nolint:gosec // the operator names the interpreter
	// Ctrl-C comes here alone, and Python ends by the last line. It ends, too, where this process
	// dies, and this one where Python does.
	python.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	python.Stdout, python.Stderr = o.stdout, o.stderr
	rows, err := python.StdinPipe()
	if err == nil {
		err = python.Start()
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", o.python, err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := make(chan error, 1)
	go func() {
		over <- python.Wait()
		stop(errPython)
	}()
	fed := o.feedRows(ctx, rows, r)
	rows.Close()
	end := <-over
	var exit *exec.ExitError
	switch {
	case errors.As(end, &exit) && !exit.Exited():
		return fmt.Errorf("%s ended early (%w): start again, and it goes on behind the last step", o.python, end)
	case end != nil:
		return &app.ExitError{Code: 1} // it has said why
	case fed != nil && !errors.Is(fed, errPython):
		return fed
	}
	return nil
}

// errPython ends the reading when nobody takes the rows any more.
var errPython = errors.New("python has ended")

// feedRows writes the rows as they come. The last line is written also where the command is
// interrupted, so that the tracker's run is left in order.
func (o *tracking) feedRows(ctx context.Context, w io.Writer, r steps.Run) error {
	lines, err := tables.NewStepLines(w, r)
	if err != nil {
		return err
	}
	complete, err := steps.Read(ctx, o.plane.Log.Reader, r, !o.once, lines.Step)
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		err = errors.Join(err, lines.End(complete))
	}
	return err
}
