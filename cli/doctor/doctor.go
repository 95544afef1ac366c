// Package doctor is the command that finds out what a machine, a plane or
// an inference server lacks.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/health"
)

// Levels of a finding.
const (
	levelOK      = "ok"
	levelWarning = "warning"
	levelTrouble = "trouble"
)

// finding is what one check of `rondo doctor` found.
type finding struct {
	Check string `json:"check"`
	Level string `json:"level"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what helps
}

func ok(check, format string, args ...any) finding {
	return finding{Check: check, Level: levelOK, Found: fmt.Sprintf(format, args...)}
}

func trouble(check string, err error, do string) finding {
	return finding{Check: check, Level: levelTrouble, Found: err.Error(), Do: do}
}

// checkTimeout bounds one check: a server that hangs is a finding, too.
const checkTimeout = 30 * time.Second

// New makes the command `rondo doctor`.
func New(g *app.Global) *cobra.Command {
	var servers doctorEndpoint
	doctor := &cobra.Command{
		Use: "doctor", Short: "Check for common problems, and say how to fix them", Args: cobra.NoArgs,
		Long: `Doctor checks this machine and the flags for the services. A sandbox must run a program. The directory must have free space,
and its disk must take a small write within a second. Doctor says if the machine has no processor for it.
The NATS server must accept a run's stream, and its clock must agree. The store must have atomic conditional writes.
Of a NATS cluster, doctor names the servers that are away and the streams without a leader.
Doctor lists the streams that refuse writes, for example after a full disk. It asks the plane that runs in --dir, or the
monitoring port of an external NATS server (--nats-monitor). It lists the paused runs with their reasons, and the runs
that no tool runner serves: for these it listens for six seconds. While the store does not answer, doctor reports the runs by the log alone.

With --nats, a sandbox that does not work is a warning, because this machine may not run sandboxes. With the credentials of a service,
doctor creates no stream. Doctor removes everything it created. It exits with 2 when a check fails.

With --endpoint and --model, or --file, doctor checks inference servers instead. It checks token ids, log-probabilities and their
distribution, tool calls, whether the prompt of a second turn extends the first one, the context length, and the label of the
weights. This takes about six short requests. For a run file with endpoint_api: tokens, it asks for two turns by tokens, too.`,
		Example: "  rondo doctor\n  rondo doctor --nats nats://10.0.0.1:4222 --nats-monitor http://10.0.0.1:8222 --store 's3://rondo?endpoint=http://10.0.0.2:7070' " +
			"--json\n  docker compose run --rm rondo doctor\n" +
			"  rondo doctor --endpoint http://127.0.0.1:8000/v1 --model my-model\n  rondo doctor --file run.yaml --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var checks []func(context.Context) []finding
			timeout := checkTimeout
			if servers.requested() {
				var err error
				if checks, err = servers.checks(cmd.Flags().Changed); err != nil {
					return err
				}
				timeout = endpointTimeout
			} else {
				checks = doctorChecks(g)
			}
			processor := health.NewProcessor()
			watching, stop := context.WithCancel(cmd.Context())
			defer stop()
			go processor.Watch(watching)
			findings, err := runChecks(cmd.Context(), checks, timeout, processor.Starved)
			if err != nil {
				return err
			}
			if err := printFindings(cmd.OutOrStdout(), g, findings); err != nil {
				return err
			}
			troubles := 0
			for _, f := range findings {
				if f.Level == levelTrouble {
					troubles++
				}
			}
			if troubles > 0 {
				return &app.ExitError{Code: app.ExitFindings,
					Err: fmt.Errorf("%d of %d checks found trouble", troubles, len(findings))}
			}
			return nil
		},
	}
	servers.flags(doctor.Flags())
	return doctor
}

// runChecks gives what the checks find, and whether doctor had a processor meanwhile. starved says
// how it had none lately, so each check's end is a time to ask.
func runChecks(ctx context.Context, checks []func(context.Context) []finding, timeout time.Duration,
	starved func() string) (findings []finding, err error) {
	how := ""
	for _, check := range checks {
		checking, cancel := context.WithTimeout(ctx, timeout)
		findings = append(findings, check(checking)...)
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		how = cmp.Or(how, starved())
	}
	return append(findings, aboutMachine(how)), nil
}

// doctorChecks are the checks of the plane that the flags name.
func doctorChecks(g *app.Global) []func(context.Context) []finding {
	elsewhere := g.NATS != ""
	checks := []func(context.Context) []finding{func(ctx context.Context) []finding {
		return trySandbox(ctx,
			elsewhere)
	}}
	natsURL, store := g.NATS, g.Store
	if !elsewhere {
		checks = append(checks, func(ctx context.Context) []finding {
			return tryDirectory(ctx, g.Dir, disk{freeBytes, health.TimeWrite})
		})
		if e, err := plane.ReadEndpoint(g.Dir); err == nil && plane.PlaneRuns(g.Dir) {
			natsURL = e.NATS
			if e.HTTP != "" {
				checks = append(checks, func(ctx context.Context) []finding { return tryPlane(ctx, e.HTTP) })
			}
			if store == "" {
				store = e.Store
			}
		}
		if store == "" {
			store = filepath.Join(g.Dir, "objects")
		}
	}
	if natsURL != "" {
		checks = append(checks, func(ctx context.Context) []finding {
			return tryNATS(ctx, natsURL, g.Access,
				time.Now)
		})
	}
	if elsewhere {
		checks = append(checks, func(ctx context.Context) []finding { return tryCluster(ctx, natsURL, g.Access) })
		checks = append(checks, func(ctx context.Context) []finding { return tryStreams(ctx, g.Access.Monitor) })
	}
	checks = append(checks, func(ctx context.Context) []finding { return tryObjects(ctx, store) })
	if natsURL != "" {
		checks = append(checks, func(ctx context.Context) []finding { return tryRuns(ctx, natsURL, g.Access, store) })
	}
	return checks
}

func printFindings(w io.Writer, g *app.Global, findings []finding) error {
	if g.JSON {
		return app.PrintJSON(w, findings)
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%-8s %-10s %s\n", f.Level, f.Check,
			strings.ReplaceAll(f.Found, "\n", " ")); err != nil {
			return err
		}
		if f.Do != "" {
			fmt.Fprintf(w, "%-19s → %s\n", "", f.Do)
		}
	}
	return nil
}
