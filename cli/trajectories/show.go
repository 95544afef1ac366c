package trajectories

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// showOptions say how much of a rollout is shown.
type showOptions struct {
	turn     int // -1: all of them
	full     bool
	logprobs bool
}

func newTrajectoriesShow(g *app.Global) *cobra.Command {
	var o showOptions
	var color string
	var width int
	cmd := &cobra.Command{
		Use: "show RUN ROLLOUT", Short: "Show one rollout, turn by turn", Args: cobra.ExactArgs(2),
		Long: `Show prints a rollout's task, settings and outcome, then its turns with their tool calls. It shows edits as differences, the calls
of one turn side by side if the terminal is wide enough, and long answers without their middle. It prints control characters
from the model or its tools visibly, so that they do not control the terminal.

A rollout that failed or is not finished has no trajectory file. Show then prints what the log has of it.`,
		Example: `  rondo trajectories show demo-1 g000003-1
  rondo trajectories show demo-1 g000003-1 --turn 4 --full
  rondo trajectories show demo-1 g000003-1 --logprobs --color always | less -R`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := app.NewScreen(cmd.OutOrStdout(), color, width)
			if err != nil {
				return err
			}
			p, err := plane.Connect(cmd.Context(), g)
			if err != nil {
				return err
			}
			defer p.Close()
			shown, err := gather(cmd.Context(), p, args[0], args[1])
			if err != nil {
				return err
			}
			if g.JSON {
				return app.PrintJSON(cmd.OutOrStdout(), shown.trajectory)
			}
			return (&view{s}).rollout(shown, o)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.turn, "turn", -1, "show this turn alone, counted from 0")
	flags.BoolVar(&o.full, "full", false, "leave out nothing of long arguments and answers")
	flags.BoolVar(&o.logprobs, "logprobs", false, "show the tokens of each turn with their probabilities")
	flags.StringVar(&color, "color", app.ColorAuto, "auto (on a terminal, unless NO_COLOR is set), always or never")
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
func gather(ctx context.Context, p *plane.Plane, run, rollout string) (*shownRollout, error) {
	if err := p.MustRun(ctx, run); err != nil {
		return nil, err
	}
	unknown := fmt.Errorf("run %s has no rollout %s; `rondo trajectories list %s` lists those that have a trajectory", run, app.Line(rollout, 80), run)
	if !runfile.ValidToken(rollout) {
		return nil, unknown
	}
	links, err := plane.ChainsOf(ctx, p.Log, run, rollout)
	if err != nil {
		return nil, err
	}
	if len(links[plane.RolloutKind]) == 0 {
		return nil, unknown
	}
	s := &shownRollout{}
	if s.rollout, err = events.FoldRollout(links[plane.RolloutKind]); err != nil {
		return nil, err
	}
	if err := s.readChains(links); err != nil {
		return nil, err
	}
	cfg, err := p.Log.RecordedConfig(ctx, run)
	if err != nil {
		return nil, err
	}
	s.spelled = cfg.Endpoint == runfile.BuiltinEndpoint
	if f := s.rollout.Finished; f != nil {
		s.recorded = true
		data, err := storage.GetBlob(ctx, p.Store, f.Trajectory)
		if err == nil {
			s.trajectory, err = storage.DecodeTrajectory(data)
		}
		return s, err
	}
	s.trajectory = s.unfinished(cfg)
	return s, nil
}

// readChains notes what is not part of the folded rollout.
func (s *shownRollout) readChains(chains map[string][]events.Event) error {
	for _, e := range slices.Concat(chains[plane.RolloutKind], chains[plane.FeedbackKind], chains[plane.GroupKind], chains[plane.BatchKind]) {
		var err error
		switch e.Type {
		case events.RolloutRetriedType:
			var r events.RolloutRetried
			r, err = events.Data[events.RolloutRetried](e)
			s.retried = append(s.retried, r)
		case events.RolloutInvalidatedType:
			var v events.RolloutInvalidated
			v, err = events.Data[events.RolloutInvalidated](e)
			s.remarks = append(s.remarks, "invalidated: "+app.Line(v.Reason, 300))
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
	if e.Type.Kind() != plane.RolloutKind {
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
func (s *shownRollout) unfinished(cfg runfile.RunConfig) *storage.Trajectory {
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
			LossMask: slices.Repeat([]bool{true}, len(turn.TokenIDs)), PolicyVersion: turn.PolicyVersion, Versions: turn.RowVersions(), FinishReason: turn.FinishReason,
			StartedAt: turn.StartedAt, Duration: time.Duration(turn.LatencyMS * float64(time.Millisecond)), ToolCalls: callsText(turn.ToolCalls),
		}
		if turn.Reasoning != nil {
			m.Reasoning = turn.Reasoning.Text
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
