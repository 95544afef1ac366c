package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// maxLogprobs bounds the log-probabilities of one rollout, in bytes: those of as many tokens as a file holds.
const maxLogprobs = 4 * storage.MaxArrowTokens

// admitTeacher checks what a teacher outside says of a rollout: of all of its tokens, and nothing that no log-probability can be.
func (s *Service) admitTeacher(ctx context.Context, m pipeline.Message, cfg runfile.RunConfig, fact events.Event, p *events.TeacherScored) error {
	i := slices.IndexFunc(cfg.Teachers, func(t runfile.Teacher) bool { return t.Name == p.Teacher })
	switch {
	case i < 0:
		return refuse("teacher %.80q: run %s has no teacher of that name", p.Teacher, fact.Run)
	case cfg.Teachers[i].URL != "":
		return refuse("teacher %s: the run's own service asks it; outsiders speak for teachers without a url", p.Teacher)
	case (p.Logprobs == nil) == (p.Failed == ""):
		return refuse("logprobs and failed: give one of them")
	}
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuseRollout(fact)
	}
	switch {
	case err != nil:
		return err
	case r.Scored == nil:
		return refuse("rollout %s of run %s has no reward: wait for rollout.scored", fact.Entity, fact.Run)
	case p.Trajectory != r.Scored.Trajectory.SHA256:
		return refuse("trajectory %s: that is not the file that rollout.scored of %s names", p.Trajectory, fact.Entity)
	case p.Logprobs == nil:
		return nil
	case p.Tokens != r.Finished.Tokens || p.Logprobs.Size != 4*int64(p.Tokens):
		return refuse("tokens %d in %d bytes: rollout %s has %d tokens, of which each takes 4 bytes", p.Tokens, p.Logprobs.Size, fact.Entity, r.Finished.Tokens)
	}
	if err := topology.CheckBlob(*p.Logprobs); err != nil {
		return refuse("logprobs: %v", err)
	}
	return s.admitLogprobs(ctx, m, fact, r.Scored.Trajectory, *p.Logprobs)
}

// admitLogprobs checks the values, sample by sample.
func (s *Service) admitLogprobs(ctx context.Context, m pipeline.Message, fact events.Event, trajectory, logprobs storage.Ref) error {
	from, err := s.from.of(ctx, m.Subject)
	if err != nil {
		return err
	}
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	data, err := s.object(ctx, from, "logprobs", logprobs, maxLogprobs)
	if err != nil {
		return err
	}
	file, err := storage.GetBlob(ctx, s.log.Store(), trajectory) // the plane's own
	if err != nil {
		return err
	}
	t, err := storage.DecodeTrajectory(file)
	if err != nil {
		return fmt.Errorf("trajectory of %s: %w", fact.Entity, err)
	}
	var lengths []int
	for _, sample := range t.Samples() {
		lengths = append(lengths, len(sample.Tokens))
	}
	if _, err := events.UnpackLogprobs(data, lengths); err != nil {
		s.logger.WarnContext(ctx, "log-probabilities refused", "run", fact.Run, "rollout", fact.Entity, "error", err)
		return refuse("logprobs: each must be a finite number of at most 0, and 0 for the first token of each sample; the operator finds the one that is not in the intake's log")
	}
	return nil
}
