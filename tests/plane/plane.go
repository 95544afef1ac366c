// Package plane runs the services that outsiders meet on the log of a test, and holds its run to
// all that Rondo promises.
package plane

import (
	"context"
	"testing"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/advantagecalculator"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
)

// Service is how a service is run.
type Service func(context.Context, pipeline.Env) error

// Start opens a run and starts the intake, the deciding services and a scorer, and others beside
// them, until the test ends.
func Start(t testing.TB, log *eventlog.Log, run string, cfg runfile.RunConfig, others ...Service) {
	t.Helper()
	servicetest.OpenRun(t, log, run, cfg)
	scores := func(ctx context.Context, env pipeline.Env) error {
		return scorer.Run(ctx, env, scorer.Options{Slots: 2})
	}
	for _, service := range append(others, intake.Run, querysampler.Run, advantagecalculator.Run,
		trainerfeeder.Run, scores) {
		env := servicetest.Env(t, log)
		servicetest.Start(t, func(ctx context.Context) error { return service(ctx, env) })
	}
}

// Prove holds a run to all that Rondo promises, and makes its decisions again.
func Prove(t testing.TB, log *eventlog.Log, run string) audit.Report {
	t.Helper()
	report, err := audit.Check(t.Context(), log.Reader, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Error(f)
	}
	cfg, err := log.Config(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	samplers, err := querysampler.Deciders(run, cfg)
	if err != nil {
		t.Fatal(err)
	}
	calculators, err := advantagecalculator.Deciders(run, cfg)
	if err != nil {
		t.Fatal(err)
	}
	again := pipeline.Verification{
		Log: log.Reader, Run: run, Report: func(d pipeline.Difference) { t.Errorf("decided again, %+v", d) },
		Deciders: map[string]map[string]pipeline.Decider{
			topology.QuerySampler: samplers, topology.AdvantageCalculator: calculators,
			topology.TrainerFeeder: trainerfeeder.Deciders(run, cfg, log.Store()),
		},
	}
	checked, err := again.Verify(t.Context())
	if err != nil {
		t.Error(err)
	}
	t.Logf("decisions made again: %v", checked)
	return report
}
