package events

import (
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

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
	// Consent: the user has agreed that the query is recorded and trained on, with its repository.
	Consent bool `json:"consent,omitempty"`
	// Repository is the user's own, in place of the task's snapshot; nil for the task's.
	Repository *QueryRepository `json:"repository,omitempty"`
}

// QueryRepository is the code that a query is about, as the sender packed it: a plane fetches nothing.
type QueryRepository struct {
	// Archive is a blob in the form of a task's snapshot: a tar of files, folders and links that stay inside, compressed by zstd.
	Archive storage.Ref `json:"archive"`
	// Origin and Commit say where it is from, where that is a Git repository. An origin has no credentials.
	Origin string `json:"origin,omitempty" jsonschema:"maxLength=2000"`
	Commit string `json:"commit,omitempty" jsonschema:"pattern=^([0-9a-f]{40}|[0-9a-f]{64})?$"`
}

// TaskSpec is the query as a task: the named one with the query's name, instruction and repository, and its tests only when they are asked for.
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
