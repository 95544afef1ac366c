package events

import (
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/storage"
)

// RunOpened is the first fact of a run and holds its whole configuration.
type RunOpened struct {
	Config runfile.RunConfig `json:"config"`
	// PolicyVersion is the last version of the run's policy that was published when the run was
	// opened; 0 before the first. The intake looks it up, so that the first groups begin at it,
	// however late the run learns of the version itself.
	PolicyVersion int64 `json:"policy_version,omitempty" jsonschema:"minimum=0"`
	// Replays is set where the run's rollouts are those of another one.
	Replays *Replayed `json:"replays,omitempty"`
	// Continues is set where the run goes on where another one ended.
	Continues *Continued `json:"continues,omitempty"`
}

// BeginsAt is the policy version that the run's first groups are sampled with.
func (o RunOpened) BeginsAt() int64 {
	if o.Continues == nil {
		return o.PolicyVersion
	}
	return max(o.PolicyVersion, o.Continues.PolicyVersion)
}

// Replayed says which recorded run a run replays.
type Replayed struct {
	Run string `json:"run"`
	// Until is the last sequence that was copied; 0 is all.
	Until uint64 `json:"until,omitempty"`
	// Decided names the services that decided again.
	Decided []string `json:"decided"`
}

// RunPaused stops the sampler from opening groups; rollouts in flight go on.
type RunPaused struct {
	Reason string `json:"reason,omitempty" jsonschema:"maxLength=1000"`
	// Class is the kind of cause where Rondo itself pauses the run: one of the Pause constants,
	// or the class of failures.
	Class string `json:"class,omitempty" jsonschema:"maxLength=64"`
}

// Classes of RunPaused beside those of RolloutFailed.
const (
	PauseFull   = "full"   // the run's stream
	PauseBudget = "budget" // of tokens
	PauseStuck  = "stuck"  // a deciding service
	// PauseUntrainable: the inference server gives no tokens that can be trained on.
	PauseUntrainable = "untrainable"
	// PauseNoSignal: hardly any group reaches a batch.
	PauseNoSignal = "no_signal"
	// PauseMisfit: no task of the run fits into the inference server's context.
	PauseMisfit = "misfit"
	// PauseLogprobGap: the trainer's log-probabilities of on-policy tokens are
	// too far from the sampler's.
	PauseLogprobGap = "logprob_gap"
)

// RunResumed lets the sampler open groups again.
type RunResumed struct {
	Reason string `json:"reason,omitempty" jsonschema:"maxLength=1000"`
}

// RunClosed ends a run: what is in flight is cancelled, nothing more is opened.
type RunClosed struct {
	Reason string `json:"reason,omitempty" jsonschema:"maxLength=1000"`
}

// GroupOpened says that a task will be tried Size times from the same snapshot.
type GroupOpened struct {
	Task          string `json:"task"`
	Size          int    `json:"size"`
	PolicyVersion int64  `json:"policy_version"` // the version in the run when the group was opened
	// Origin is set where the members do not begin with the task's snapshot and instruction.
	Origin *Origin `json:"origin,omitempty"`
	// Session and Consent are those of the user whose session an outsider's group
	// is, as in QuerySubmitted.
	Session string `json:"session,omitempty" jsonschema:"maxLength=128"`
	Consent bool   `json:"consent,omitempty"`
}

// Member is one rollout of a completed group.
type Member struct {
	Rollout string `json:"rollout"`
	// Role is that of an episode of several roles. Members are compared with those of their role.
	Role string `json:"role,omitempty"`
	// Failed members have neither reward nor advantage and are not trained on.
	Failed bool `json:"failed,omitempty"`
	// Reward is as it was scored; Shaped is what the estimator compared.
	Reward    float64 `json:"reward"`
	Shaped    float64 `json:"shaped"`
	Advantage float64 `json:"advantage"`
}

// GroupCompleted holds the advantages of a group all of whose members are scored or failed.
type GroupCompleted struct {
	Task      string   `json:"task"`
	Estimator string   `json:"estimator"`
	Members   []Member `json:"members"` // in member order
	Mean      float64  `json:"mean"`    // of the scored members' rewards
}

// Reasons of GroupDropped.
const (
	DropStale    = "stale"
	DropFiltered = "filtered"
)

// GroupDropped says that a feed will not train on a group.
type GroupDropped struct {
	Feed   string `json:"feed"`
	Reason string `json:"reason" jsonschema:"enum=stale,enum=filtered"`
	// Filter is the rule that a filtered group met: a name to count by, as
	// Detail is a text to read.
	Filter    string `json:"filter,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Staleness int64  `json:"staleness,omitempty"` // policy versions
}

// RolloutStarted is the work item of the generator.
type RolloutStarted struct {
	Group         string    `json:"group"`
	Member        int       `json:"member"`
	Role          string    `json:"role,omitempty"` // in an episode of several rollouts
	Task          string    `json:"task"`
	PolicyVersion int64     `json:"policy_version"` // at dispatch
	Seed          int64     `json:"seed"`
	Deadline      time.Time `json:"deadline"`
	// Origin is set of forks: RolloutCopied stands behind this fact then.
	Origin *Origin `json:"origin,omitempty"`
}

// Origin is where a fork begins: behind a turn, and its tools' answers, of another
// rollout of the same run.
type Origin struct {
	Rollout string `json:"rollout"`
	Turn    int    `json:"turn" jsonschema:"minimum=0"`
}

// RolloutForked asks for Count new rollouts, one group, that go on behind a turn of this one.
type RolloutForked struct {
	Turn  int `json:"turn" jsonschema:"minimum=0"`
	Count int `json:"count" jsonschema:"minimum=1,maximum=1024"`
	// Task is repeated from RolloutStarted, so that who folds forks needs no other event.
	Task string `json:"task"`
}

// RolloutCopied begins a fork with the turns of its origin, and what their tools answered and left
// in the workspace. They were sampled for the origin: here they are context, and not trained on.
type RolloutCopied struct {
	Turns []TurnSampled    `json:"turns"`
	Tools []ToolsCompleted `json:"tools"`
}

// ToolCall is a tool invocation as the model wrote it; Arguments may be malformed.
type ToolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// PromptMessage is one message of a prompt that no service of Rondo's made.
type PromptMessage struct {
	Role       string     `json:"role" jsonschema:"maxLength=32"`
	Content    string     `json:"content,omitempty"`
	Name       string     `json:"name,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	// Images are those whose names stand in Content, in their order.
	Images []storage.Image `json:"images,omitempty" jsonschema:"maxItems=100"`
}

// TurnSampled is one model generation.
type TurnSampled struct {
	Turn int `json:"turn" jsonschema:"minimum=0"` // from 0
	// Prompt and After are set of external rollouts, whose prompts do not follow from the task:
	// what the turn was asked with, all of it, or behind the conversation that ended with turn
	// After. Turns form a tree: a harness may go back, or try twice.
	Prompt []PromptMessage `json:"prompt,omitempty"`
	After  *int            `json:"after,omitempty" jsonschema:"minimum=0"`
	// RequestDigest names what the run's agent asked: conversation, tools and settings,
	// without what differs where an agent is started anew. Its request is known by it then.
	// Other rollouts have none.
	RequestDigest string     `json:"request_digest,omitempty" jsonschema:"maxLength=64"`
	Content       string     `json:"content,omitempty"`
	ToolCalls     []ToolCall `json:"tool_calls,omitempty"`
	// Reasoning is absent where the server gives none, or leaves it in Content.
	Reasoning *Reasoning `json:"reasoning,omitempty"`
	// PromptDelta holds the prompt tokens since the end of the last turn, or the whole
	// prompt when NewSegment is set.
	PromptDelta []int32 `json:"prompt_delta,omitempty"`
	TokenIDs    []int32 `json:"token_ids,omitempty"`
	// Logprobs are the sampler's log-probabilities, one per sampled token, natural logarithm.
	Logprobs []float32 `json:"logprobs,omitempty"`
	// NewSegment: the prompt did not extend the last one exactly, so a new
	// training sample begins here.
	NewSegment bool `json:"new_segment,omitempty"`
	// SegmentCause is why a new segment begins, one of the Cause constants; absent of the first
	// one, unless that has images, and where nobody recorded it.
	SegmentCause string `json:"segment_cause,omitempty" jsonschema:"pattern=^(thoughts|drift|history|summary|tools|system|rewritten|compacted|sibling|unrelated|images)$"`
	// Root is the digest of what stands in a harness's prompt beside its messages: the
	// tools that it offered, in their order, and what it told the chat template.
	// Absent where that was nothing.
	Root string `json:"root,omitempty" jsonschema:"maxLength=64"`
	// Conversation is what the run's `conversations` say of the turn's, the same of all its turns.
	// Absent in runs without such rules.
	Conversation *Conversation `json:"conversation,omitempty"`
	// Summary is set of a turn in which the model summed its work up, as the context was full: the
	// next turn's prompt has Content in place of everything that was said before. Rollouts that
	// ran elsewhere have none.
	Summary *Summary `json:"summary,omitempty"`
	// TextOnly: the server gave no token ids, so this turn cannot be trained on.
	TextOnly bool `json:"text_only,omitempty"`
	// Sampling is how the turn was sampled, as the server was asked; absent where only the run's
	// configuration says so. Requested is what a harness asked for, by its own names, and did not
	// get where Sampling says otherwise.
	Sampling  *runfile.Sampling `json:"sampling,omitempty"`
	Requested map[string]any    `json:"requested,omitempty" jsonschema:"maxProperties=64"`
	// Constrained names what of the request made the server sample from another distribution than
	// the policy's, as a grammar does: log-probabilities of the turn's tokens are not the policy's.
	Constrained []string `json:"constrained,omitempty" jsonschema:"maxItems=64"`
	// ContextLimit is how many tokens the server's context has for prompt and answer together,
	// where that left the turn fewer than the run's max_tokens: Sampling says how many.
	ContextLimit int `json:"context_limit,omitempty" jsonschema:"minimum=0"`
	// RoomTold tells the model behind the turn's tool results how much of its context is used,
	// where the run asks for that: see Told. Rollouts that ran elsewhere have none.
	RoomTold string `json:"room_told,omitempty"`
	// Lacks names what training needs and the answer did not have: one of the Lack constants each.
	Lacks []string `json:"lacks,omitempty" jsonschema:"maxItems=16"`
	// Columns are the token columns that the run asks for: positions count the tokens of the turn's
	// prompt and answer together.
	Columns []storage.TokenColumn `json:"columns,omitempty" jsonschema:"maxItems=4096"`
	// PolicyVersion is the version that the server reported, -1 where it reported none, or the
	// generator found that the policy has not reached it. It is the oldest one of VersionSpans,
	// which are there where tokens of the turn are of several versions.
	PolicyVersion int64         `json:"policy_version"`
	VersionSpans  []VersionSpan `json:"version_spans,omitempty" jsonschema:"maxItems=256"`
	// FinishReason is why the turn ended, one of the Finish constants, and FinishWord the server's
	// own word, where that says more.
	FinishReason     string `json:"finish_reason"`
	FinishWord       string `json:"finish_word,omitempty" jsonschema:"maxLength=64"`
	PromptTokens     int    `json:"prompt_tokens"`
	CompletionTokens int    `json:"completion_tokens"`
	// TokensEstimated: the server counted no tokens of the prompt, or none of the answer. These are
	// then one for each BytesPerToken bytes of text.
	TokensEstimated bool `json:"tokens_estimated,omitempty"`
	// Parts counts the requests that sampled the answer, where that were several: a server was
	// killed, or aborted it, and the next request went on behind its tokens.
	Parts     int       `json:"parts,omitempty" jsonschema:"minimum=0"`
	StartedAt time.Time `json:"started_at"`
	// LatencyMS is how long the request took that was answered. Waiting for a slot, and tries
	// that failed, are not in it.
	LatencyMS float64 `json:"latency_ms"`
}

// Conversation is one of a rollout's, as it was judged when it began.
type Conversation struct {
	// Tree is which one it is, runfile.TreeMain or runfile.TreeBeside.
	Tree string `json:"tree" jsonschema:"enum=main,enum=beside"`
	// Rule is the first of the run's rules that takes it, "" for none.
	// Masked: it is not trained on.
	Rule   string `json:"rule,omitempty" jsonschema:"maxLength=64"`
	Masked bool   `json:"masked,omitempty"`
	// Model answers it, by the rule's endpoint; "" is the run's policy. Turns of
	// another model have no tokens.
	Model string `json:"model,omitempty" jsonschema:"maxLength=256"`
}

// TurnSampled.Lacks may name these, and token columns: those that the run asks for and the answer
// lacks for some of its tokens.
const (
	LackPromptIDs = "prompt_token_ids"
	LackIDs       = "token_ids"
	LackLogprobs  = "logprobs"
	// LackProcessed: the log-probabilities are those of the raw model, not of the
	// distribution that was sampled.
	LackProcessed = "processed_logprobs"
	// LackTools: the answer holds a tool call as text, or the server says that it has one, and
	// there is none that was read.
	LackTools = "parsed_tool_calls"
	// LackVersions: the server's spans of versions are no spans of the tokens.
	LackVersions = "weight_versions"
	// LackImages: the prompt has ids that are no tokens in the place of those
	// that stand for its images.
	LackImages = "image_tokens"
	// LackAgreement: token ids, log-probabilities and usage contradict each other.
	LackAgreement = "agreeing_tokens"
)

// ToolResult is what one call of a turn answered.
type ToolResult struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Content string `json:"content"`
	Error   bool   `json:"error,omitempty"`
	// ExitCode is set for commands.
	ExitCode     *int  `json:"exit_code,omitempty"`
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
	// StartedAt and DurationMS are of the tool's own work.
	StartedAt  time.Time `json:"started_at"`
	DurationMS float64   `json:"duration_ms"`
	// Cache is whether the answer is one that the same call had before (hit), was asked for in
	// vain (miss), or is of a call whose answer nothing known determines (bypass); absent where
	// the run uses none again.
	Cache string `json:"cache,omitempty" jsonschema:"enum=hit,enum=miss,enum=bypass"`
	// OriginalMS is how long a hit took when it was run.
	OriginalMS float64 `json:"original_ms,omitempty"`
}

// ToolsCompleted answers all calls of one turn, in call order.
type ToolsCompleted struct {
	Turn    int          `json:"turn"`
	Results []ToolResult `json:"results"`
	// Runner holds the sandbox now; the next turn is routed to it.
	Runner string `json:"runner"`
	// Workspace is the change against the snapshot after the turn; absent while nothing is changed.
	Workspace  *storage.Ref `json:"workspace,omitempty"`
	Isolation  string       `json:"isolation"`
	Filesystem string       `json:"filesystem"`
	// Redacted counts the secrets that were taken out of the results, by the rule that found them
	// or Unsearched. Only runs with the feature redact_secrets have it.
	Redacted map[string]int `json:"redacted,omitempty"`
	// State is what the tools remember for the next turn; absent while that is nothing.
	State *toolset.State `json:"state,omitempty"`
	// Lost says why nothing that the turn did is kept: its workspace is too large, or the
	// sandbox did not survive it. Workspace and State are then those of the turn before, and the
	// last result tells the model.
	Lost string `json:"lost,omitempty"`
	// Network is what was asked of the network; absent where nothing was, or the run has none.
	Network *netaccess.Use `json:"network,omitempty"`
}

// Unsearched counts the results that were withheld as a whole, because the search
// for secrets took too long.
const Unsearched = "unsearched"

// Stop reasons of RolloutFinished.
const (
	StopFinished  = "finished"
	StopMaxTurns  = "max_turns"
	StopMaxTokens = "max_tokens"
	StopLength    = "length" // the model ran into its own output limit, or repeated itself
	// the next prompt, or the whole of the last turn, did not fit into the server's context
	StopContext = "context"
	StopTimeout = "timeout" // the agent has used up its own time, or that of the run for its tools
	// a filter cut the last turn for what it says, or refuses the next prompt for what it holds
	StopFiltered = "filtered"
	StopRefused  = "refused"        // the server refuses the next prompt, in words that nobody knows: not trained on
	StopExit     = "agent_exit"     // the run's agent ended with another code than 0
	StopOutput   = "output"         // the run's agent wrote too much to its standard output and error
	StopUnread   = "unread_call"    // the last turn has a call that the server did not read: not trained on
	StopUnknown  = "unknown_finish" // nobody knows why the last turn ended: not trained on
)

// RolloutFinished ends an episode and names its trajectory file.
type RolloutFinished struct {
	Task       string `json:"task"`
	StopReason string `json:"stop_reason"`
	Turns      int    `json:"turns"`
	Tokens     int    `json:"tokens"`  // over all samples
	Sampled    int    `json:"sampled"` // those of them that the model sampled, without Masked
	// Masked counts the tokens that were sampled in conversations that are not trained on, by the
	// rule of the run that says so.
	Masked map[string]int `json:"masked,omitempty" jsonschema:"maxProperties=32"`
	// Constrained is how many of the sampled tokens are of turns that were constrained.
	Constrained int          `json:"constrained,omitempty" jsonschema:"minimum=0"`
	Samples     int          `json:"samples"`
	TextOnly    bool         `json:"text_only,omitempty"`
	Trajectory  storage.Ref  `json:"trajectory"`
	Workspace   *storage.Ref `json:"workspace,omitempty"`
	MinVersion  int64        `json:"min_version"`
	MaxVersion  int64        `json:"max_version"`
	// UnknownVersions is how many of the sampled tokens are of a version that nobody reported.
	UnknownVersions int `json:"unknown_versions,omitempty" jsonschema:"minimum=0"`
	// Steps is how many steps of its task the agent was in, of a task that has several.
	Steps int `json:"steps,omitempty"`
	// Verify is set of a harness's rollout that its task's verifier scores, over the workspace or,
	// where that is absent, over the task's snapshot.
	Verify bool `json:"verify,omitempty"`
}

// RolloutScored is the verifier's verdict.
type RolloutScored struct {
	Reward     float64            `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	ExitCode   int                `json:"exit_code"`
	Log        *storage.Ref       `json:"log,omitempty"`
	TaskDigest string             `json:"task_digest"`
	DurationMS float64            `json:"duration_ms"`
	// Flags say what of the rollout looks like cheating, "name: detail" each; see the Flag
	// constants. They are remarks for people and filters, and change no reward.
	Flags []string `json:"flags,omitempty" jsonschema:"maxItems=50"`
	// Forfeit is set where the agent's doing left the tests without a verdict. The
	// reward is none of theirs then.
	Forfeit *Forfeit `json:"forfeit,omitempty"`
	// Isolation and Filesystem are those of the verifier's sandbox, Build the version of the
	// program that scored. User tells whom the tests were to the host: "own" is nobody that an
	// agent's processes ever are, "shared" the user that runs Rondo, as they are.
	Isolation  string `json:"isolation,omitempty"`
	Filesystem string `json:"filesystem,omitempty"`
	User       string `json:"user,omitempty"`
	Build      string `json:"build,omitempty"`
	// Verifier is the separation that there was between the tests and the code under test:
	// VerifierSeparate or VerifierInProcess. Of a task with steps it is the least that any of them
	// had. Older scores have none.
	Verifier string `json:"verifier,omitempty"`
	// Tests say how the graded tests ended; nil where no grading names any. Of a task with
	// steps each step has its own.
	Tests *grade.Tests `json:"tests,omitempty"`
	// Judgement is what the judge answered, word for word.
	Judgement *storage.Ref `json:"judgement,omitempty"`
	// Trajectory is repeated from RolloutFinished, so that who folds scores needs no other event.
	Trajectory storage.Ref `json:"trajectory"`
	TextOnly   bool        `json:"text_only,omitempty"`
}

// Stages and classes of RolloutFailed. A stage is the service that gave up, a
// class is a kind of cause.
const (
	StageSampler   = "sampler"
	StageGenerator = "generator"
	StageTools     = "tools"
	StageScorer    = "scorer"
	// StageEnvironment is a user's worker.
	StageEnvironment = "environment"

	ClassDeadline    = "deadline" // the plane gave the rollout up: see Clock
	ClassCancelled   = "cancelled"
	ClassEndpoint    = "endpoint"
	ClassBadResponse = "bad_response"
	ClassSandbox     = "sandbox"
	ClassIsolation   = "isolation" // less isolation than the run's min_isolation
	ClassVerifier    = "verifier"
	ClassSeparation  = "separation" // less separation than the run's min_verifier
	ClassObject      = "object"
	ClassInternal    = "internal"
	// ClassRefused: the server refuses the first prompt, so that there is nothing to score.
	ClassRefused = "refused"
	// ClassUnknownFinish: the server ended a turn without a word, or with one that nobody knows.
	ClassUnknownFinish = "unknown_finish"
	// ClassAgent: the run's agent ended before it had an answer of its model, so that
	// there is nothing to score.
	ClassAgent = "agent"
	// ClassWorker is what a user's worker says of itself.
	ClassWorker = "worker"
)

// RolloutFailed is terminal: an infrastructure failure, never a reward of 0. What the agent
// did is none; see Forfeit.
type RolloutFailed struct {
	Stage   string `json:"stage"`
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
}

// RolloutRetried is a try that failed and will be made again.
type RolloutRetried struct {
	Stage   string `json:"stage"`
	Class   string `json:"class"`
	Message string `json:"message,omitempty"`
	Try     int    `json:"try"` // from 1
	// Behind is set where the run's agent is started anew behind as many recorded turns, which are
	// answers to its requests now. It costs none of limits.tries, and one of limits.agent_restarts.
	Behind int `json:"behind,omitempty" jsonschema:"minimum=0"`
}

// RolloutInvalidated flags a rollout whose data must not be used; it is a
// flag on top of its outcome.
type RolloutInvalidated struct {
	Reason string `json:"reason" jsonschema:"minLength=1,maxLength=1000"`
}

// RolloutAnnotated attaches a remark to a rollout, to one of its turns, or to a span of the
// tokens that a turn sampled.
type RolloutAnnotated struct {
	Turn *int `json:"turn,omitempty" jsonschema:"minimum=0"`
	// Start and Length select sampled tokens of the turn; without them the
	// remark is about all of them.
	Start  *int `json:"start,omitempty" jsonschema:"minimum=0"`
	Length *int `json:"length,omitempty" jsonschema:"minimum=1"`
	// Reward of the turn or the span; the run's advantage.span_weight says what it counts.
	Reward *float64           `json:"reward,omitempty"`
	Text   string             `json:"text,omitempty" jsonschema:"maxLength=10000"`
	Values map[string]float64 `json:"values,omitempty"`
}

// DeadLettered is a message that nobody will deliver again, and why.
type DeadLettered struct {
	Stream   string       `json:"stream"`
	Sequence uint64       `json:"sequence"`
	Consumer string       `json:"consumer"`
	Subject  string       `json:"subject,omitempty"`
	Reason   string       `json:"reason"`
	Body     *storage.Ref `json:"body,omitempty"`
}

// SegmentSealed says that a part of a run's log is archived. The entity is the run.
type SegmentSealed struct {
	First   uint64      `json:"first"` // sequences in the run's stream, without gaps
	Last    uint64      `json:"last"`
	Segment storage.Ref `json:"segment"`
	// Previous is the SHA-256 of the segment before this one, "" for the first.
	Previous string `json:"previous"`
}

// LogForgotten says that the archive of a closed run whose stream is gone, and all that only it
// refers to, may be deleted. The entity is the run.
type LogForgotten struct {
	Reason string `json:"reason"`
}

// LogPurged says that archived events have left the stream of a run that goes
// on. The entity is the run.
type LogPurged struct {
	// Events is how many have left it so far.
	Events uint64 `json:"events"`
	// Bytes is what the stream holds without them.
	Bytes int64 `json:"bytes"`
}

// EveryStage is the entity of StageWaited where the whole plane was away.
const EveryStage = "every"

// StageWaited says that rollouts at a stage wait for the end of an outage, which is not
// their agents' time. The stage's service states it again and again while that lasts. Of
// EveryStage the query sampler states it, when it begins to decide behind a time in which
// nothing came onto the log.
type StageWaited struct {
	Outage string    `json:"outage"` // its kind
	Since  time.Time `json:"since"`
	// Until is from when on the time of the rollouts counts again.
	Until time.Time `json:"until"`
}

// Span is the time that does not count.
func (w StageWaited) Span() Span { return Span{w.Since, w.Until} }
