package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// finishAsk is the body of POST /rollouts/{id}/finish.
type finishAsk struct {
	// Reward; nil leaves it to feedback, or to the verifier.
	Reward     *float64           `json:"reward,omitempty"`
	Components map[string]float64 `json:"components,omitempty"`
	// Verify lets the task's verifier decide the reward, over the workspace that the
	// rollout's calls have left.
	Verify bool `json:"verify,omitempty"`
	// StopReason is why the episode ended; "" follows from its turns.
	StopReason string `json:"stop_reason,omitempty"`
	// Failure is what went wrong, in place of a reward: an infrastructure
	// failure is not a reward of 0.
	Failure string `json:"failure,omitempty"`
}

// Bounds of what a harness says of its rollout, the same as the intake's.
const (
	maxComponents = 100
	maxFailure    = 4000
)

func (a *finishAsk) check() error {
	switch {
	case a.Failure != "" && (a.Reward != nil || len(a.Components) > 0 || a.StopReason != "" || a.Verify):
		return problem(http.StatusBadRequest, "invalid_request_error",
			"failure: a rollout that failed has no reward, components or stop_reason, and is not verified")
	case a.Verify && (a.Reward != nil || len(a.Components) > 0):
		return problem(http.StatusBadRequest, "invalid_request_error",
			"verify: the task's verifier gives the reward, so state none")
	case len(a.Failure) > maxFailure:
		return problem(http.StatusBadRequest, "invalid_request_error",
			"failure: %d bytes, at most %d", len(a.Failure), maxFailure)
	case a.Reward == nil && len(a.Components) > 0:
		return problem(http.StatusBadRequest, "invalid_request_error", "components: give the reward, too")
	case len(a.Components) > maxComponents:
		return problem(http.StatusBadRequest, "invalid_request_error",
			"components: %d of them, at most %d", len(a.Components), maxComponents)
	case a.Reward != nil && math.Abs(*a.Reward) > runfile.MaxReward:
		return problem(http.StatusBadRequest, "invalid_request_error", "reward %g: at most 1e9 either way", *a.Reward)
	case a.StopReason != "" && !runfile.ValidToken(a.StopReason):
		return problem(http.StatusBadRequest, "invalid_request_error",
			"stop_reason %.80q: use letters, digits, - and _, at most 64", a.StopReason)
	}
	return nil
}

// finish ends a rollout: its turns become its trajectory. It may be repeated.
func (g *Gateway) finish(w *stream, r *http.Request, t *tenant) error {
	var a finishAsk
	if err := g.settings(w, r, t, &a); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	defer g.locks.take(name(ro.Run, ro.ID))()
	// A gateway that died may have submitted either of the two facts. The intake refuses a second
	// one: the recorded fact decides.
	const facts = 2
	for try := 0; ; try++ {
		if err = g.answered(r.Context(), ro, a.Failure != ""); err != nil {
			return err
		}
		if ro, err = g.load(r.Context(), ro.Run, ro.ID, t); err != nil {
			return err
		}
		if a.Failure != "" {
			err = g.fail(r.Context(), t, ro, a.Failure)
		} else {
			err = g.end(r.Context(), t, ro, a)
		}
		if try == facts || !errors.Is(err, eventlog.ErrRefused) {
			break
		}
	}
	if err != nil {
		return refused(err)
	}
	if ro, err = g.load(r.Context(), ro.Run, ro.ID, t); err != nil {
		return err
	}
	return reply(w, http.StatusOK, ro.report())
}

// fail states what went wrong, unless the rollout has its outcome.
func (g *Gateway) fail(ctx context.Context, t *tenant, ro *rollout, cause string) error {
	if ro.Failed != nil && ro.Failed.Message == cause {
		return nil
	}
	if ro.Over() {
		return ro.open()
	}
	return g.state(ctx, t, ro.Run, events.RolloutFailedType, ro.ID, rand.Text(),
		events.RolloutFailed{Stage: "harness", Class: events.ClassInternal, Message: cause})
}

// end states the end of the episode and its reward, whatever of it is not on the log yet.
func (g *Gateway) end(ctx context.Context, t *tenant, ro *rollout, a finishAsk) error {
	if ro.Failed != nil {
		return ro.open()
	}
	if ro.Finished != nil && ro.Finished.Verify != a.Verify && (a.Verify || a.Reward != nil) {
		return problem(http.StatusConflict, "rollout_over",
			"rollout %s is finished already, with verify %t", ro.ID, ro.Finished.Verify)
	}
	if ro.Scored != nil && a.Reward != nil && *a.Reward != ro.Scored.Reward {
		return problem(http.StatusConflict, "rollout_over",
			"rollout %s is scored already, with reward %g", ro.ID, ro.Scored.Reward)
	}
	finished := ro.Finished
	if finished == nil {
		if len(ro.Turns) == 0 {
			return problem(http.StatusConflict, "no_turns",
				"rollout %s has no turns: state a failure, if it did not come to any", ro.ID)
		}
		f, err := g.episode(ctx, ro, a.StopReason)
		if err != nil {
			return err
		}
		if a.Verify {
			f.Verify, f.Workspace = true, ro.Workspace()
		}
		finished = &f
		if err := g.state(ctx, t, ro.Run, events.RolloutFinishedType, ro.ID, rand.Text(), f); err != nil {
			return err
		}
	}
	if a.Reward == nil || ro.Scored != nil {
		return nil
	}
	return g.state(ctx, t, ro.Run, events.RolloutScoredType, ro.ID, rand.Text(), events.RolloutScored{
		Reward: *a.Reward, Components: a.Components, Trajectory: finished.Trajectory, TextOnly: finished.TextOnly,
	})
}

// episode writes the trajectory's file.
func (g *Gateway) episode(ctx context.Context, ro *rollout, stopReason string) (events.RolloutFinished, error) {
	if stopReason == "" {
		stopReason = ro.stopped()
	}
	tr, err := trajectory(&ro.Rollout, stopReason)
	if err != nil {
		return events.RolloutFinished{}, err
	}
	data, err := storage.EncodeTrajectory(tr)
	if errors.Is(err, storage.ErrTooLarge) {
		return events.RolloutFinished{}, problem(http.StatusRequestEntityTooLarge, "too_large", "%v", err)
	}
	if err != nil {
		return events.RolloutFinished{}, err
	}
	finished, err := events.StoreTrajectory(ctx, g.log.Store(), tr, data)
	if !tr.TextOnly {
		finished.Masked = events.MaskedTokens(ro.Taken())
	}
	return finished, err
}

// stopped is why the episode ended, as far as its turns tell: the last one that is not masked.
func (r *rollout) stopped() string {
	turns := unmasked(r.Turns)
	last := turns[len(turns)-1]
	switch stop := last.Stopped(); {
	case stop != events.StopFinished:
		return stop
	case len(r.Turns) >= r.cfg.Limits.Turns:
		return events.StopMaxTurns
	case last.Used() >= r.cfg.Limits.Tokens:
		return events.StopMaxTokens
	}
	return events.StopFinished
}

// report is the answer of GET /rollouts/{id}.
type report struct {
	ID       string    `json:"id"`
	Run      string    `json:"run"`
	Rollout  string    `json:"rollout"`
	Task     string    `json:"task"`
	State    string    `json:"state"` // open, finished, scored, failed
	Turns    int       `json:"turns"`
	Samples  int       `json:"samples"` // training samples that its turns make
	Tokens   int       `json:"tokens"`  // sampled ones
	TextOnly bool      `json:"text_only"`
	Deadline time.Time `json:"deadline"`
	Calls    int       `json:"calls"` // on its workspace
	Reward   *float64  `json:"reward,omitempty"`
	// Components are those of the verdict; Forfeit says what the agent did that left
	// the verifier without one.
	Components map[string]float64 `json:"components,omitempty"`
	Forfeit    string             `json:"forfeit,omitempty"`
	Failure    string             `json:"failure,omitempty"`
}

func (r *rollout) report() report {
	p := report{
		ID: name(r.Run, r.ID), Run: r.Run, Rollout: r.ID, Task: r.Started.Task, State: r.outcome(),
		Turns: len(r.Turns), Samples: len(newTree(r.Turns).segments), Calls: len(r.Calls), Deadline: r.Started.Deadline,
	}
	if p.State == "" {
		p.State = "open"
	}
	for _, t := range r.Turns {
		p.Tokens += len(t.TokenIDs)
	}
	for _, t := range unmasked(r.Turns) {
		p.TextOnly = p.TextOnly || t.TextOnly
	}
	if r.Scored != nil {
		p.Reward, p.Components = &r.Scored.Reward, r.Scored.Components
		if r.Scored.Forfeit != nil {
			p.Forfeit = r.Scored.Forfeit.Class + ": " + r.Scored.Forfeit.Message
		}
	}
	if r.Failed != nil {
		p.Failure = r.Failed.Class + ": " + r.Failed.Message
	}
	return p
}

// show says how a rollout stands.
func (g *Gateway) show(w *stream, r *http.Request, t *tenant) error {
	ro, err := g.find(r, t)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, ro.report())
}
