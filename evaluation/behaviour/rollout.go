package behaviour

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
)

// Rollout is what one rollout did, as far as the log says.
type Rollout struct {
	Version int64 // of the policy at dispatch
	// Failed: the infrastructure failed, and there is no reward. A tally counts nothing else of the
	// rollout.
	Failed bool
	Reward float64
	// Turns are its own: those that a fork was given are its origin's.
	Turns int
	// SampledTokens is 0 where the log lacks those of a turn.
	SampledTokens int64
	// ThinkingTurns have reasoning, which is so many characters long.
	ThinkingTurns int
	Characters    int64
	// CallingTurns have tool calls, ParallelTurns several.
	CallingTurns, ParallelTurns  int
	Calls, Answered, FailedCalls int64
	// CallsBeforeEdit is how many calls came before the first one that changed the workspace; nil
	// where none did, or nobody knows.
	CallsBeforeEdit *int64
	// Samples is 0 where the rollout has no tokens to train on. NewSamples counts the later ones by
	// why they began.
	Samples    int64
	NewSamples map[string]int
	// Trainable is how many of the sampled tokens stand in samples, and were neither
	// masked nor constrained. Masked counts those of conversations that are not trained
	// on, by the rule of the run that says so, and Others those that another model than
	// the policy has sampled, by its name.
	Trainable  int64
	Masked     map[string]int
	Others     map[string]int
	StopReason string
	// Effort is nil where the scorer measured none.
	Effort *RolloutEffort
}

// RolloutEffort is the scorer's component of effort, and by how much the reward differs from what
// it would be at an effort of 0.
type RolloutEffort struct{ Effort, RewardChange float64 }

// Tracker follows what the rollouts of a run do. It keeps those that are under way.
type Tracker struct {
	run *books.Rollouts
	// changes has the tools that may change the workspace; nil where the run's tools are not known.
	changes map[string]bool
	open    map[string]*underWay
}

// underWay is a rollout that is neither scored nor failed.
type underWay struct {
	Rollout
	// tokensUnknown: the log lacks the tokens of a turn.
	tokensUnknown bool
	// workspace is the digest of the last change that is known, "" for none; before counts the
	// calls until then.
	workspace string
	before    int64
	// edited: the first change is behind it, or cannot be known.
	edited bool
}

// NewTracker follows no rollout yet. Books are folded first, and hold each rollout until its
// outcome is read here.
func NewTracker(run *books.Rollouts) *Tracker {
	return &Tracker{run: run, open: map[string]*underWay{}}
}

// Apply takes in the next event, which the books have folded, and returns the rollout that is
// scored or failed by it, else nil.
func (t *Tracker) Apply(e events.Event) (over *Rollout, err error) {
	switch e.Type {
	case events.RunOpenedType:
		t.opened()
		return nil, nil
	case events.RolloutStartedType:
		return nil, t.started(e)
	}
	r := t.open[e.Entity]
	if r == nil || e.Type.Kind() != events.RolloutStartedType.Kind() {
		return nil, nil
	}
	switch e.Type {
	case events.TurnSampledType:
		return nil, r.turn(e)
	case events.ToolsCompletedType:
		return nil, r.tools(e, t.changes)
	case events.StepScoredType:
		return nil, r.step(e)
	case events.RolloutFinishedType:
		return nil, r.finished(e)
	case events.RolloutScoredType:
		if r.Effort, err = effortOf(e, t.run.Config.Scorer); err != nil {
			return nil, err
		}
	case events.RolloutFailedType:
	default:
		return nil, nil
	}
	delete(t.open, e.Entity)
	known, _ := t.run.Find(e.Entity)
	r.Failed, r.Reward, r.StopReason = known.Failed, known.Reward, known.StopReason
	if r.tokensUnknown {
		r.SampledTokens = 0
	}
	return &r.Rollout, nil
}

// shaped: what the members of a group lose by shaping can be told. Shuffled rewards are other
// members'.
func (t *Tracker) shaped() bool {
	cfg := t.run.Config
	return (cfg.Shaping.Length != nil || cfg.Shaping.SoftOverlong != nil) && !cfg.Advantage.ShuffleRewards
}

func (t *Tracker) opened() {
	t.changes = nil
	set, err := tools.NewSet(t.run.Config.ToolSettings())
	if err != nil || t.run.Config.Agent != nil {
		// an agent's tools are its own; a tool of another version of Rondo: what it changes is
		// not known, and all else is
		return
	}
	t.changes = map[string]bool{}
	for _, d := range set.Definitions() {
		t.changes[d.Name] = !d.ReadOnly && d.Effect != tools.Nothing
	}
}

func (t *Tracker) started(e events.Event) error {
	known, _ := t.run.Find(e.Entity)
	if known.Seq != e.Seq {
		return nil // a start that stands twice starts nothing again
	}
	started, err := events.Data[events.RolloutStarted](e)
	// What a fork read before its first turn is its origin's, and an outsider's tools are not
	// known.
	unknown := started.Origin != nil || events.External(e.Entity) || t.changes == nil
	t.open[e.Entity] = &underWay{Rollout: Rollout{Version: known.PolicyVersion}, edited: unknown}
	return err
}

// turn reads of a turn no more than is counted: its tokens are most of it.
func (r *underWay) turn(e events.Event) error {
	turn, err := events.Data[struct {
		ToolCalls []struct{} `json:"tool_calls"`
		Reasoning *struct {
			Text string `json:"text"`
		} `json:"reasoning"`
		SegmentCause     string               `json:"segment_cause"`
		Conversation     *events.Conversation `json:"conversation"`
		CompletionTokens int64                `json:"completion_tokens"`
	}](e)
	if err != nil {
		return err
	}
	tokens := turn.CompletionTokens
	if tokens <= 0 { // not every outsider counts them
		whole, err := events.Data[events.TurnSampled](e)
		if err != nil {
			return err
		}
		tokens = int64(len(whole.TokenIDs))
	}
	r.Turns++
	r.SampledTokens = events.AddTokens(r.SampledTokens, tokens)
	r.tokensUnknown = r.tokensUnknown || tokens == 0
	if turn.Reasoning != nil {
		r.ThinkingTurns++
		r.Characters += int64(utf8.RuneCountInString(turn.Reasoning.Text))
	}
	if n := len(turn.ToolCalls); n > 0 {
		r.CallingTurns++
		r.Calls += int64(n)
		if n > 1 {
			r.ParallelTurns++
		}
	}
	if r.Turns > 1 { // the first sample is no new one, though images may be its cause
		r.NewSamples = count(r.NewSamples, turn.SegmentCause, 1)
	}
	if is := turn.Conversation; is != nil && is.Masked {
		r.Masked, r.Others = count(r.Masked, is.Rule, int(tokens)), count(r.Others, is.Model, int(tokens))
	}
	return nil
}

// result is what is counted of the answer to a call: its content is most of it.
type result struct {
	Name  string `json:"name"`
	Error bool   `json:"error"`
}

func (r *underWay) tools(e events.Event, changes map[string]bool) error {
	done, err := events.Data[struct {
		Results   []result     `json:"results"`
		Workspace *storage.Ref `json:"workspace"`
	}](e)
	if err != nil {
		return err
	}
	r.Answered += int64(len(done.Results))
	for _, answer := range done.Results {
		if answer.Error {
			r.FailedCalls++
		}
	}
	if r.edited {
		return nil
	}
	if digest(done.Workspace) == r.workspace { // whatever its calls may do, they have changed nothing
		r.before += int64(len(done.Results))
		return nil
	}
	r.edited = true
	first := slices.IndexFunc(done.Results, func(r result) bool { return changes[r.Name] })
	if first >= 0 { // otherwise it was a program that an earlier call has left in the background
		n := r.before + int64(first)
		r.CallsBeforeEdit = &n
	}
	return nil
}

// step takes note of the workspace that the next step begins with: the agent has not changed it.
func (r *underWay) step(e events.Event) error {
	verdict, err := events.Data[events.StepScored](e)
	if err == nil && verdict.Workspace != nil {
		r.workspace = digest(verdict.Workspace)
	}
	return err
}

func (r *underWay) finished(e events.Event) error {
	finished, err := events.Data[events.RolloutFinished](e)
	if !finished.TextOnly {
		r.Samples, r.Trainable = int64(max(0, finished.Samples)), int64(max(0, finished.Sampled-finished.Constrained))
	}
	return err
}

// effortOf compares the reward with what the same components make of it without effort.
func effortOf(e events.Event, s runfile.Scoring) (*RolloutEffort, error) {
	scored, err := events.Data[events.RolloutScored](e)
	effort, measured := scored.Components[runfile.EffortComponent]
	if !measured || err != nil {
		return nil, err
	}
	without := maps.Clone(scored.Components)
	without[runfile.EffortComponent] = 0
	compose := s.Reward
	if scored.Forfeit != nil {
		compose = s.Forfeited
	}
	reward, err := compose(without)
	if err != nil { // an outsider scored it, in a way of their own
		return nil, nil
	}
	return &RolloutEffort{Effort: effort, RewardChange: scored.Reward - reward}, nil
}

func digest(ref *storage.Ref) string {
	if ref == nil {
		return ""
	}
	return ref.SHA256
}
