package explain

import (
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// memberStory is one rollout of a batch's group.
type memberStory struct {
	Rollout string `json:"rollout"`
	Trained bool   `json:"trained"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"` // why it is not trained on
	// Compared: its group compares it. One that failed or was invalidated before has no reward
	// there, and no advantage.
	Compared  bool    `json:"compared"`
	Reward    float64 `json:"reward"`
	Shaped    float64 `json:"shaped"`
	Advantage float64 `json:"advantage"`
	// BatchAdvantage is what the batch made of it, where that is something else: normalised over
	// the batch, or 1 in an export.
	BatchAdvantage *float64 `json:"batch_advantage,omitempty"`
	// Invalidated may have happened after the batch was trained on.
	Invalidated   bool                  `json:"invalidated,omitempty"`
	PolicyVersion int64                 `json:"policy_version"` // at dispatch
	StopReason    string                `json:"stop_reason,omitempty"`
	Tokens        int                   `json:"tokens"`
	Sampled       int                   `json:"sampled"`
	trainable     int                   // of the sampled tokens
	Trajectory    *storage.Ref          `json:"trajectory,omitempty"`
	Workspace     *storage.Ref          `json:"workspace,omitempty"`
	Verdict       *verdictStory         `json:"verdict,omitempty"`
	Failure       *events.RolloutFailed `json:"failure,omitempty"`
	Turns         []turnStory           `json:"turns"` // none for rollouts that outsiders recorded
}

// verdictStory is what the verifier said.
type verdictStory struct {
	Reward     float64            `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	ExitCode   int                `json:"exit_code"`
	TaskDigest string             `json:"task_digest"`
	Log        *storage.Ref       `json:"log,omitempty"`
	DurationMS float64            `json:"duration_ms"`
	Flags      []string           `json:"flags,omitempty"`
	Forfeit    *events.Forfeit    `json:"forfeit,omitempty"`
	Isolation  string             `json:"isolation,omitempty"`
	Filesystem string             `json:"filesystem,omitempty"`
	User       string             `json:"user,omitempty"`
	Build      string             `json:"build,omitempty"`
	Verifier   string             `json:"verifier,omitempty"`
}

type turnStory struct {
	Turn          int   `json:"turn"`
	PolicyVersion int64 `json:"policy_version"`
	// VersionSpans are there where tokens of the turn are of several versions.
	VersionSpans []events.VersionSpan `json:"version_spans,omitempty"`
	Manifest     string               `json:"weights,omitempty"` // digest of the version's manifest
	Sampled      int                  `json:"sampled"`
	FinishReason string               `json:"finish_reason"`
	FinishWord   string               `json:"finish_word,omitempty"` // the server's own, where that says more
	Lacks        []string             `json:"lacks,omitempty"`
	Summary      bool                 `json:"summary,omitempty"` // of what was said before, as the context was full
	NewSample    bool                 `json:"new_sample,omitempty"`
	SegmentCause string               `json:"segment_cause,omitempty"` // why the sample begins
	Runner       string               `json:"runner,omitempty"`
	Isolation    string               `json:"isolation,omitempty"`
	ToolCalls    []callStory          `json:"tool_calls,omitempty"`
}

type callStory struct {
	Name       string  `json:"name"`
	Arguments  string  `json:"arguments"` // as the model wrote them
	Error      bool    `json:"error,omitempty"`
	ExitCode   *int    `json:"exit_code,omitempty"`
	DurationMS float64 `json:"duration_ms"`
}

// Group follows one group of the batch down to its members' turns, and notes the
// policy versions that it meets.
func (s *scene) Group(cfg runfile.RunConfig, id string, versions map[int64]bool) (groupStory, error) {
	completed, _ := s.run.FindGroup(id)
	if !completed.Completed || completed.Seq > s.Seq {
		return groupStory{},
			fmt.Errorf("batch %d names group %s, which was not complete by then: `rondo audit` shows details",
				s.Step, id)
	}
	g := groupStory{Group: id, Task: completed.Task, Estimator: completed.Estimator, RewardMean: completed.Mean}
	if task, ok := s.task(cfg, completed.Task); ok {
		g.TaskDigest = task.Digest
		g.Snapshot, g.Tests = present(task.Snapshot), present(task.Tests)
	}
	for _, id := range completed.Members {
		r, _ := s.run.Find(id)
		member, err := s.member(r, versions)
		if err != nil {
			return g, err
		}
		g.Members = append(g.Members, member)
	}
	return g, nil
}

// present is a reference, nil for one that names nothing.
func present(ref storage.Ref) *storage.Ref {
	if ref.Key == "" {
		return nil
	}
	return &ref
}

func (s *scene) member(known books.Rollout, versions map[int64]bool) (memberStory, error) {
	m := known.Member
	story := memberStory{
		Rollout: known.ID, Compared: known.Compared(), Reward: m.Reward, Shaped: m.Shaped,
		Advantage: m.Advantage, Turns: []turnStory{},
	}
	story.tellOutcome(s, known)
	r, err := events.FoldRollout(s.chains[known.ID])
	if err != nil {
		return story, fmt.Errorf("rollout %s: %w", known.ID, err)
	}
	story.PolicyVersion, story.Failure = r.Started.PolicyVersion, r.Failed
	versions[story.PolicyVersion] = true
	if f := r.Finished; f != nil {
		story.StopReason, story.Tokens, story.Sampled = f.StopReason, f.Tokens, f.AllSampled()
		story.trainable = f.Sampled
		story.Trajectory, story.Workspace = &f.Trajectory, f.Workspace
	}
	if v := r.Scored; v != nil {
		story.Verdict = &verdictStory{v.Reward, v.Components, v.ExitCode, v.TaskDigest, v.Log, v.DurationMS, v.Flags,
			v.Forfeit, v.Isolation, v.Filesystem, v.User, v.Build, v.Verifier}
	}
	for _, t := range r.Turns {
		versions[t.PolicyVersion] = true
		for _, span := range t.VersionSpans {
			versions[span.Version] = true
		}
		turn := tellTurn(r, t)
		turn.Manifest = s.weights[t.PolicyVersion].SHA256
		story.Turns = append(story.Turns, turn)
	}
	return story, nil
}

// tellOutcome says what the batch made of the member.
func (story *memberStory) tellOutcome(s *scene, known books.Rollout) {
	story.Trained = slices.Contains(s.Rollouts, known.ID)
	story.Invalidated = known.Invalidated
	switch {
	case story.Trained:
		story.Outcome = "trained"
	case known.Failed:
		story.Outcome, story.Reason = "failed", known.Class
	case known.Member.Failed:
		story.Outcome, story.Reason = "masked", "invalidated"
	default:
		story.Outcome, story.Reason = "masked", s.Masked[known.ID]
	}
}

// normalise tells what the batch made of the members' advantages, in the order of its rows,
// which is that of its groups.
func (x *batchStory) normalise(cfg runfile.RunConfig) {
	var trained []*memberStory
	var advantages []float64
	var sampled []int
	for g := range x.Groups {
		for i := range x.Groups[g].Members {
			if m := &x.Groups[g].Members[i]; m.Trained {
				trained, advantages, sampled = append(trained, m), append(advantages, m.Advantage),
					append(sampled, m.trainable)
			}
		}
	}
	feed := cfg.Feeds[slices.IndexFunc(cfg.Feeds, func(f runfile.Feed) bool { return f.Name == x.Feed })]
	normalise, ok := advantage.Batchwise(cfg.Advantage.Estimator, cfg.Advantage.Params)
	switch {
	case feed.Export():
		advantages = slices.Repeat([]float64{1}, len(trained))
	case ok:
		advantages = normalise(advantages, sampled)
	default:
		return
	}
	for i, m := range trained {
		m.BatchAdvantage = &advantages[i]
	}
}

func tellTurn(r events.Rollout, t events.TurnSampled) turnStory {
	story := turnStory{
		Turn: t.Turn, PolicyVersion: t.PolicyVersion, VersionSpans: t.VersionSpans,
		Sampled: len(t.TokenIDs), FinishReason: t.FinishReason, FinishWord: t.FinishWord, Lacks: t.Lacks,
		Summary:   t.Summary != nil,
		NewSample: t.NewSegment, SegmentCause: t.SegmentCause,
	}
	tools := r.Tools.Answer(t.Turn)
	story.Runner, story.Isolation = tools.Runner, tools.Isolation
	for i, call := range t.ToolCalls {
		c := callStory{Name: call.Name, Arguments: call.Arguments}
		if i < len(tools.Results) { // in call order
			result := tools.Results[i]
			c.Error, c.ExitCode, c.DurationMS = result.Error, result.ExitCode, result.DurationMS
		}
		story.ToolCalls = append(story.ToolCalls, c)
	}
	return story
}
