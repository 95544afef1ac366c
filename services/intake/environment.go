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
)

// ensureWorkers makes the consumers from which users' workers take a run's rollouts. A consumer is
// no event, and the workers may not make one.
func (s *Service) ensureWorkers(ctx context.Context, run string, cfg runfile.RunConfig) error {
	for _, spec := range topology.ConsumersOf(topology.Environment) {
		wanted := cfg.Environment != nil
		if spec.Name == topology.RatingsConsumer {
			wanted = cfg.Scorer.Function != ""
		}
		if !wanted {
			continue
		}
		if _, err := s.streams.EnsureConsumer(ctx, spec.For(run, ""), ""); err != nil {
			return err
		}
	}
	return nil
}

// admitObserved checks what an environment says, before it is linked.
func (s *Service) admitObserved(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.RolloutObserved) error {
	if cfg.Environment == nil {
		return refuse("run %s has no environment", fact.Run)
	}
	if err := admitComponents(p.Components); err != nil {
		return err
	}
	if err := admitReward("reward", p.Reward); err != nil {
		return err
	}
	bytes := 0
	for _, m := range p.Messages {
		bytes += len(m.Content)
	}
	switch {
	case bytes > events.MaxObserved:
		return refuse("messages: %d bytes, at most %d", bytes, events.MaxObserved)
	case len(p.State) > events.MaxState:
		return refuse("state: %d bytes, at most %d", len(p.State), events.MaxState)
	case p.Failed != "" && (p.Done || p.Reward != 0 || len(p.Components) > 0):
		return refuse("failed: a rollout that failed has no reward")
	}
	if err := admitNext(events.RolesIn(cfg, fact.Entity), p); err != nil {
		return err
	}
	_, err := s.awaited(ctx, fact)
	return err
}

// admitNext checks who has the word next.
func admitNext(roles []string, p *events.RolloutObserved) error {
	switch {
	case len(roles) == 0 && (p.Next != "" || p.Held):
		return refuse("next and held: the run's file names no environment.roles")
	case p.Next != "" && !slices.Contains(roles, p.Next):
		return refuse("next %.80q: the roles are %v", p.Next, roles)
	case p.Next != "" && (p.Held || p.Done || p.Failed != "" || p.Reward != 0 ||
		len(p.Messages) > 0 || len(p.Components) > 0):
		return refuse("next: what gives the word to %s says nothing else here", p.Next)
	}
	return nil
}

// admitHeld refuses a word that would settle a second time what follows a turn. The opening of a
// role that is not the first follows from what is settled elsewhere, as does the end of an episode
// that this role did not end. What fails a rollout settles nothing.
func (s *Service) admitHeld(ctx context.Context, r *events.Rollout, said *events.RolloutObserved) error {
	cfg, err := s.log.Config(ctx, r.Run)
	if err != nil {
		return err
	}
	settles := r.Settles(cfg)
	switch {
	case said.Failed != "" || said.Held != settles:
		return nil
	case settles:
		return refuse("held: nothing is settled behind turn %d of rollout %s", said.Turn, r.ID)
	case r.Passed:
		return refuse("turn %d: it is settled that another role has the word before rollout %s", said.Turn, r.ID)
	}
	return refuse("turn %d: rollout %s is not its episode's first, so its opening is held", said.Turn, r.ID)
}

// admitRated checks what a reward function says.
func (s *Service) admitRated(ctx context.Context, cfg runfile.RunConfig, fact events.Event,
	p *events.RolloutRated) error {
	switch {
	case cfg.Scorer.Function == "":
		return refuse("run %s has no reward function", fact.Run)
	case p.By != cfg.Scorer.Function:
		return refuse("by %s: the reward function of run %s is %s", p.By, fact.Run, cfg.Scorer.Function)
	case (len(p.Components) == 0) == (p.Failed == ""):
		return refuse("components and failed: give one of them")
	}
	if err := admitComponents(p.Components); err != nil {
		return err
	}
	_, err := s.awaited(ctx, fact)
	return err
}

// admitComponents checks the parts of a reward.
func admitComponents(components map[string]float64) error {
	if len(components) > maxComponents {
		return refuse("components: %d of them, at most %d", len(components), maxComponents)
	}
	for name, v := range components {
		if name == "" || len(name) > maxName {
			return refuse("components: %.40q: give a name of at most %d bytes", name, maxName)
		}
		if err := admitReward(fmt.Sprintf("components.%.40q", name), v); err != nil {
			return err
		}
	}
	return nil
}

// stillAwaited is awaited of the chain up to the link behind which the fact is put:
// it may have grown since.
func (s *Service) stillAwaited(ctx context.Context, fact events.Event, last *events.Event) error {
	r, err := s.awaited(ctx, fact)
	if err == nil && r.Tail != last.Seq {
		return fmt.Errorf("rollout %s has gone on: %w", r.ID, pipeline.ErrOvertaken)
	}
	return err
}

// awaited refuses the word of a user's worker that the rollout does not wait for.
func (s *Service) awaited(ctx context.Context, fact events.Event) (events.Rollout, error) {
	r, err := s.log.Rollout(ctx, fact.Run, fact.Entity)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return r, refuseRollout(fact)
	case err != nil:
		return r, err
	case r.Over():
		return r, refuse("rollout %s has its outcome", r.ID)
	}
	p, err := decode(fact.Type, fact.Data)
	if err != nil {
		return r, err
	}
	said, observed := p.(*events.RolloutObserved)
	switch {
	case !observed && r.Finished == nil:
		return r, refuse("rollout %s is not finished: wait for %s", r.ID, events.RolloutFinishedType)
	case !observed:
		return r, nil
	case events.External(r.ID):
		return r, refuse("rollout %s ran elsewhere", r.ID)
	case r.Finished != nil:
		return r, refuse("rollout %s is finished: %s", r.ID, r.Finished.StopReason)
	case !r.AwaitsEnvironment() || said.Turn != len(r.Turns)-1:
		return r, refuse("turn %d: rollout %s waits for the answer to turn %d, or for its model", said.Turn, r.ID,
			len(r.Turns)-1)
	}
	if err := s.admitHeld(ctx, &r, said); err != nil {
		return r, err
	}
	return r, admitAnswers(&r, said)
}

// admitAnswers refuses answers that are not those to the last turn's calls, in their order: chat
// templates take no others.
func admitAnswers(r *events.Rollout, said *events.RolloutObserved) error {
	if said.Done || said.Failed != "" || said.Next != "" {
		return nil
	}
	var asked, answered []string
	if last := r.LastTurn(); last != nil {
		for _, c := range last.ToolCalls {
			asked = append(asked, c.ID)
		}
	}
	for i, m := range said.Messages {
		switch {
		case m.Role == "tool":
			answered = append(answered, m.ToolCallID)
		case i != len(said.Messages)-1:
			return refuse("messages: a user's is one, the last: some chat templates take no other order")
		}
	}
	if !slices.Equal(asked, answered) {
		return refuse("messages: turn %d asked for the calls %.200q, but %.200q are answered", said.Turn, asked,
			answered)
	}
	if len(said.Messages) == 0 && said.Turn >= 0 {
		return refuse("messages: an answer that does not end the episode says something")
	}
	return nil
}
