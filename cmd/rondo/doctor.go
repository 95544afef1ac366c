package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
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

func newDoctor(g *global) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look for what commonly goes wrong, and say what to do", Args: cobra.NoArgs,
		Long: `Doctor tries out what the services need, here and with the flags that they would have: a sandbox that runs a program,
room in the directory, a NATS server that takes a run's stream and whose clock agrees, and a store with atomic conditional
writes. Of the runs on that server it names those that are paused, and why. It leaves nothing behind. It exits with 2 when something would not work.`,
		Example: "  rondo doctor\n  rondo doctor --nats nats://10.0.0.1:4222 --store 's3://rondo?endpoint=http://10.0.0.2:7070' --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var findings []finding
			for _, check := range doctorChecks(g) {
				ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
				findings = append(findings, check(ctx)...)
				cancel()
				if err := cmd.Context().Err(); err != nil {
					return err
				}
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
				return &exitError{found, fmt.Errorf("%d of %d checks found trouble", troubles, len(findings))}
			}
			return nil
		},
	}
}

// doctorChecks are the checks of the plane that the flags name.
func doctorChecks(g *global) []func(context.Context) []finding {
	checks := []func(context.Context) []finding{trySandbox}
	natsURL, store := g.nats, g.store
	if natsURL == "" {
		checks = append(checks, func(context.Context) []finding { return tryDirectory(g.dir, freeBytes) })
		if e, err := readEndpoint(g.dir); err == nil && planeRuns(g.dir) {
			natsURL = e.NATS
			if store == "" {
				store = e.Store
			}
		}
		if store == "" {
			store = filepath.Join(g.dir, "objects")
		}
	}
	if natsURL != "" {
		checks = append(checks, func(ctx context.Context) []finding { return tryNATS(ctx, natsURL, g.access, time.Now) })
	}
	checks = append(checks, func(ctx context.Context) []finding { return tryObjects(ctx, store) })
	if natsURL != "" {
		checks = append(checks, func(ctx context.Context) []finding { return tryRuns(ctx, natsURL, g.access, store) })
	}
	return checks
}

func printFindings(w io.Writer, g *global, findings []finding) error {
	if g.json {
		return printJSON(w, findings)
	}
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%-8s %-10s %s\n", f.Level, f.Check, strings.ReplaceAll(f.Found, "\n", " ")); err != nil {
			return err
		}
		if f.Do != "" {
			fmt.Fprintf(w, "%-19s → %s\n", "", f.Do)
		}
	}
	return nil
}
