package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
)

// showOptions say how much of a rollout is shown.
type showOptions struct {
	turn     int // -1: all of them
	full     bool
	logprobs bool
}

func newTrajectoriesShow(g *global) *cobra.Command {
	var o showOptions
	var color string
	var width int
	cmd := &cobra.Command{
		Use: "show RUN ROLLOUT", Short: "Show one rollout, turn by turn", Args: cobra.ExactArgs(2),
		Long: `Show prints what a rollout was made of and what became of it, then its turns with their tool calls: edits as differences, calls
of one turn side by side where the terminal is wide enough, long answers without their middle. Control characters of what
the model or its tools wrote are shown, not obeyed.

A rollout that failed or goes on has no trajectory file; what the log holds of it is shown.`,
		Example: `  rondo trajectories show demo-1 g000003-1
  rondo trajectories show demo-1 g000003-1 --turn 4 --full
  rondo trajectories show demo-1 g000003-1 --logprobs --color always | less -R`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newScreen(cmd.OutOrStdout(), color, width)
			if err != nil {
				return err
			}
			p, err := connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.close()
			shown, err := gather(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(cmd.OutOrStdout(), shown.trajectory)
			}
			return s.rollout(shown, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.turn, "turn", -1, "show this turn alone, counted from 0")
	flags.BoolVar(&o.full, "full", false, "leave out nothing of long arguments and answers")
	flags.BoolVar(&o.logprobs, "logprobs", false, "show the tokens of each turn with their probabilities")
	flags.StringVar(&color, "color", colorAuto, "auto (on a terminal, unless NO_COLOR is set), always or never")
	flags.IntVar(&width, "width", -1, "columns to wrap at; 0 does not wrap (default: the terminal's, 0 in a pipe)")
	return cmd
}

// shownRollout is what the log and the store have about one rollout.
type shownRollout struct {
	rollout    events.Rollout
	trajectory *storage.Trajectory // made of the log where there is no file
	recorded   bool                // there is a file
	spelled    bool                // the built-in policy sampled it, whose tokens have texts
	began      time.Time
	last       time.Time // of the outcome, or of the last link
	retried    []events.RolloutRetried
	remarks    []string // invalidations, annotations and feedback
	member     *events.Member
	dropped    []events.GroupDropped
	batches    []inBatch
}

// inBatch is a place in a batch.
type inBatch struct {
	feed   string
	step   int64
	masked string // why it is not trained on; "": it is
}

// gather reads a rollout's chains and its trajectory file.
func gather(ctx context.Context, p *plane, run, rollout string) (*shownRollout, error) {
	if err := p.mustRun(ctx, run); err != nil {
		return nil, err
	}
	unknown := fmt.Errorf("run %s has no rollout %s; `rondo trajectories list %s` lists those that have a trajectory", run, line(rollout, 80), run)
	if !events.ValidToken(rollout) {
		return nil, unknown
	}
	links, err := chainsOf(ctx, p.log, run, rollout)
	if err != nil {
		return nil, err
	}
	if len(links[rolloutKind]) == 0 {
		return nil, unknown
	}
	s := &shownRollout{}
	if s.rollout, err = events.FoldRollout(links[rolloutKind]); err != nil {
		return nil, err
	}
	if err := s.readChains(links); err != nil {
		return nil, err
	}
	cfg, err := p.log.RecordedConfig(ctx, run)
	if err != nil {
		return nil, err
	}
	s.spelled = cfg.Endpoint == events.BuiltinEndpoint
	if f := s.rollout.Finished; f != nil {
		s.recorded = true
		data, err := storage.GetBlob(ctx, p.store, f.Trajectory)
		if err == nil {
			s.trajectory, err = storage.DecodeTrajectory(data)
		}
		return s, err
	}
	s.trajectory = s.unfinished(cfg)
	return s, nil
}

// The kinds of entity that tell of a rollout.
var (
	rolloutKind  = events.RolloutStartedType.Kind()
	groupKind    = events.GroupOpenedType.Kind()
	feedbackKind = events.FeedbackRecordedType.Kind()
	batchKind    = events.BatchReadyType.Kind()
)

// chainsOf reads the chains of a rollout, its group and its feedback, and the batches that hold its group, by kind, from the run's
// stream or, when that is gone, from its archive.
func chainsOf(ctx context.Context, log *eventlog.Log, run, rollout string) (map[string][]events.Event, error) {
	group := events.GroupOf(rollout)
	entities := map[string]string{rolloutKind: rollout, groupKind: group, feedbackKind: rollout}
	chains := map[string][]events.Event{}
	if _, err := log.Incarnation(ctx, run); err != nil {
		if !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
		for e, err := range log.All(ctx, run, 1) {
			if err != nil {
				return nil, err
			}
			if kind := e.Type.Kind(); entities[kind] == e.Entity && e.Entity != "" || holds(e, group) {
				chains[kind] = append(chains[kind], e)
			}
		}
		return chains, nil
	}
	for kind, entity := range entities {
		last, err := log.Last(ctx, run, kind, entity)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if chains[kind], err = log.History(ctx, run, last.Seq); err != nil {
			return nil, err
		}
	}
	var err error
	chains[batchKind], err = batchesOf(ctx, log, run, chains[groupKind])
	return chains, err
}

// batchesOf reads the batches that hold a group, of which the links are given.
func batchesOf(ctx context.Context, log *eventlog.Log, run string, links []events.Event) (found []events.Event, err error) {
	at := slices.IndexFunc(links, func(e events.Event) bool { return e.Type == events.GroupCompletedType })
	if at < 0 {
		return nil, nil
	}
	completed := links[at]
	last, err := log.LastOfType(ctx, run, events.BatchReadyType, "*")
	if errors.Is(err, eventlog.ErrNotFound) || err == nil && last.Seq < completed.Seq {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	errEnd := errors.New("read to the end")
	filter := events.Event{Run: run, Type: events.BatchReadyType, Entity: "*"}.Subject()
	err = log.Follow(ctx, run, completed.Seq, filter, func(e events.Event) error {
		if holds(e, completed.Entity) {
			found = append(found, e)
		}
		if e.Seq >= last.Seq {
			return errEnd
		}
		return nil
	})
	if !errors.Is(err, errEnd) {
		return nil, err
	}
	return found, nil
}

// holds reports whether an event is a batch with a group. What cannot be read is told by whoever reads it.
func holds(e events.Event, group string) bool {
	if e.Type != events.BatchReadyType {
		return false
	}
	ready, err := events.Data[events.BatchReady](e)
	return err != nil || slices.Contains(ready.Groups, group)
}

// readChains notes what is not part of the folded rollout.
func (s *shownRollout) readChains(chains map[string][]events.Event) error {
	for _, e := range slices.Concat(chains[rolloutKind], chains[feedbackKind], chains[groupKind], chains[batchKind]) {
		var err error
		switch e.Type {
		case events.RolloutRetriedType:
			var r events.RolloutRetried
			r, err = events.Data[events.RolloutRetried](e)
			s.retried = append(s.retried, r)
		case events.RolloutInvalidatedType:
			var v events.RolloutInvalidated
			v, err = events.Data[events.RolloutInvalidated](e)
			s.remarks = append(s.remarks, "invalidated: "+line(v.Reason, 300))
		case events.RolloutAnnotatedType:
			var a events.RolloutAnnotated
			a, err = events.Data[events.RolloutAnnotated](e)
			s.remarks = append(s.remarks, annotation(a))
		case events.RolloutForkedType:
			var f events.RolloutForked
			f, err = events.Data[events.RolloutForked](e)
			s.remarks = append(s.remarks, fmt.Sprintf("forked behind turn %d, %d times", f.Turn, f.Count))
		case events.FeedbackRecordedType:
			var f events.FeedbackRecorded
			f, err = events.Data[events.FeedbackRecorded](e)
			s.remarks = append(s.remarks, feedback(f))
		case events.GroupDroppedType:
			var d events.GroupDropped
			d, err = events.Data[events.GroupDropped](e)
			s.dropped = append(s.dropped, d)
		case events.GroupCompletedType:
			err = s.readMember(e)
		case events.BatchReadyType:
			err = s.readBatch(e)
		default:
			s.readTime(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTime takes the rollout's bounds from the links of its episode.
func (s *shownRollout) readTime(e events.Event) {
	if e.Type.Kind() != rolloutKind {
		return
	}
	if s.began.IsZero() {
		s.began = e.Time
	}
	s.last = e.Time
}

func (s *shownRollout) readMember(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(completed.Members, func(m events.Member) bool { return m.Rollout == s.rollout.ID })
	if at >= 0 {
		s.member = &completed.Members[at]
	}
	return nil
}

func (s *shownRollout) readBatch(e events.Event) error {
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	// Where a batch holds the group, its drop by the same feed is void.
	s.dropped = slices.DeleteFunc(s.dropped, func(d events.GroupDropped) bool { return d.Feed == e.Entity })
	if masked := ready.Masked[s.rollout.ID]; masked != "" || slices.Contains(ready.Rollouts, s.rollout.ID) {
		s.batches = append(s.batches, inBatch{e.Entity, ready.Step, masked})
	}
	return nil
}

// unfinished lays out what the log has of a rollout that has no trajectory file.
func (s *shownRollout) unfinished(cfg events.RunConfig) *storage.Trajectory {
	r := &s.rollout
	t := &storage.Trajectory{Run: r.Run, Group: r.Started.Group, Rollout: r.ID, Task: r.Started.Task, DispatchVersion: r.Started.PolicyVersion}
	if task, err := cfg.Task(r.Started.Task); err == nil {
		t.Messages = append(t.Messages, storage.Message{Role: "user", Content: task.Instruction, PolicyVersion: -1})
	}
	segment := int32(-1)
	for i, turn := range r.Turns {
		if turn.NewSegment {
			segment++
		}
		m := storage.Message{
			Turn: int32(turn.Turn), Segment: max(segment, 0), Role: "assistant", Content: turn.Content, TokenIDs: turn.TokenIDs, Logprobs: turn.Logprobs,
			LossMask: slices.Repeat([]bool{true}, len(turn.TokenIDs)), PolicyVersion: turn.PolicyVersion, FinishReason: turn.FinishReason,
			StartedAt: turn.StartedAt, Duration: time.Duration(turn.LatencyMS * float64(time.Millisecond)), ToolCalls: callsText(turn.ToolCalls),
		}
		if i < r.Copied {
			m.PolicyVersion = -1
			events.PromptTokens(&m, turn.TokenIDs)
		}
		t.Messages = append(t.Messages, m)
		for _, result := range r.Tools[turn.Turn].Results {
			t.Messages = append(t.Messages, storage.Message{Turn: m.Turn, Segment: m.Segment, Role: "tool", Name: result.Name, ToolCallID: result.CallID, Content: result.Content,
				PolicyVersion: -1, StartedAt: result.StartedAt, Duration: time.Duration(result.DurationMS * float64(time.Millisecond))})
		}
	}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	return t
}
