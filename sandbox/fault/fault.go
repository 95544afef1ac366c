// Package fault draws the line between what an agent did and what the machine failed. What the
// agent did is an outcome of its rollout: an answer that its model can react to, or a reward of 0.
// What the machine failed is tried again, then masked, and says nothing of the policy.
package fault

import (
	"errors"
	"slices"
	"syscall"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// ClassWorkspace says that the change cannot be laid over the snapshot. It is too
// large, or no change at all.
const ClassWorkspace = "workspace"

// ClassOf is the class of what the agent did, where an error of a sandbox or a verifier is its
// doing: ClassWorkspace, or a class of the verifier's. It is "" where the error is the machine's.
// Of tests without a verdict that is a suspicion: it is the agent's doing only if the same tests
// give a verdict over the task's own snapshot.
func ClassOf(err error) string {
	var failed *verifier.Error
	if errors.As(err, &failed) {
		return ofTests(failed)
	}
	var at *Error
	if errors.As(err, &at) {
		return operationClass(at.Err)
	}
	return ""
}

// Error is one of an operation in a rollout's own sandbox. Others, such as those of making a
// sandbox, are never the agent's doing.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Mark marks an error as one of an operation in a rollout's own sandbox; nil stays nil.
func Mark(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// FromSandbox reports whether an error came out of a sandbox, or of an operation in one: a full
// disk there is the sandbox's, not the machine's.
func FromSandbox(err error) bool {
	var at *Error
	var told *wire.Error
	return errors.As(err, &at) || errors.As(err, &told)
}

// Ended is Mark for an error of work that does more than operations in the sandbox: only that the
// sandbox ended is marked.
func Ended(err error) error {
	if !errors.Is(err, sandbox.ErrClosed) {
		return err
	}
	return Mark(err)
}

func ofTests(failed *verifier.Error) string {
	switch failed.Class {
	case verifier.ClassTimeout, verifier.ClassMemory, verifier.ClassTampered, verifier.ClassNoReward,
		verifier.ClassBadReward:
		return failed.Class
	case verifier.ClassApply, verifier.ClassSetup:
		if class := operationClass(failed.Err); class != "" ||
			errors.Is(failed.Err, sandbox.ErrClosed) || wornOut(failed.Err) {
			return class
		}
		return ClassWorkspace // an archive that is none, a setup.sh that does not work over it
	}
	if errors.Is(failed.Err, sandbox.ErrOutOfMemory) {
		return verifier.ClassMemory
	}
	return "" // a sandbox could not be made, or ended
}

// operationClass is ClassOf for an operation in a sandbox that works: running calls there, packing
// its workspace, applying a change. A failed system call is about the workspace then, but where
// the machine is worn out.
func operationClass(err error) string {
	var errno syscall.Errno
	switch {
	// the store, whatever system call failed there
	case errors.Is(err, sandbox.ErrSource), errors.Is(err, storage.ErrUnavailable):
		return ""
	case errors.Is(err, sandbox.ErrOutOfMemory), errors.Is(err, syscall.ENOMEM):
		return verifier.ClassMemory
	case errors.Is(err, sandbox.ErrClosed), wornOut(err):
		return ""
	case errors.Is(err, sandbox.ErrTooLarge), errors.Is(err, sandbox.ErrInvalid), errors.As(err, &errno):
		return ClassWorkspace
	}
	return ""
}

// Damaged is EUCLEAN of Linux, by which a file system says that it is damaged; no
// other system has its number.
const Damaged = syscall.Errno(117)

// worn are the errors of a disk, a kernel or a process that is worn out. EBADMSG is one of a
// block with another checksum.
var worn = []syscall.Errno{
	syscall.EIO, Damaged, syscall.EBADMSG, syscall.EDQUOT, syscall.EBADF, syscall.EMFILE, syscall.ENFILE,
	syscall.ESTALE, syscall.EINTR, syscall.ENOSYS,
}

func wornOut(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(worn, errno)
}

// Unclear reports whether a sandbox that had worked ended, or did not answer in time, without a
// reason that says whose doing that is. If it happens each time, and another sandbox of the same
// machine works, it is the doing of what ran inside.
func Unclear(err error) bool {
	var at *Error
	var failed *verifier.Error
	return errors.Is(err, sandbox.ErrClosed) && ClassOf(err) == "" && (errors.As(err, &at) || errors.As(err, &failed))
}
