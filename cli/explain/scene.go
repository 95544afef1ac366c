package explain

import (
	"context"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// scene is what the facts up to a batch say of it.
type scene struct {
	books.Batch
	run     *books.Run
	queries map[string]events.QuerySubmitted
	chains  map[string][]events.Event // of the rollouts in the batch's groups
	weights map[int64]storage.Ref
}

// readScene folds the run's log, or its archive, and keeps what concerns the batch.
func readScene(ctx context.Context, p *plane.Plane, run, feed string, step int64) (*scene, error) {
	s := &scene{queries: map[string]events.QuerySubmitted{}, chains: map[string][]events.Event{},
		weights: map[int64]storage.Ref{}}
	var err error
	if s.run, err = books.Read(ctx, p.Log.Reader, run, s.keep); err != nil {
		return nil, err
	}
	for _, b := range s.run.Batches(feed) {
		if b.Step == step {
			s.Batch = b
		}
	}
	if s.Seq == 0 {
		return nil, s.missing(ctx, p, run, feed, step)
	}
	return s, s.readChains(ctx, p, run)
}

// missing says that there is no such batch, and why there may be none.
func (s *scene) missing(ctx context.Context, p *plane.Plane, run, feed string, step int64) error {
	err := fmt.Errorf("feed %s of run %s has no batch %d: it has %d", feed, run, step, len(s.run.Batches(feed)))
	if state, reason, unknown := p.Log.RunState(ctx, run); unknown == nil && reason != "" {
		err = fmt.Errorf("%w; the run is %s: %s", err, state, app.Clean(reason))
	}
	return err
}

// readChains reads what happened to the rollouts of the batch's groups until it was made. It reads
// the log again rather than to hold all rollouts of a run.
func (s *scene) readChains(ctx context.Context, p *plane.Plane, run string) error {
	for e, err := range p.Log.All(ctx, run, 1) {
		if err != nil || e.Seq >= s.Seq {
			return err
		}
		if e.Type.Kind() == events.RolloutStartedType.Kind() && slices.Contains(s.Groups, events.GroupOf(e.Entity)) {
			s.chains[e.Entity] = append(s.chains[e.Entity], e)
		}
	}
	return nil
}

func (s *scene) keep(e events.Event) error {
	switch e.Type {
	case events.QuerySubmittedType:
		query, err := events.Data[events.QuerySubmitted](e)
		s.queries[e.Entity] = query
		return err
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		s.weights[published.Version] = published.Manifest
		return err
	}
	return nil
}

// publishedBefore adds the versions of a policy that other runs trained.
func (s *scene) publishedBefore(ctx context.Context, p *plane.Plane, policy string) error {
	for e, err := range p.Log.All(ctx, events.Catalogue, 1) {
		if err != nil {
			return err
		}
		if e.Type != events.WeightsPublishedType || e.Entity != policy {
			continue
		}
		published, err := events.Data[events.WeightsPublished](e)
		if err != nil {
			return err
		}
		s.weights[published.Version] = published.Manifest
	}
	return nil
}

func (s *scene) story(version int64) weightsStory {
	w := weightsStory{Version: version}
	if manifest, ok := s.weights[version]; ok {
		w.Manifest = &manifest
	}
	return w
}

// task finds what a group was about; ok is false for a task that an outsider brought.
func (s *scene) task(cfg runfile.RunConfig, name string) (task runfile.TaskSpec, ok bool) {
	if query, asked := s.queries[name]; asked {
		task, err := cfg.Task(query.Task)
		return query.TaskSpec(name, task), err == nil
	}
	task, err := cfg.Task(name)
	return task, err == nil
}
