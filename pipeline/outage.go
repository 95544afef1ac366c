package pipeline

import (
	"errors"
	"slices"
	"syscall"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/storage"
)

// Outage is the kind of outage of the plane that an error comes of, "" where the model, the task, its sandbox or an inference server may be to blame.
// It is the one line between both: what comes of an outage waits, costs no try and no delivery, and pauses no run.
func Outage(err error) health.Kind {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, storage.ErrUnavailable):
		return health.StoreUnreachable
	case eventlog.IsFull(err):
		return health.LogRefusesWrites
	case eventlog.IsDown(err):
		return health.LogUnreachable
	case errors.Is(err, sandbox.ErrNoRoom):
		return health.DiskFull
	case fault.Inside(err):
		return ""
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return ""
	}
	for kind, list := range machine {
		if slices.Contains(list, errno) {
			return kind
		}
	}
	return ""
}

// machine are the errors of system calls that say nothing of what was asked for.
var machine = map[health.Kind][]syscall.Errno{
	health.DiskFull:  {syscall.ENOSPC, syscall.EDQUOT},
	health.DiskFails: {syscall.EIO, syscall.EROFS, syscall.ESTALE},
	health.Exhausted: {syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOBUFS},
}
