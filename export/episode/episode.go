// Package episode reads what log and store have about one rollout: its chains, its trajectory
// and its place in batches.
package episode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// Episode is what the log and the store have about one rollout.
type Episode struct {
	Rollout    events.Rollout
	Trajectory *storage.Trajectory // made of the log where there is no file
	Recorded   bool                // there is a file
	Spelled    bool                // the built-in policy sampled it, whose tokens have texts
	Began      time.Time
	Last       time.Time // of the outcome, or of the last link
	ScoredAt   time.Time // zero without a reward
	Retried    []events.RolloutRetried
	Remarks    []string // invalidations, annotations, feedback and marks, in the words of their authors
	Marked     bool     // by a person
	Member     *events.Member
	Dropped    []events.GroupDropped
	Batches    []InBatch
}

// InBatch is a place in a batch.
type InBatch struct {
	Feed   string
	Step   int64
	Masked string // why it is not trained on; "": it is
}

// ErrUnknown means that a run has no such rollout.
var ErrUnknown = errors.New("no such rollout")

// ErrTooLarge means that a rollout's trajectory is larger than the caller can take.
var ErrTooLarge = errors.New("the trajectory is too large")

// Bounds limit what is read of a rollout; the zero value limits nothing.
type Bounds struct {
	Bytes  int64  // of the trajectory file
	Seq    uint64 // the last one of the run's log: the rollout as it was then
	Chains bool   // the trajectory is not read, nor made
	// Known spares the reading of what the caller has folded already; nil is nothing.
	Known *Knowledge
}

// Knowledge is what somebody knows of a run and of the batches that hold a rollout's group.
type Knowledge struct {
	Config  runfile.RunConfig
	Feeds   []string // that have such a batch
	Batches []InBatch
}

// KnownOf is what books that are folded to their end know.
func KnownOf(books *books.Run, rollout string) *Knowledge {
	k := &Knowledge{Config: books.Config}
	for _, feed := range books.Feeds() {
		step, member, masked := books.InBatch(feed, rollout)
		if step == 0 {
			continue
		}
		k.Feeds = append(k.Feeds, feed)
		if member || masked != "" {
			k.Batches = append(k.Batches, InBatch{feed, step, masked})
		}
	}
	return k
}

// Read reads a rollout's chains and its trajectory file.
func Read(ctx context.Context, log eventlog.Reader, run, rollout string, most Bounds) (*Episode, error) {
	if !runfile.ValidToken(rollout) {
		return nil, ErrUnknown
	}
	known := most.Known
	if known == nil {
		cfg, err := log.RecordedConfig(ctx, run)
		if err != nil {
			return nil, err
		}
		known = &Knowledge{Config: cfg}
	}
	links, err := chainsOf(ctx, log, run, rollout, known.Config.Feeds, most.Known == nil)
	if err != nil {
		return nil, err
	}
	if most.Seq > 0 {
		for kind, chain := range links {
			links[kind] = slices.DeleteFunc(chain, func(e events.Event) bool { return e.Seq > most.Seq })
		}
	}
	if len(links[RolloutKind]) == 0 {
		return nil, ErrUnknown
	}
	s := &Episode{}
	if s.Rollout, err = events.FoldRollout(links[RolloutKind]); err != nil {
		return nil, err
	}
	if err := s.readChains(links); err != nil {
		return nil, err
	}
	for _, feed := range known.Feeds { // where a batch holds the group, its drop by the same feed is void
		s.Dropped = slices.DeleteFunc(s.Dropped, func(d events.GroupDropped) bool { return d.Feed == feed })
	}
	s.Batches = append(s.Batches, known.Batches...)
	s.Spelled = known.Config.Endpoint == runfile.BuiltinEndpoint
	s.Recorded = s.Rollout.Finished != nil
	if most.Chains {
		return s, nil
	}
	if f := s.Rollout.Finished; f != nil {
		if most.Bytes > 0 && f.Trajectory.Size > most.Bytes {
			return nil, fmt.Errorf("%d bytes: %w", f.Trajectory.Size, ErrTooLarge)
		}
		data, err := storage.GetBlob(ctx, log.Store(), f.Trajectory)
		if err == nil {
			s.Trajectory, err = storage.DecodeTrajectory(data)
		}
		return s, err
	}
	s.Trajectory = s.unfinished(known.Config)
	return s, nil
}

// readChains notes what is not part of the folded rollout.
func (s *Episode) readChains(chains map[string][]events.Event) error {
	for _, e := range slices.Concat(chains[RolloutKind], chains[FeedbackKind], chains[MarkKind],
		chains[GroupKind], chains[BatchKind]) {
		var err error
		switch e.Type {
		case events.RolloutRetriedType:
			var r events.RolloutRetried
			r, err = events.Data[events.RolloutRetried](e)
			s.Retried = append(s.Retried, r)
		case events.RolloutInvalidatedType:
			var v events.RolloutInvalidated
			v, err = events.Data[events.RolloutInvalidated](e)
			s.Remarks = append(s.Remarks, "invalidated: "+v.Reason)
		case events.RolloutAnnotatedType:
			var a events.RolloutAnnotated
			a, err = events.Data[events.RolloutAnnotated](e)
			s.Remarks = append(s.Remarks, annotation(a))
		case events.RolloutHintedType:
			var h events.RolloutHinted
			h, err = events.Data[events.RolloutHinted](e)
			s.Remarks = append(s.Remarks, hints(h)...)
		case events.RolloutForkedType:
			var f events.RolloutForked
			f, err = events.Data[events.RolloutForked](e)
			s.Remarks = append(s.Remarks, fmt.Sprintf("forked behind turn %d, %d times", f.Turn, f.Count))
		case events.FeedbackRecordedType:
			var f events.FeedbackRecorded
			f, err = events.Data[events.FeedbackRecorded](e)
			s.Remarks = append(s.Remarks, feedback(f))
		case events.MarkRecordedType:
			var m events.MarkRecorded
			m, err = events.Data[events.MarkRecorded](e)
			s.Marked, s.Remarks = m.Marked, append(s.Remarks, markText(m))
		case events.GroupDroppedType:
			var d events.GroupDropped
			d, err = events.Data[events.GroupDropped](e)
			s.Dropped = append(s.Dropped, d)
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
func (s *Episode) readTime(e events.Event) {
	if e.Type.Kind() != RolloutKind {
		return
	}
	if s.Began.IsZero() {
		s.Began = e.Time
	}
	s.Last = e.Time
	if e.Type == events.RolloutScoredType {
		s.ScoredAt = e.Time
	}
}

func (s *Episode) readMember(e events.Event) error {
	completed, err := events.Data[events.GroupCompleted](e)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(completed.Members, func(m events.Member) bool { return m.Rollout == s.Rollout.ID })
	if at >= 0 {
		s.Member = &completed.Members[at]
	}
	return nil
}

func (s *Episode) readBatch(e events.Event) error {
	ready, err := events.Data[events.BatchReady](e)
	if err != nil {
		return err
	}
	// Where a batch holds the group, its drop by the same feed is void.
	s.Dropped = slices.DeleteFunc(s.Dropped, func(d events.GroupDropped) bool { return d.Feed == e.Entity })
	if masked := ready.Masked[s.Rollout.ID]; masked != "" || slices.Contains(ready.Rollouts, s.Rollout.ID) {
		s.Batches = append(s.Batches, InBatch{e.Entity, ready.Step, masked})
	}
	return nil
}

// unfinished lays out what the log has of a rollout that has no trajectory file.
func (s *Episode) unfinished(cfg runfile.RunConfig) *storage.Trajectory {
	r := &s.Rollout
	t := &storage.Trajectory{Run: r.Run, Group: r.Started.Group, Rollout: r.ID, Task: r.Started.Task,
		DispatchVersion: r.Started.PolicyVersion}
	if task, err := cfg.Task(r.Started.Task); err == nil {
		t.Messages = append(t.Messages, storage.Message{Role: "user", Content: task.Instruction, PolicyVersion: -1})
	}
	segment := int32(-1)
	for i, turn := range r.Turns {
		if turn.NewSegment {
			segment++
		}
		m := storage.Message{
			Turn: int32(turn.Turn), Segment: max(segment, 0), Role: "assistant", Content: turn.Content,
			TokenIDs: turn.TokenIDs, Logprobs: turn.Logprobs,
			LossMask:      slices.Repeat([]bool{turn.MaskedBy() == ""}, len(turn.TokenIDs)),
			PolicyVersion: turn.PolicyVersion, Versions: turn.RowVersions(), FinishReason: turn.FinishReason,
			StartedAt: turn.StartedAt, Duration: time.Duration(turn.LatencyMS * float64(time.Millisecond)),
			ToolCalls: callsText(turn.ToolCalls),
		}
		if turn.Reasoning != nil {
			m.Reasoning = turn.Reasoning.Text
		}
		if i < r.Copied {
			m.PolicyVersion = -1
			events.PromptTokens(&m, turn.TokenIDs)
		}
		t.Messages = append(t.Messages, m)
		for _, result := range r.Tools.Answer(turn.Turn).Results {
			t.Messages = append(t.Messages, storage.Message{Turn: m.Turn, Segment: m.Segment, Role: "tool",
				Name: result.Name, ToolCallID: result.CallID, Content: result.Content,
				PolicyVersion: -1, StartedAt: result.StartedAt,
				Duration: time.Duration(result.DurationMS * float64(time.Millisecond))})
		}
	}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	return t
}

func callsText(calls []events.ToolCall) string {
	if len(calls) == 0 {
		return ""
	}
	text, _ := json.Marshal(calls) // texts are always JSON
	return string(text)
}

func annotation(a events.RolloutAnnotated) string {
	text := "annotation"
	if a.Turn != nil {
		text += fmt.Sprintf(" of turn %d", *a.Turn)
	}
	if a.Reward != nil {
		text += fmt.Sprintf(", reward %g", *a.Reward)
	}
	return text + ": " + a.Text
}

// hints are the remarks of a hinter, one for each span.
func hints(h events.RolloutHinted) (remarks []string) {
	for _, hint := range h.Hints {
		remarks = append(remarks, fmt.Sprintf("hint of %s about tokens %d to %d of sample %d: %s", h.By, hint.Start,
			hint.Start+hint.Length-1, hint.Sample, hint.Text))
	}
	if len(remarks) == 0 {
		remarks = []string{fmt.Sprintf("%s found nothing to give a hint about", h.By)}
	}
	return remarks
}

func markText(m events.MarkRecorded) string {
	text := "no longer marked"
	if m.Marked {
		text = "marked"
	}
	if m.Text != "" {
		text += ": " + m.Text
	}
	return text
}

func feedback(f events.FeedbackRecorded) string {
	text := "feedback: " + f.Signal
	if reward, ok := f.Score(); ok {
		text += fmt.Sprintf(", reward %g", reward)
	}
	if f.Repository != nil {
		text += ", with the user's final files"
	}
	if f.Text != "" {
		text += ": " + f.Text
	}
	return text
}
