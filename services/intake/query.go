package intake

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
)

// admitQuery checks a user's query against the run that is to answer it.
func (s *Service) admitQuery(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.QuerySubmitted) error {
	if !strings.HasPrefix(fact.Entity, events.QueryPrefix) {
		return refuse("query %q: begin its name with %s", fact.Entity, events.QueryPrefix)
	}
	if _, err := cfg.Task(fact.Entity); err == nil {
		return refuse("query %q: the run has a task of that name", fact.Entity)
	}
	if len(cfg.Servers()) == 0 {
		return refuse("run %s has no endpoint: nobody would answer a query", fact.Run)
	}
	if err := admitTraffic(cfg, p.Session, p.Consent); err != nil {
		return err
	}
	task, err := cfg.Task(p.Task)
	if err != nil {
		return refuse("task: %v", err)
	}
	if p.Verify && !task.HasVerifier() {
		return refuse("verify: task %q has no tests", p.Task)
	}
	if err := s.admitClosed(ctx, fact); err != nil {
		return err
	}
	if err := s.admitFill(ctx, fact); err != nil {
		return err
	}
	return s.admitRepository(ctx, cfg, fact.Run, p.Repository, p.Consent)
}

// Bounds of a repository of a user: its archive, and its files, which a sandbox with the default
// limits has room for twice.
const (
	maxRepository      = 64 << 20
	maxRepositoryFiles = sandbox.DefaultDiskBytes / 2
)

// admitRepository checks the code of a user. The archive is read whole, as a sandbox that cannot
// unpack it would fail the run's machines.
func (s *Service) admitRepository(ctx context.Context, cfg runfile.RunConfig, run string,
	r *events.UserRepository, consent bool) error {
	switch {
	case r == nil:
		return nil
	case !cfg.Has(runfile.FeatureUserRepositories):
		return refuse("repository: the run takes none of users; runs that do have %s among their features",
			runfile.FeatureUserRepositories)
	case !consent: // whatever traffic.consent says
		return refuse("consent: the run takes no repository of users who have not agreed")
	case strings.Contains(r.Origin, "@"):
		return refuse("repository.origin: leave out what stands before @, as it may be a credential")
	}
	data, err := s.object(ctx, product(run), "repository.archive", r.Archive, maxRepository)
	if err != nil {
		return err
	}
	if err := sandbox.Check(bytes.NewReader(data), maxRepositoryFiles); err != nil {
		s.logger.WarnContext(ctx, "repository refused", "run", run, "key", r.Archive.Key, "error", err)
		return refuse("repository.archive: want a tar, compressed by zstd or not, of at most %d bytes in at most %d files, folders and symbolic links that stay inside, each with a clean path "+
			"that is there once; the intake's log says what is wrong", maxRepositoryFiles, sandbox.MaxFiles)
	}
	return nil
}

// admitTraffic refuses what the run does not take of its users.
func admitTraffic(cfg runfile.RunConfig, session string, consent bool) error {
	if why := cfg.Refusal(session, consent); why != "" {
		return refuse("%s", why)
	}
	return nil
}

// admitClosed refuses what a closed run would never take up.
func (s *Service) admitClosed(ctx context.Context, fact events.Event) error {
	last, err := s.log.Last(ctx, fact.Run, events.RunOpenedType.Kind(), fact.Run)
	if err == nil && last.Type == events.RunClosedType {
		return refuse("run %s is closed", fact.Run)
	}
	return err
}

// admitFeedback checks a user's feedback against the rollout that it is about.
func (s *Service) admitFeedback(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.FeedbackRecorded) error {
	last, err := s.log.LastOfType(ctx, fact.Run, events.RolloutStartedType, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseRollout(fact)
	}
	switch {
	case err != nil:
		return err
	case p.Signal == events.SignalScore && p.Reward == nil:
		return refuse("reward: a %s needs one", events.SignalScore)
	case (p.Signal == events.SignalAccept || p.Signal == events.SignalReject) && p.Reward != nil:
		return refuse("reward: only a %s or a %s has one; %s says it by itself", events.SignalScore,
			events.SignalFollow, p.Signal)
	case p.Reward != nil:
		err = admitReward("reward", *p.Reward)
	}
	if err == nil && p.Repository != nil {
		err = s.admitFinal(ctx, cfg, last, p.Repository)
	}
	if _, scores := p.Score(); err != nil || !scores || cfg.Has(runfile.FeatureFeedbackRewards) {
		return err
	}
	return s.admitRemark(ctx, last)
}

// admitFinal checks the code that a user has in the end: of the answer to a
// query, whose user has agreed.
func (s *Service) admitFinal(ctx context.Context, cfg runfile.RunConfig, start events.Event,
	r *events.UserRepository) error {
	started, err := events.Data[events.RolloutStarted](start)
	if err != nil {
		return err
	}
	asked, err := s.log.LastOfType(ctx, start.Run, events.QuerySubmittedType, started.Task)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuse("repository: rollout %s answers no query", start.Entity)
	}
	if err != nil {
		return err
	}
	query, err := events.Data[events.QuerySubmitted](asked)
	if err != nil {
		return err
	}
	return s.admitRepository(ctx, cfg, start.Run, r, query.Consent)
}

// admitRemark refuses feedback that would be a rollout's reward where the run does not want that.
func (s *Service) admitRemark(ctx context.Context, fact events.Event) error {
	started, err := events.Data[events.RolloutStarted](fact)
	if err != nil {
		return err
	}
	task, err := s.log.Task(ctx, fact.Run, started.Task)
	switch {
	case err != nil && !errors.Is(err, runfile.ErrNoTask):
		return err
	case err == nil && task.HasVerifier():
		return nil
	}
	return refuse("features: rollout %s has no verifier, and run %s takes no rewards from users; runs that do have %s. A %s without a reward is a remark",
		fact.Entity, fact.Run, runfile.FeatureFeedbackRewards, events.SignalFollow)
}
