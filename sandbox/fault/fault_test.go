package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/storage"
)

// TestWhoseDoing is the line between what an agent did and what the machine failed.
func TestWhoseDoing(t *testing.T) {
	odd := errors.New("odd")
	died := fmt.Errorf("run sh in sandbox x: %w", sandbox.ErrClosed)
	starved := fmt.Errorf("changes in sandbox x: %w (limit 512 MiB): %w", sandbox.ErrOutOfMemory, sandbox.ErrClosed)
	tests := func(class string, err error) error {
		return fmt.Errorf("score: %w", &verifier.Error{Class: class, Err: err})
	}
	for _, c := range []struct {
		what    string
		err     error
		want    string
		unclear bool
	}{
		{"nothing", nil, "", false},
		{"anything", odd, "", false},
		{"a store that is away", fmt.Errorf("snapshot: %w", storage.ErrNotFound), "", false},
		{"a corrupt object", storage.ErrCorrupt, "", false},
		{"too little isolation", sandbox.ErrIsolation, "", false},
		{"a full disk of the host", &os.PathError{Op: "mkdir", Path: "/x", Err: syscall.ENOSPC}, "", false},
		{"a sandbox that cannot be made", fmt.Errorf("make sandbox x: %w", syscall.EAGAIN), "", false},
		{"a sandbox that ended, nobody knows where", died, "", false},

		{"a workspace too large", fault.Mark(fmt.Errorf("changes: %w", sandbox.ErrTooLarge)),
			fault.ClassWorkspace, false},
		{"a workspace that is refused", fault.Mark(sandbox.ErrInvalid), fault.ClassWorkspace, false},
		{"a full disk inside", fault.Mark(fmt.Errorf("apply: %w", syscall.ENOSPC)), fault.ClassWorkspace, false},
		{"a name too long", fault.Mark(syscall.ENAMETOOLONG), fault.ClassWorkspace, false},
		{"a file that is gone", fault.Mark(fs.ErrNotExist), "", false},
		{"a store that fails below a change", fault.Mark(fmt.Errorf("apply: %w: %w", sandbox.ErrSource,
			syscall.EACCES)), "", false},
		{"the same, where the object is too large", fault.Mark(fmt.Errorf("apply: %w: %w", sandbox.ErrSource,
			sandbox.ErrTooLarge)), "", false},
		{"no memory inside", fault.Mark(syscall.ENOMEM), verifier.ClassMemory, false},
		{"a sandbox without memory", fault.Mark(starved), verifier.ClassMemory, false},
		{"a disk that cannot be read", fault.Mark(syscall.EIO), "", false},
		{"a damaged file system", fault.Mark(fault.Damaged), "", false},
		{"a wrong checksum", fault.Mark(syscall.EBADMSG), "", false},
		{"a quota of the host", fault.Mark(syscall.EDQUOT), "", false},
		{"too many open files", fault.Mark(syscall.EMFILE), "", false},
		{"a rollout's sandbox that ended", fault.Mark(died), "", true},
		{"the same, in work that does more", fault.Ended(died), "", true},
		{"a server that refuses", fault.Ended(syscall.ECONNREFUSED), "", false},
		{"a time that is over", fault.Mark(context.DeadlineExceeded), "", false},

		{"tests that hang", tests(verifier.ClassTimeout, odd), verifier.ClassTimeout, false},
		{"tests without memory", tests(verifier.ClassMemory, odd), verifier.ClassMemory, false},
		{"tests that were killed", tests(verifier.ClassTampered, odd), verifier.ClassTampered, false},
		{"tests without a reward", tests(verifier.ClassNoReward, odd), verifier.ClassNoReward, false},
		{"tests with a bad reward", tests(verifier.ClassBadReward, odd), verifier.ClassBadReward, false},
		{"a change that does not fit", tests(verifier.ClassApply, syscall.ENOSPC), fault.ClassWorkspace, false},
		{"a change that is none", tests(verifier.ClassApply, odd), fault.ClassWorkspace, false},
		{"a setup.sh that fails", tests(verifier.ClassSetup, odd), fault.ClassWorkspace, false},
		{"a change over a worn disk", tests(verifier.ClassApply, syscall.EIO), "", false},
		{"a change that the store does not give", tests(verifier.ClassSandbox,
			fmt.Errorf("%w: %w", sandbox.ErrSource, syscall.EACCES)), "", false},
		{"a sandbox that ended below a change", tests(verifier.ClassApply, died), "", true},
		{"a sandbox for tests that cannot be made", tests(verifier.ClassSandbox, syscall.ENOSPC), "", false},
		{"a sandbox that ended below the tests", tests(verifier.ClassSandbox, died), "", true},
		{"one that ended without memory", tests(verifier.ClassSandbox, starved), verifier.ClassMemory, false},
	} {
		if got := fault.ClassOf(c.err); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if got := fault.Unclear(c.err); got != c.unclear {
			t.Errorf("%s: unclear is %v", c.what, got)
		}
	}
}
