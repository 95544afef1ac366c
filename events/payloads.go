package events

import (
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// RunOpened is the first fact of a run and holds its whole configuration.
type RunOpened struct {
	Config RunConfig `json:"config"`
	// Replays is set where the run's rollouts are those of another one.
	Replays *Replayed `json:"replays,omitempty"`
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
	// Class is the kind of cause where Rondo itself pauses the run: one of the Pause constants, or the class of failures.
	Class string `json:"class,omitempty" jsonschema:"maxLength=64"`
}

// Classes of RunPaused beside those of RolloutFailed.
const (
	PauseFull   = "full"   // the run's stream
	PauseBudget = "budget" // of tokens
	PauseStuck  = "stuck"  // a deciding service
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
	// Session and Consent are those of the user whose session an outsider's group is, as in QuerySubmitted.
	Session string `json:"session,omitempty" jsonschema:"maxLength=128"`
	Consent bool   `json:"consent,omitempty"`
}

// Member is one rollout of a completed group.
type Member struct {
	Rollout string `json:"rollout"`
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
	// Filter is the rule that a filtered group met: a name to count by, as Detail is a text to read.
	Filter    string `json:"filter,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Staleness int64  `json:"staleness,omitempty"` // policy versions
}

// RolloutStarted is the work item of the generator.
type RolloutStarted struct {
	Group         string    `json:"group"`
	Member        int       `json:"member"`
	Task          string    `json:"task"`
	PolicyVersion int64     `json:"policy_version"` // at dispatch
	Seed          int64     `json:"seed"`
	Deadline      time.Time `json:"deadline"`
	// Origin is set of forks: RolloutCopied stands behind this fact then.
	Origin *Origin `json:"origin,omitempty"`
}

// Origin is where a fork begins: behind a turn, and its tools' answers, of another rollout of the same run.
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

// RolloutCopied begins a fork with the turns of its origin, and what their tools answered and left in the workspace. They were sampled for
// the origin: here they are context, and not trained on.
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
}

// TurnSampled is one model generation.
type TurnSampled struct {
	Turn int `json:"turn" jsonschema:"minimum=0"` // from 0
	// Prompt and After are set of external rollouts, whose prompts do not follow from the task: what the turn was asked with, all of
	// it, or behind the conversation that ended with turn After. Turns form a tree: a harness may go back, or try twice.
	Prompt    []PromptMessage `json:"prompt,omitempty"`
	After     *int            `json:"after,omitempty" jsonschema:"minimum=0"`
	Content   string          `json:"content,omitempty"`
	ToolCalls []ToolCall      `json:"tool_calls,omitempty"`
	// PromptDelta holds the prompt tokens since the end of the last turn, or the whole prompt when NewSegment is set.
	PromptDelta []int32 `json:"prompt_delta,omitempty"`
	TokenIDs    []int32 `json:"token_ids,omitempty"`
	// Logprobs are the sampler's log-probabilities, one per sampled token, natural logarithm.
	Logprobs []float32 `json:"logprobs,omitempty"`
	// NewSegment: the prompt did not extend the last one exactly, so a new training sample begins here.
	NewSegment bool `json:"new_segment,omitempty"`
	// TextOnly: the server gave no token ids, so this turn cannot be trained on.
	TextOnly         bool      `json:"text_only,omitempty"`
	PolicyVersion    int64     `json:"policy_version"`
	FinishReason     string    `json:"finish_reason"`
	PromptTokens     int       `json:"prompt_tokens"`
	CompletionTokens int       `json:"completion_tokens"`
	StartedAt        time.Time `json:"started_at"`
	LatencyMS        float64   `json:"latency_ms"`
}

// ToolResult is what one call of a turn answered.
type ToolResult struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Content string `json:"content"`
	Error   bool   `json:"error,omitempty"`
	// ExitCode is set for commands.
	ExitCode     *int      `json:"exit_code,omitempty"`
	DroppedBytes int64     `json:"dropped_bytes,omitempty"`
	StartedAt    time.Time `json:"started_at"`
	DurationMS   float64   `json:"duration_ms"`
	// Cache is whether the answer is one that the same call had before (hit), was asked for in vain (miss), or is of a call whose answer
	// nothing known determines (bypass); absent where the run uses none again.
	Cache string `json:"cache,omitempty" jsonschema:"enum=hit,enum=miss,enum=bypass"`
	// OriginalMS is how long a hit took when it was run.
	OriginalMS float64 `json:"original_ms,omitempty"`
}

// What ToolResult.Cache may be.
const (
	CacheHit    = "hit"
	CacheMiss   = "miss"
	CacheBypass = "bypass"
)

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
	// Redacted counts the secrets that were taken out of the results, by the rule that found them or Unsearched. Only runs with the
	// feature redact_secrets have it.
	Redacted map[string]int `json:"redacted,omitempty"`
	// State is what the tools remember for the next turn; absent while that is nothing.
	State *ToolState `json:"state,omitempty"`
}

// Unsearched counts the results that were withheld as a whole, because the search for secrets took too long.
const Unsearched = "unsearched"

// Stop reasons of RolloutFinished.
const (
	StopFinished  = "finished"
	StopMaxTurns  = "max_turns"
	StopMaxTokens = "max_tokens"
	StopLength    = "length"  // the model ran into its own output limit
	StopTimeout   = "timeout" // the task's time for its agent was over
)

// RolloutFinished ends an episode and names its trajectory file.
type RolloutFinished struct {
	Task       string       `json:"task"`
	StopReason string       `json:"stop_reason"`
	Turns      int          `json:"turns"`
	Tokens     int          `json:"tokens"`  // over all samples
	Sampled    int          `json:"sampled"` // those of them that the model sampled
	Samples    int          `json:"samples"`
	TextOnly   bool         `json:"text_only,omitempty"`
	Trajectory storage.Ref  `json:"trajectory"`
	Workspace  *storage.Ref `json:"workspace,omitempty"`
	MinVersion int64        `json:"min_version"`
	MaxVersion int64        `json:"max_version"`
	// Steps is how many steps of its task the agent was in, of a task that has several.
	Steps int `json:"steps,omitempty"`
}

// RolloutScored is the verifier's verdict.
type RolloutScored struct {
	Reward     float64            `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	ExitCode   int                `json:"exit_code"`
	Log        *storage.Ref       `json:"log,omitempty"`
	TaskDigest string             `json:"task_digest"`
	DurationMS float64            `json:"duration_ms"`
	// Flags say what of the rollout looks like cheating, "name: detail" each; see the Flag constants. They are remarks for people and
	// filters, and change no reward.
	Flags []string `json:"flags,omitempty" jsonschema:"maxItems=50"`
	// Isolation and Filesystem are those of the verifier's sandbox, Build the version of the program that scored. User tells whom the tests were to
	// the host: "own" is nobody that an agent's processes ever are, "shared" the user that runs Rondo, as they are.
	Isolation  string `json:"isolation,omitempty"`
	Filesystem string `json:"filesystem,omitempty"`
	User       string `json:"user,omitempty"`
	Build      string `json:"build,omitempty"`
	// Judgement is what the judge answered, word for word.
	Judgement *storage.Ref `json:"judgement,omitempty"`
	// Trajectory is repeated from RolloutFinished, so that who folds scores needs no other event.
	Trajectory storage.Ref `json:"trajectory"`
	TextOnly   bool        `json:"text_only,omitempty"`
}

// Stages and classes of RolloutFailed. A stage is the service that gave up, a class is a kind of cause.
const (
	StageSampler   = "sampler"
	StageGenerator = "generator"
	StageTools     = "tools"
	StageScorer    = "scorer"

	ClassDeadline    = "deadline"
	ClassCancelled   = "cancelled"
	ClassEndpoint    = "endpoint"
	ClassBadResponse = "bad_response"
	ClassSandbox     = "sandbox"
	ClassIsolation   = "isolation" // less isolation than the run's min_isolation
	ClassVerifier    = "verifier"
	ClassObject      = "object"
	ClassInternal    = "internal"
)

// RolloutFailed is terminal: an infrastructure failure, never a reward of 0.
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
}

// RolloutInvalidated flags a rollout whose data must not be used; it is a flag on top of its outcome.
type RolloutInvalidated struct {
	Reason string `json:"reason" jsonschema:"minLength=1,maxLength=1000"`
}

// RolloutAnnotated attaches a remark to a rollout, to one of its turns, or to a span of the tokens that a turn sampled.
type RolloutAnnotated struct {
	Turn *int `json:"turn,omitempty" jsonschema:"minimum=0"`
	// Start and Length select sampled tokens of the turn; without them the remark is about all of them.
	Start  *int `json:"start,omitempty" jsonschema:"minimum=0"`
	Length *int `json:"length,omitempty" jsonschema:"minimum=1"`
	// Reward of the turn or the span; the run's advantage.span_weight says what it counts.
	Reward *float64           `json:"reward,omitempty"`
	Text   string             `json:"text,omitempty" jsonschema:"maxLength=10000"`
	Values map[string]float64 `json:"values,omitempty"`
}

// BatchReady is one training batch of a feed: a fact that names immutable files.
type BatchReady struct {
	Step     int64    `json:"step"` // from 1, without gaps
	Groups   []string `json:"groups"`
	Rollouts []string `json:"rollouts"` // in the order of the files' rows; only members that are trained on
	// Masked says of each scored member of the groups that is not trained on why.
	Masked map[string]string `json:"masked,omitempty"`
	// Files holds one file for each data-parallel rank.
	Files        []storage.Ref `json:"files,omitempty"`
	MicroBatches int           `json:"micro_batches,omitempty"` // of each rank
	Samples      int           `json:"samples"`
	Tokens       int64         `json:"tokens"`
	Sampled      int64         `json:"sampled"`     // tokens that are trained on
	RewardMean   float64       `json:"reward_mean"` // over the scored members of the groups
	MinVersion   int64         `json:"min_version"` // of the members' dispatch versions
	Staleness    int64         `json:"staleness"`   // policy version at the decision − MinVersion
}

// BatchConsumed: the trainer has taken the step; the feed may go on.
type BatchConsumed struct {
	Step int64 `json:"step" jsonschema:"minimum=1"`
}

// BatchCheckpointed: the trainer has saved its state through this step; a crash resumes from here.
type BatchCheckpointed struct {
	Step int64 `json:"step" jsonschema:"minimum=0"`
}

// BatchRewound: the trainer restarted from a checkpoint; steps after ToStep come again, byte-identical.
type BatchRewound struct {
	ToStep int64 `json:"to_step" jsonschema:"minimum=0"`
}

// WeightsFile is one file of a set of weights.
type WeightsFile struct {
	Name string      `json:"name" jsonschema:"pattern=^[A-Za-z0-9._-]{1\\,128}$"`
	Blob storage.Ref `json:"blob"`
}

// WeightsSubmitted is a trainer's wish to publish weights whose files it has put into the store.
type WeightsSubmitted struct {
	Version     int64         `json:"version" jsonschema:"minimum=1"`
	Run         string        `json:"run" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	ThroughStep int64         `json:"through_step" jsonschema:"minimum=0"`
	Files       []WeightsFile `json:"files" jsonschema:"minItems=1,maxItems=10000"`
}

// WeightsPublished is a policy version that inference servers may load.
type WeightsPublished struct {
	Policy      string      `json:"policy"`
	Version     int64       `json:"version"`
	Run         string      `json:"run"`          // whose batches it was trained on
	ThroughStep int64       `json:"through_step"` // the last of those batches
	Manifest    storage.Ref `json:"manifest"`
}

// WeightsRejected says why submitted weights were not published.
type WeightsRejected struct {
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

// WeightsActivated: a replica of the inference server answers with this version now.
type WeightsActivated struct {
	Version int64  `json:"version" jsonschema:"minimum=0"`
	Replica string `json:"replica" jsonschema:"minLength=1,maxLength=128"`
}

// QuerySubmitted is a wish of somebody outside, a user's prompt, that becomes a group of its own.
type QuerySubmitted struct {
	Instruction string `json:"instruction" jsonschema:"minLength=1,maxLength=100000"`
	// Task names the run's task whose workspace, environment and toolchains the query uses.
	Task string `json:"task" jsonschema:"minLength=1,maxLength=100"`
	// Verify scores the query's rollouts with that task's verifier; otherwise their reward comes from feedback.
	Verify bool `json:"verify,omitempty"`
	// Session is the product's id of the session that the query belongs to: no name, nothing that tells who it is. The run's
	// traffic.rate samples by it.
	Session string `json:"session,omitempty" jsonschema:"maxLength=128"`
	// Consent: the user has agreed that the query is recorded and trained on.
	Consent bool `json:"consent,omitempty"`
}

// TaskSpec is the query as a task: the named one with the query's name and instruction, and its tests only when they are asked for.
func (q QuerySubmitted) TaskSpec(name string, task TaskSpec) TaskSpec {
	task.Name, task.Instruction, task.Steps = name, q.Instruction, nil
	if !q.Verify {
		task.Tests = storage.Ref{}
	}
	return task
}

// Signals of FeedbackRecorded.
const (
	SignalAccept = "accept"
	SignalReject = "reject"
	SignalScore  = "score"
	SignalFollow = "follow_up"
)

// FeedbackRecorded is what a user made of a rollout, whose id is the entity. It is the reward of a rollout without a verifier.
type FeedbackRecorded struct {
	Signal string `json:"signal" jsonschema:"enum=accept,enum=reject,enum=score,enum=follow_up"`
	// Reward of a score, and of a follow-up that tells how good the answer was; any other follow-up is a remark. Accept is 1 and
	// reject 0.
	Reward *float64 `json:"reward,omitempty"`
	Text   string   `json:"text,omitempty" jsonschema:"maxLength=10000"`
}

// Score is the reward that the signal stands for; ok is false for a remark that scores nothing.
func (f FeedbackRecorded) Score() (reward float64, ok bool) {
	switch {
	case f.Signal == SignalAccept:
		return 1, true
	case f.Signal == SignalReject:
		return 0, true
	case (f.Signal == SignalScore || f.Signal == SignalFollow) && f.Reward != nil:
		return *f.Reward, true
	}
	return 0, false
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
