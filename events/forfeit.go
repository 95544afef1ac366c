package events

import (
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/wording"
)

// Forfeit says why a rollout's tests gave no reward, where that is the doing of its agent: the
// same tests give one over the task's snapshot. Its reward is 0, or less where other
// components weigh against it.
type Forfeit struct {
	// Class is what fault.ClassOf says, or sandbox where that of the tests
	// ended under them, each time.
	Class   string `json:"class" jsonschema:"enum=workspace,enum=timeout,enum=oom,enum=tampered,enum=no_reward,enum=bad_reward,enum=sandbox"`
	Message string `json:"message,omitempty"`
}

// NewForfeit makes one; texts that quote foreign output are cut.
func NewForfeit(class string, cause error) *Forfeit {
	return &Forfeit{Class: class, Message: clip(wording.Plain(cause).Error())}
}

// Flag is the forfeit as one of the flags of a rollout.
func (f Forfeit) Flag() string { return runfile.FlagForfeit + ": " + f.Class }
