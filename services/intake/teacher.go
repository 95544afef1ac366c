package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// maxLogprobs bounds the log-probabilities of one rollout, in bytes: those of as
// many tokens as a file holds.
const maxLogprobs = 4 * storage.MaxArrowTokens

// admitTeacher checks what a teacher outside says of a rollout: of all of its tokens, or of those
// of the hints that it takes, and nothing that no log-probability can be.
func (s *Service) admitTeacher(ctx context.Context, m pipeline.Message, cfg runfile.RunConfig, fact events.Event,
	p *events.TeacherScored) error {
	t := cfg.Teacher(p.Teacher)
	switch {
	case t.Name == "":
		return refuse("teacher %.80q: run %s has no teacher of that name", p.Teacher, fact.Run)
	case t.URL != "":
		return refuse("teacher %s: the run's own service asks it; outsiders speak for teachers without a url",
			p.Teacher)
	case (p.Logprobs == nil) == (p.Failed == ""):
		return refuse("logprobs and failed: give one of them")
	}
	r, err := s.scoredRollout(ctx, fact, p.Trajectory)
	if err != nil {
		return err
	}
	var hinted *events.RolloutHinted
	tokens := r.Finished.Tokens
	if t.Hints != "" {
		said, there, err := s.hints(ctx, fact.Run, fact.Entity, t.Hints)
		if err != nil {
			return err
		}
		if !there || len(said.Hints) == 0 {
			return refuse("teacher %s: it takes the hints of %s, who has stated none of rollout %s", t.Name, t.Hints,
				fact.Entity)
		}
		hinted = &said
		_, tokens = said.Lengths()
	}
	switch {
	case p.Logprobs == nil:
		return nil
	case p.Tokens != tokens || p.Logprobs.Size != 4*int64(p.Tokens):
		return refuse("tokens %d in %d bytes: rollout %s has %d tokens that teacher %s scores, of which each takes 4 bytes",
			p.Tokens, p.Logprobs.Size, fact.Entity, tokens, t.Name)
	}
	if err := topology.CheckBlob(*p.Logprobs); err != nil {
		return refuse("logprobs: %v", err)
	}
	return s.admitLogprobs(ctx, m, fact, r.Scored.Trajectory, *p.Logprobs, hinted)
}

// scoredRollout finds the rollout that a fact is about; it must have its reward for the
// trajectory that the fact names.
func (s *Service) scoredRollout(ctx context.Context, fact events.Event, trajectory string) (events.Rollout, error) {
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return r, refuseRollout(fact)
	}
	switch {
	case err != nil:
		return r, err
	case r.Scored == nil:
		return r, refuse("rollout %s of run %s has no reward: wait for rollout.scored", fact.Entity, fact.Run)
	case trajectory != r.Scored.Trajectory.SHA256:
		return r, refuse("trajectory %s: that is not the file that rollout.scored of %s names", trajectory, fact.Entity)
	}
	return r, nil
}

// admitLogprobs checks the values, sample by sample, or hint by hint.
func (s *Service) admitLogprobs(ctx context.Context, m pipeline.Message, fact events.Event, trajectory,
	logprobs storage.Ref, hinted *events.RolloutHinted) error {
	from, err := s.from.find(ctx, m.Subject)
	if err != nil {
		return err
	}
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	data, err := s.object(ctx, from, "logprobs", logprobs, maxLogprobs)
	if err != nil {
		return err
	}
	firsts := ", and 0 for the first token of each sample"
	if hinted != nil {
		firsts = ""
		lengths, _ := hinted.Lengths()
		_, err = events.UnpackSpans(data, lengths)
	} else {
		samples, wrong := s.samplesOf(ctx, fact, trajectory)
		if wrong != nil {
			return wrong
		}
		var lengths []int
		for _, sample := range samples {
			lengths = append(lengths, len(sample.Tokens))
		}
		_, err = events.UnpackLogprobs(data, lengths)
	}
	if err != nil {
		s.logger.WarnContext(ctx, "log-probabilities refused", "run", fact.Run, "rollout", fact.Entity, "error", err)
		return refuse("logprobs: each must be a finite number of at most 0%s; the operator finds the one that is not in the intake's log", firsts)
	}
	return nil
}

// samplesOf reads the samples of a trajectory of the plane's own. The caller holds
// a place of the decoders.
func (s *Service) samplesOf(ctx context.Context, fact events.Event, trajectory storage.Ref) ([]storage.Sample, error) {
	file, err := storage.GetBlob(ctx, s.log.Store(), trajectory)
	if err != nil {
		return nil, err
	}
	t, err := storage.DecodeTrajectory(file)
	if err != nil {
		return nil, fmt.Errorf("trajectory of %s: %w", fact.Entity, err)
	}
	return t.Samples(), nil
}
