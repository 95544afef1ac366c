package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/evaluation/release"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/retry"
)

// releaser is one call of `rondo release`.
type releaser struct {
	o      releaseOptions
	e      *evaluator
	state  release.State
	canary *release.Production // that is watched
	of     uint64              // the promotion that it is of
	failed string              // a version that did not pass, in this call
	waits  string              // what was said last
}

// looksEvery is how often the log is asked for something new while there is nothing to do.
var looksEvery = 5 * time.Second

// releasesAgain is how long to wait after an error.
var releasesAgain = retry.Policy{First: time.Second, Most: time.Minute}

// check says that the policy or a run of --run is not there.
func (r *releaser) check(ctx context.Context) error {
	for _, run := range r.o.production {
		if err := r.e.p.MustRun(ctx, run); err != nil {
			return fmt.Errorf("--run: %w", err)
		}
	}
	return r.e.p.MustPolicy(ctx, r.o.policy)
}

// run takes one step after the other, each of which follows from the log, until the command is
// interrupted. With --once it ends where it would wait.
func (r *releaser) run(ctx context.Context) error {
	for failures := 0; ; {
		wait, err := r.step(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && r.o.once:
			return err
		case err != nil:
			failures++
			r.e.show.Line("release %s: %v; again in up to %s", r.o.policy, err,
				releasesAgain.Delay(failures).Round(time.Second))
			if !releasesAgain.Wait(ctx, failures) {
				return ctx.Err()
			}
			continue
		}
		failures = 0
		if !wait {
			continue
		}
		if r.o.once {
			if r.failed != "" {
				return &app.ExitError{Code: app.ExitFindings, Err: errors.New(r.failed)}
			}
			return nil
		}
		if !retry.Sleep(ctx, looksEvery) {
			return ctx.Err()
		}
	}
}

// step does what is to be done next, and reports whether there was nothing.
func (r *releaser) step(ctx context.Context) (wait bool, err error) {
	log := r.e.p.Log
	if err := r.state.Read(ctx, log.Reader, r.o.policy); err != nil {
		return false, err
	}
	switch next := r.state.Next(time.Now(), r.o.when); next.Kind {
	case release.Gate:
		return false, r.gate(ctx, next)
	case release.Canary:
		return r.watch(ctx, next)
	case release.Promote:
		return false, r.promote(ctx, next)
	default:
		return true, r.note(releaseNote{Event: "waiting", Why: next.Why})
	}
}

// gate evaluates both versions, or finds their evaluations, and judges.
func (r *releaser) gate(ctx context.Context, next release.Step) error {
	j := events.WeightsJudged{Version: next.Version, Against: next.Against, Stage: events.JudgedGate, Rules: r.o.rules}
	j.Rules.Rollouts = 0
	for _, version := range []int64{next.Version, next.Against} {
		f, _, err := r.e.tried(ctx, evaluation.Subject{Policy: r.o.policy, Version: &version}, "")
		if err != nil {
			return err
		}
		j.Sources = append(j.Sources, events.JudgedSource{Run: f.Name, Through: f.LastSeq})
	}
	return r.judge(ctx, j)
}

// watch counts the canary's rollouts, and judges when there are enough, or when its time is over.
func (r *releaser) watch(ctx context.Context, next release.Step) (wait bool, err error) {
	if r.canary == nil || r.of != next.Given.Seq {
		r.canary, r.of = release.NewProduction(r.e.p.Log.Reader, r.o.policy, next.Given, r.o.production), next.Given.Seq
	}
	version, against, err := r.canary.Count(ctx)
	if err != nil {
		return false, err
	}
	until := next.Given.Time.Add(r.o.canaryFor)
	if n := min(version, against); n < r.o.rules.Rollouts && time.Now().Before(until) {
		return true, r.note(releaseNote{Event: "waiting",
			Why: fmt.Sprintf("version %d has %d outcomes in production and version %d has %d, of %d each; until %s",
				next.Version, version, next.Against, against, r.o.rules.Rollouts, until.UTC().Format(time.DateTime))})
	}
	j := events.WeightsJudged{Version: next.Version, Against: next.Against, Stage: events.JudgedCanary,
		Rules: r.o.rules, Promotion: next.Given.Seq}
	if j.Sources, err = r.canary.Sources(); err != nil {
		return false, err
	}
	return false, r.judge(ctx, j)
}

// judge states a judgement. Where another process has judged meanwhile, that judgement counts.
func (r *releaser) judge(ctx context.Context, j events.WeightsJudged) error {
	if j.Sources == nil {
		j.Sources = []events.JudgedSource{}
	}
	if err := release.Judge(ctx, r.e.p.Log.Reader, r.o.policy, &j); err != nil {
		return err
	}
	_, err := plane.Submit(ctx, r.e.p, eventlog.Submission{Run: events.Catalogue, Type: events.WeightsJudgedType,
		Entity: r.o.policy, ID: j.Ordinal(), Data: j})
	if err != nil && !errors.Is(err, eventlog.ErrRefused) {
		return err
	}
	if readErr := r.state.Read(ctx, r.e.p.Log.Reader, r.o.policy); readErr != nil {
		return readErr
	}
	stated, found := r.state.Find(j.Ordinal())
	if !found {
		return err
	}
	if stated.Data.Verdict != events.JudgedPassed {
		r.failed = judgementLine(stated.Data)
	}
	return r.note(releaseNote{Event: "judged", Judgement: &stated.Data})
}

// promote states a promotion. One that is refused does not follow any more: something
// else was promoted meanwhile.
func (r *releaser) promote(ctx context.Context, next release.Step) error {
	_, err := plane.Submit(ctx, r.e.p, eventlog.Submission{Run: events.Catalogue, Type: events.WeightsPromotedType,
		Entity: r.o.policy, ID: next.ID, Data: next.Promotion})
	if errors.Is(err, eventlog.ErrRefused) {
		before := r.state.Seq
		if readErr := r.state.Read(ctx, r.e.p.Log.Reader, r.o.policy); readErr != nil {
			return readErr
		}
		if r.state.Seq > before {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return r.note(releaseNote{Event: "promoted", Promotion: &next.Promotion})
}

// releaseNote is a line that says what has happened.
type releaseNote struct {
	Event     string                  `json:"event"` // judged, promoted, waiting
	Policy    string                  `json:"policy"`
	Judgement *events.WeightsJudged   `json:"judgement,omitempty"`
	Promotion *events.WeightsPromoted `json:"promotion,omitempty"`
	Why       string                  `json:"why,omitempty"`
}

// note prints a line; a wait that was said last is not said again.
func (r *releaser) note(n releaseNote) error {
	if n.Why != "" && n.Why == r.waits {
		return nil
	}
	r.waits, n.Policy = n.Why, r.o.policy
	out := r.e.cmd.OutOrStdout()
	if r.e.g.JSON {
		return app.PrintJSON(out, n)
	}
	r.e.show.Clear()
	line := "waiting: " + n.Why
	switch {
	case n.Judgement != nil:
		line = judgementLine(*n.Judgement)
	case n.Promotion != nil && n.Promotion.Share > 0:
		line = fmt.Sprintf("version %d gets %.4g %% of the rollouts, and version %d the others", n.Promotion.Version,
			100*n.Promotion.Share, n.Promotion.Before)
	case n.Promotion != nil && n.Promotion.RolledBack > 0:
		line = fmt.Sprintf("version %d is taken back: version %d gets the rollouts", n.Promotion.RolledBack,
			n.Promotion.Version)
	case n.Promotion != nil:
		line = fmt.Sprintf("version %d is promoted", n.Promotion.Version)
	}
	_, err := fmt.Fprintln(out, app.Clean(line))
	return err
}

func judgementLine(j events.WeightsJudged) string {
	verdict := map[string]string{events.JudgedPassed: "passed its", events.JudgedFailed: "failed its",
		events.JudgedNoResult: "has no result of its"}[j.Verdict]
	line := fmt.Sprintf("version %d %s %s against version %d", j.Version, verdict, j.Stage, j.Against)
	for _, f := range j.Figures {
		line += fmt.Sprintf("; %s %.4g, %+.4g [%+.4g, %+.4g], p = %.3g", f.Name, f.Version,
			f.Difference, f.Low, f.High, f.P)
	}
	if len(j.Reasons) > 0 {
		line += ": " + strings.Join(j.Reasons, "; ")
	}
	return line
}

// verified is a judgement that was made again.
type verified struct {
	ID        string               `json:"id"`
	Judgement events.WeightsJudged `json:"judgement"`
	Differs   []string             `json:"differs"`
}

// verify makes all judgements again.
func (r *releaser) verify(ctx context.Context, p *plane.Plane) error {
	if err := p.MustPolicy(ctx, r.o.policy); err != nil {
		return err
	}
	if err := r.state.Read(ctx, p.Log.Reader, r.o.policy); err != nil {
		return err
	}
	out, wrong := r.e.cmd.OutOrStdout(), 0
	all := []verified{}
	for _, j := range r.state.Judged() {
		differs, err := release.Verify(ctx, p.Log.Reader, r.o.policy, j.Data)
		if err != nil {
			return fmt.Errorf("judgement %s: %w", j.ID, err)
		}
		if all = append(all, verified{j.ID, j.Data, differs}); len(differs) > 0 {
			wrong++
		}
		if r.e.g.JSON {
			continue
		}
		fmt.Fprintln(out, app.Clean(judgementLine(j.Data)))
		for _, d := range differs {
			fmt.Fprintf(out, "  differs: %s\n", app.Clean(d))
		}
	}
	if r.e.g.JSON {
		if err := app.PrintJSON(out, all); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "%d judgements made again, %d come out differently\n", len(all), wrong)
	}
	if wrong > 0 {
		return &app.ExitError{Code: app.ExitFindings}
	}
	return nil
}
