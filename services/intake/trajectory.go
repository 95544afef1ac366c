package intake

import (
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// Bounds of what outsiders put into the store, in bytes.
const (
	maxTrajectory = 64 << 20
	maxWorkspace  = 256 << 20
)

// decodersAtOnce bounds the trajectory files in memory.
const decodersAtOnce = 4

// admitFinished checks an episode's trajectory file against what the fact says of it.
func (s *Service) admitFinished(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	p *events.RolloutFinished) error {
	want := fmt.Sprintf("runs/%s/trajectories/%s-", r.Run, r.ID)
	if rest, ok := strings.CutPrefix(p.Trajectory.Key, want); !ok || len(p.Trajectory.SHA256) != 64 ||
		rest != p.Trajectory.SHA256[:16]+".arrow" {
		return refuse("trajectory %.200q: put the file at %s<first 16 digits of its sha256>.arrow", p.Trajectory.Key,
			want)
	}
	if !runfile.ValidToken(p.StopReason) {
		return refuse("stop_reason %.80q: use letters, digits, - and _, at most 64", p.StopReason)
	}
	if p.Task != r.Started.Task {
		return refuse("task %.100q: rollout %s was started on task %q", p.Task, r.ID, r.Started.Task)
	}
	t, err := s.trajectory(ctx, r.Run, p.Trajectory)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		field    string
		has, own any // the file's, the rollout's
	}{
		{"run_id", t.Run, r.Run},
		{"group_id", t.Group, r.Started.Group},
		{"rollout_id", t.Rollout, r.ID},
		{"task", t.Task, r.Started.Task},
		{"dispatch_version", t.DispatchVersion, r.Started.PolicyVersion},
	} {
		if f.has != f.own {
			return refuse("trajectory: the file's %s is not the rollout's, %v", f.field, f.own)
		}
	}
	if err := sameColumns(t, r); err != nil {
		return err
	}
	if err := sameImages(t, r); err != nil {
		return err
	}
	if err := sameMasks(cfg, t, r, p); err != nil {
		return err
	}
	if err := admitSamples(t); err != nil {
		return err
	}
	for _, m := range t.Messages {
		if !events.KnownFinish(m.FinishReason) {
			return refuse("trajectory: finish_reason %.80q of message %d: must be one of %v, or empty", m.FinishReason,
				m.Index, events.Finishes)
		}
		if m.Workspace != "" && !topology.IsBlob(m.Workspace) {
			return refuse("trajectory: a workspace of its messages is no key of a blob")
		}
	}
	if err := sameFigures(cfg, t, p); err != nil {
		return err
	}
	if len(r.Turns) > 0 && p.Turns != len(r.Turns) {
		return refuse("turns %d: the log has %d turns of rollout %s", p.Turns, len(r.Turns), r.ID)
	}
	if err := s.admitVersion(ctx, cfg, "max_version", p.MaxVersion); err != nil {
		return err
	}
	if err := s.admitVerify(ctx, r, p); err != nil {
		return err
	}
	if len(r.Answers) > 0 {
		return nil // a tool runner made the workspace
	}
	return s.admitBlob(ctx, harness(r.Run), "workspace", p.Workspace, maxWorkspace)
}

func (s *Service) trajectory(ctx context.Context, run string, ref storage.Ref) (*storage.Trajectory, error) {
	s.decoders <- struct{}{}
	defer func() { <-s.decoders }()
	data, err := s.object(ctx, harness(run), "trajectory", ref, maxTrajectory)
	if err != nil {
		return nil, err
	}
	t, err := storage.DecodeTrajectory(data)
	if err != nil {
		s.logger.WarnContext(ctx, "trajectory file refused", "run", run, "key", ref.Key, "error", err)
		return nil, refuse("trajectory %s: it is no trajectory file; the operator finds what is wrong with it in the intake's log", ref.Key)
	}
	return t, nil
}

// sameFigures compares what the fact says of the trajectory with the file.
func sameFigures(cfg runfile.RunConfig, t *storage.Trajectory, p *events.RolloutFinished) error {
	is := events.NewRolloutFinished(t)
	if p.UnknownVersions == 0 && !cfg.RequiresVersions() {
		is.UnknownVersions = 0 // a harness need not state it where nothing follows from it
	}
	for _, f := range []struct {
		field       string
		stated, has any
	}{
		{"stop_reason", p.StopReason, is.StopReason},
		{"text_only", p.TextOnly, is.TextOnly},
		{"samples", p.Samples, is.Samples},
		{"tokens", p.Tokens, is.Tokens},
		{"sampled", p.Sampled, is.Sampled},
		{"turns", p.Turns, is.Turns},
		{"constrained", p.Constrained, is.Constrained},
		{"min_version", p.MinVersion, is.MinVersion},
		{"max_version", p.MaxVersion, is.MaxVersion},
		{"unknown_versions", p.UnknownVersions, is.UnknownVersions},
	} {
		if f.stated != f.has {
			return refuse("%s %.100s: the trajectory file has another value", f.field, fmt.Sprint(f.stated))
		}
	}
	return nil
}
