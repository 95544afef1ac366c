// Package outage tells the plane's own faults from those of models, tasks,
// sandboxes and inference servers.
package outage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/storage"
)

// KindOf is the kind of outage of the plane that an error comes of, "" where the model, the task,
// its sandbox or an inference server may be to blame. It is the one line between both: what comes
// of an outage waits, costs no try and no delivery, and pauses no run.
func KindOf(err error) health.Kind {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, storage.ErrUnavailable):
		return health.StoreUnreachable
	case full(err):
		return health.LogRefusesWrites
	case down(err):
		return health.LogUnreachable
	case errors.Is(err, eventlog.ErrRestoring):
		return health.StreamLost
	case errors.Is(err, eventlog.ErrBehind):
		return health.StreamBehind
	case errors.Is(err, sandbox.ErrNoRoom):
		return health.DiskFull
	case fault.FromSandbox(err):
		return ""
	}
	var request interface{ Exhausted() bool } // an inference.Failure
	if errors.As(err, &request) && request.Exhausted() {
		return health.Exhausted
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
	health.DiskFails: {syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.EBADMSG, fault.Damaged},
	health.Exhausted: {syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.ENOBUFS},
}

// JetStream error codes of a server that has no room left.
const (
	accountFull  jetstream.ErrorCode = 10002
	noPeers      jetstream.ErrorCode = 10005
	insufficient jetstream.ErrorCode = 10023
	memoryFull   jetstream.ErrorCode = 10028
	storageFull  jetstream.ErrorCode = 10047
	storeFailed  jetstream.ErrorCode = 10077 // also of messages that are too large, which says nothing of the server
)

// full: a stream, the server's disk, or what the server may use of it or of
// the memory is at its limit.
func full(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return errors.Is(err, eventlog.ErrStreamFull)
	}
	switch api.ErrorCode {
	case accountFull, noPeers, insufficient, memoryFull, storageFull:
		return true
	case storeFailed:
		return !strings.HasPrefix(api.Description, "message size")
	}
	return false
}

// down: the log's server is away, is starting, or has no leader. A time that is
// over may be another one's.
func down(err error) bool {
	var api *jetstream.APIError
	return eventlog.Away(err) && !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrConnectionClosed) ||
		errors.As(err, &api) && api.Code == http.StatusServiceUnavailable
}

// Again is how long what waits for the end of an outage rests until it is tried again.
var Again = retry.Policy{First: time.Second, Most: 15 * time.Second}

// outlastFor is how long work that was done waits in its place for the end of an outage. Most are
// over by then, and what was sampled or run is not done twice.
const outlastFor = 2 * time.Minute

// Outlast does something again as long as it fails by an outage, for outlastFor at most.
// It is for the end of work that is dear: what the outage keeps from being stored is
// lost when the input waits.
func Outlast(ctx context.Context, do func() error) error {
	began := time.Now()
	for failed := 1; ; failed++ {
		err := do()
		if KindOf(err) == "" || ctx.Err() != nil {
			return err
		}
		wait := Again.Delay(failed)
		if time.Since(began)+wait > outlastFor || !retry.Sleep(ctx, wait) {
			return err
		}
	}
}
