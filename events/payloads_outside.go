package events

import (
	"encoding/json"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// QuerySubmitted is a wish of somebody outside, a user's prompt, that becomes a group of its own.
type QuerySubmitted struct {
	Instruction string `json:"instruction" jsonschema:"minLength=1,maxLength=100000"`
	// Task names the run's task whose workspace, environment and toolchains the query uses.
	Task string `json:"task" jsonschema:"minLength=1,maxLength=100"`
	// Verify scores the query's rollouts with that task's verifier; otherwise their
	// reward comes from feedback.
	Verify bool `json:"verify,omitempty"`
	// Session is the product's id of the session that the query belongs to: no name, nothing that
	// tells who it is. The run's traffic.rate samples by it.
	Session string `json:"session,omitempty" jsonschema:"maxLength=128"`
	// Consent: the user has agreed that the query is recorded and trained on, with its repository.
	Consent bool `json:"consent,omitempty"`
	// Repository is the user's own, in place of the task's snapshot; nil for the task's.
	Repository *UserRepository `json:"repository,omitempty"`
}

// UserRepository is a user's code, as the sender packed it: a plane fetches nothing.
type UserRepository struct {
	// Archive is a blob in the form of a task's snapshot: a tar of files, folders and links that
	// stay inside, compressed by zstd.
	Archive storage.Ref `json:"archive"`
	// Origin and Commit say where it is from, where that is a Git repository. An
	// origin has no credentials.
	Origin string `json:"origin,omitempty" jsonschema:"maxLength=2000"`
	Commit string `json:"commit,omitempty" jsonschema:"pattern=^([0-9a-f]{40}|[0-9a-f]{64})?$"`
}

// TaskSpec is the query as a task: the named one with the query's name, instruction and repository,
// and its tests only when they are asked for.
func (q QuerySubmitted) TaskSpec(name string, task runfile.TaskSpec) runfile.TaskSpec {
	task.Name, task.Instruction, task.Steps = name, q.Instruction, nil
	if q.Repository != nil {
		task.Snapshot = q.Repository.Archive
	}
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

// FeedbackRecorded is what a user made of a rollout, whose id is the entity. It is the reward of a
// rollout without a verifier.
type FeedbackRecorded struct {
	Signal string `json:"signal" jsonschema:"enum=accept,enum=reject,enum=score,enum=follow_up"`
	// Reward of a score, and of a follow-up that tells how good the answer was; any other follow-up
	// is a remark. Accept is 1 and reject 0.
	Reward *float64 `json:"reward,omitempty"`
	Text   string   `json:"text,omitempty" jsonschema:"maxLength=10000"`
	// Repository is the user's code in the end, with what was changed of the answer to a query; nil
	// where it is not known. A later one takes its place.
	Repository *UserRepository `json:"repository,omitempty"`
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

// MarkRecorded is what a person says of a rollout for other people. Nothing is decided by it, and
// no trainer gets it. It has a chain of its own, so that it never stands in the way of work on the
// rollout. The last one says whether the rollout is marked.
type MarkRecorded struct {
	Marked bool   `json:"marked"`
	Text   string `json:"text,omitempty" jsonschema:"maxLength=2000"`
}

// CaptureBegun says that a model server elsewhere, as NeMo Gym's, is about to make a call that it
// captures for training. A capture is a chain of its own: the calls of one rollout of that
// server's, until whoever trains on them retires it. A call that has begun and has no
// CaptureRecorded is lost. The deltas of an environment server's trace, as of verifiers', are
// recorded in the same way: each is a "call", and so is the end, which alone is begun.
type CaptureBegun struct {
	// Rollout is what the server calls its rollout; Call is the call in it, and
	// the ordinal of the event.
	Rollout string `json:"rollout" jsonschema:"minLength=1,maxLength=1000"`
	Call    string `json:"call" jsonschema:"minLength=1,maxLength=100,pattern=^[A-Za-z0-9._:-]+$"`
}

// CaptureRecorded is a model call with its tokens. Its ordinal is the call,
// so a call has one record.
type CaptureRecorded struct {
	Rollout string `json:"rollout" jsonschema:"minLength=1,maxLength=1000"`
	Call    string `json:"call" jsonschema:"minLength=1,maxLength=100,pattern=^[A-Za-z0-9._:-]+$"`
	// Entry is the record as the server wrote it, a JSON object (CaptureEntry reads of it what
	// Rondo knows). It comes back byte for byte.
	Entry string `json:"entry" jsonschema:"minLength=2,maxLength=67108864"`
}

// CaptureEntry is what Rondo checks of a record. SampledLogs are the natural log-probabilities of
// the sampled tokens. JSON is looser than these are: a decoder takes null for the id 0.
type CaptureEntry struct {
	Rollout     string          `json:"rollout_id"`
	Call        string          `json:"model_call_id"`
	PromptIDs   json.RawMessage `json:"prompt_token_ids"`
	SampledIDs  json.RawMessage `json:"generation_token_ids"`
	SampledLogs []*float32      `json:"generation_log_probs"`
}

// CaptureIncomplete says that a call of the rollout is not recorded and never will be: the
// rollout must not be trained on.
type CaptureIncomplete struct {
	Rollout string `json:"rollout" jsonschema:"minLength=1,maxLength=1000"`
	// Call is "" where nobody knows which one.
	Call string `json:"call,omitempty" jsonschema:"maxLength=100"`
}

// CaptureRetired ends a capture whose calls were handed on. It is refused where the chain's last
// event is not Last: then something was captured since they were read.
type CaptureRetired struct {
	Rollout string `json:"rollout" jsonschema:"minLength=1,maxLength=1000"`
	Last    uint64 `json:"last" jsonschema:"minimum=1"`
}

// captureDigest begins the entities of rollouts whose names are no tokens, or
// look like such an entity.
const captureDigest = "sha256-"

// CaptureEntity is the entity of a rollout's capture: its name where that may be one, else the
// beginning of the name's digest.
func CaptureEntity(rollout string) string {
	if runfile.ValidToken(rollout) && !strings.HasPrefix(rollout, captureDigest) {
		return rollout
	}
	const most = 64 // of a token
	return captureDigest + storage.Digest([]byte(rollout))[:most-len(captureDigest)]
}
