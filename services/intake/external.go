package intake

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// Groups and rollouts of outsiders pass the intake in the order in which Rondo's own services would
// state them, and everything that a later fact relies on is looked at: what stands on the log is as
// true as if it was made inside.

// externalGroup is how outsiders name a group. The members' ids, which are
// longer, must be tokens too.
var externalGroup = regexp.MustCompile(`^` + events.ExternalPrefix + `[A-Za-z0-9_]{1,48}$`)

// clockSkew is how far an outsider's clock may be off.
const clockSkew = time.Minute

// admitExternal checks a fact about a rollout of an outsider against that rollout.
func (s *Service) admitExternal(ctx context.Context, a submitted) error {
	r, err := s.log.Rollout(ctx, a.fact.Run, a.fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseUnstarted(a.fact)
	}
	if err != nil {
		return err
	}
	return s.admitNext(ctx, a.run, &r, a.fact, a.payload)
}

// admitNext checks a fact against the rollout that it goes on with. It is held to the order
// once more when it is linked.
func (s *Service) admitNext(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	fact events.Event, payload any) error {
	if err := inOrder(fact, r); err != nil { // before anything is fetched
		return err
	}
	return rules[fact.Type].next(s, ctx, cfg, r, payload)
}

// maxMembers bounds a group of outsiders.
const maxMembers = 1024

func (s *Service) admitGroup(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.GroupOpened) error {
	if !externalGroup.MatchString(fact.Entity) {
		return refuse("group %q: name it %s and then letters, digits and _, at most 48", fact.Entity,
			events.ExternalPrefix)
	}
	if p.Size < 1 || p.Size > maxMembers {
		return refuse("size %d: a group has 1 to %d members", p.Size, maxMembers)
	}
	if err := admitTask(cfg, p.Task); err != nil {
		return err
	}
	if cfg.Has(runfile.FeatureUserTraffic) || p.Session != "" || p.Consent {
		if err := admitTraffic(cfg, p.Session, p.Consent); err != nil {
			return err
		}
	}
	if err := s.admitVersion(ctx, cfg, "policy_version", p.PolicyVersion); err != nil {
		return err
	}
	if err := s.admitPaused(ctx, fact); err != nil {
		return err
	}
	return s.admitFill(ctx, fact)
}

// admitTask refuses a task that a run with tasks does not have. A run without
// any takes outsiders' word.
func admitTask(cfg runfile.RunConfig, name string) error {
	if len(cfg.Tasks) > 0 {
		if _, err := cfg.Task(name); err != nil {
			return refuse("task: %v", err)
		}
		return nil
	}
	if name == "" || len(name) > maxName {
		return refuse("task %.40q: give its name, at most %d bytes", name, maxName)
	}
	return nil
}

// admitVersion refuses versions that the run's policy has not reached: nothing can
// have been sampled with them.
func (s *Service) admitVersion(ctx context.Context, cfg runfile.RunConfig, field string, version int64) error {
	if version < 0 {
		return refuse("%s %d: must not be negative", field, version)
	}
	if version == 0 {
		return nil
	}
	published, _, err := s.log.Published(ctx, events.Catalogue, cfg.Policy)
	if err != nil {
		return err
	}
	if version > published.Version {
		return refuse("%s %d: policy %s has only reached version %d; publish the weights first", field, version,
			cfg.Policy, published.Version)
	}
	return nil
}

// admitPaused refuses new work while the run is paused.
func (s *Service) admitPaused(ctx context.Context, fact events.Event) error {
	last, err := s.log.Last(ctx, fact.Run, events.RunOpenedType.Kind(), fact.Run)
	if err != nil || last.Type != events.RunPausedType {
		return err
	}
	paused, err := events.Data[events.RunPaused](last)
	if err != nil {
		return err
	}
	if paused.Reason != "" {
		paused.Reason = " (" + paused.Reason + ")"
	}
	return refuse("run %s is paused%s: what is open may go on, nothing new begins until `rondo run resume %s`",
		fact.Run, paused.Reason, fact.Run)
}

// admitFill refuses new work when the run's stream has little room left.
func (s *Service) admitFill(ctx context.Context, fact events.Event) error {
	full, err := s.log.Fill(ctx, fact.Run)
	if err == nil && full > topology.FullAt {
		return refuse("the stream of run %s is %.0f %% full: above %.0f %% nothing new begins, so that open rollouts can still end",
			fact.Run, float64(100*full), 100*topology.FullAt)
	}
	return err
}

// admitStarted checks a member against its group. at is when the message came.
func (s *Service) admitStarted(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.RolloutStarted, at time.Time) error {
	last, err := s.log.LastOfType(ctx, fact.Run, events.GroupOpenedType, events.GroupOf(fact.Entity))
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuse("run %s has no group %q: state %s first", fact.Run,
			events.GroupOf(fact.Entity), events.GroupOpenedType)
	}
	if err != nil {
		return err
	}
	group, err := events.Data[events.GroupOpened](last)
	if err != nil {
		return err
	}
	return s.admitMember(ctx, cfg, group, fact, p, at)
}

// admitMember checks a member against its group as it was opened.
func (s *Service) admitMember(ctx context.Context, cfg runfile.RunConfig, group events.GroupOpened, fact events.Event,
	p *events.RolloutStarted, at time.Time) error {
	name := events.GroupOf(fact.Entity)
	switch id := events.RolloutID(name, p.Member); {
	case p.Group != name:
		return refuse("group %q: rollout %s belongs to group %q", p.Group, fact.Entity, name)
	case p.Member < 0 || p.Member >= group.Size:
		return refuse("member %d: group %s has %d members, counted from 0", p.Member, p.Group, group.Size)
	case fact.Entity != id:
		return refuse("rollout %q: member %d of group %s is %q", fact.Entity, p.Member, p.Group, id)
	case p.Task != group.Task:
		return refuse("task %.100q: group %s was opened for task %q", p.Task, p.Group, group.Task)
	case p.PolicyVersion < group.PolicyVersion:
		return refuse("policy_version %d: group %s was opened at version %d", p.PolicyVersion,
			p.Group, group.PolicyVersion)
	}
	if err := admitDeadline(cfg, p.Deadline, at); err != nil {
		return err
	}
	return s.admitVersion(ctx, cfg, "policy_version", p.PolicyVersion)
}

func admitDeadline(cfg runfile.RunConfig, deadline, at time.Time) error {
	most := time.Duration(cfg.Limits.Timeout)
	if deadline.Before(at.Add(-clockSkew)) || deadline.After(at.Add(most+clockSkew)) {
		return refuse("deadline %s: it is %s; give a time within limits.timeout of the run, %s from now",
			deadline.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339), most)
	}
	return nil
}

func admitReward(field string, reward float64) error {
	if math.IsNaN(reward) || math.Abs(reward) > runfile.MaxReward {
		return refuse("%s %g: must be a number within ±%g", field, reward, float64(runfile.MaxReward))
	}
	return nil
}

// maxComponents bounds the parts of a reward.
const maxComponents = 100

func (s *Service) admitScored(ctx context.Context, r *events.Rollout, p *events.RolloutScored) error {
	if err := admitReward("reward", p.Reward); err != nil {
		return err
	}
	if err := admitForfeit(p); err != nil {
		return err
	}
	if len(p.Components) > maxComponents {
		return refuse("components: %d of them, at most %d", len(p.Components), maxComponents)
	}
	for name, v := range p.Components {
		if err := admitReward(fmt.Sprintf("components.%.40q", name), v); err != nil {
			return err
		}
	}
	if t := p.Tests; t != nil && t.Held+len(t.Unmet) > t.Graded {
		return refuse("tests: %d held and %d unmet, but %d are graded", t.Held, len(t.Unmet), t.Graded)
	}
	if r.Finished.Verify {
		return refuse("reward: the verifier of task %q scores rollout %s, as its %s says", r.Started.Task, r.ID,
			events.RolloutFinishedType)
	}
	if p.Trajectory != r.Finished.Trajectory || p.TextOnly != r.Finished.TextOnly {
		return refuse("trajectory: repeat trajectory and text_only of the rollout's %s: %s", events.RolloutFinishedType,
			r.Finished.Trajectory.Key)
	}
	if err := s.admitBlob(ctx, harness(r.Run), "judgement", p.Judgement, maxLog); err != nil {
		return err
	}
	return s.admitBlob(ctx, harness(r.Run), "log", p.Log, maxLog)
}

// maxLog bounds a verifier's log, and what a judge answered, in bytes.
const maxLog = 16 << 20

// maxMessage bounds the text of a failure in bytes.
const maxMessage = 4000

// admitForfeit refuses a forfeit that pays: see events.Scoring.Forfeited.
func admitForfeit(p *events.RolloutScored) error {
	switch {
	case p.Forfeit == nil:
		return nil
	case p.Reward > 0:
		return refuse("forfeit %s: a forfeited rollout has no verdict of its tests, so its reward must be 0 or less, not %g",
			p.Forfeit.Class, p.Reward)
	case len(p.Forfeit.Message) > maxMessage:
		return refuse("forfeit.message: %d bytes, at most %d", len(p.Forfeit.Message), maxMessage)
	}
	return nil
}

func admitFailed(p *events.RolloutFailed) error {
	if !runfile.ValidToken(p.Stage) || !runfile.ValidToken(p.Class) {
		return refuse("stage %.40q, class %.40q: both need letters, digits, - and _, at most 64", p.Stage, p.Class)
	}
	if len(p.Message) > maxMessage {
		return refuse("message: %d bytes, at most %d", len(p.Message), maxMessage)
	}
	return nil
}

func refuseUnstarted(fact events.Event) error {
	return refuse("run %s has no rollout %q: state %s first", fact.Run, fact.Entity, events.RolloutStartedType)
}

// inOrder says which of an external rollout's facts may come next.
func inOrder(fact events.Event, r *events.Rollout) error {
	switch {
	case r.Failed != nil:
		return refuse("rollout %s has failed already: %s: %s: %s", r.ID, r.Failed.Stage,
			r.Failed.Class, r.Failed.Message)
	case r.Scored != nil:
		return refuse("rollout %s is scored already, with reward %g", r.ID, r.Scored.Reward)
	case r.Finished != nil && (fact.Type == events.RolloutFinishedType || fact.Type == events.TurnSampledType ||
		fact.Type == events.WorkspaceCalledType):
		return refuse("rollout %s is finished already, with %s", r.ID, r.Finished.Trajectory.Key)
	case r.CallUnderWay() != nil && (fact.Type == events.RolloutFinishedType ||
		fact.Type == events.WorkspaceCalledType):
		return refuse("rollout %s: its call %.40q is not answered yet, and the next one comes behind it", r.ID,
			r.CallUnderWay().Key)
	case fact.Type == events.RolloutScoredType && r.Finished == nil:
		return refuse("rollout %s is not finished: state %s first", r.ID, events.RolloutFinishedType)
	case fact.Type == events.TurnSampledType &&
		fact.ID != events.ID(fact.Run, fact.Type, fact.Entity, events.Ordinal(len(r.Turns))):
		return refuse("%s: rollout %s has %d turns, counted from 0", fact.ID, r.ID, len(r.Turns))
	}
	return nil
}
