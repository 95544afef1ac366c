package eventlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// JetStream error codes of a cluster in transition.
const (
	codeClusterNotAvailable jetstream.ErrorCode = 10008
	codeClusterNotLeader    jetstream.ErrorCode = 10009
	codeStreamOffline       jetstream.ErrorCode = 10118
)

// Away reports whether an error says that the server is away, or does not answer: the same question may be answered later. A time that is over may
// be the server's or the caller's own.
func Away(err error) bool { return unknownOutcome(err) }

// IsDown reports whether an error is the log's own, whatever was asked: the server is away, is starting, or has no leader.
func IsDown(err error) bool {
	var api *jetstream.APIError
	return noAnswer(err) || errors.Is(err, nats.ErrConnectionClosed) || errors.As(err, &api) && api.Code == http.StatusServiceUnavailable && !IsFull(err)
}

// IsFull reports whether an error says that a stream, the server's disk, or what the server may use of it or of the memory has reached its limit.
func IsFull(err error) bool {
	switch apiCode(err) {
	case codeInsufficient, codeNoPeers, codeMemoryFull:
		return true
	}
	return errors.Is(err, ErrStreamFull) || streamFull(err)
}

// unknownOutcome reports whether the request may or may not have been carried out, and may be answered later.
func unknownOutcome(err error) bool { return errors.Is(err, context.DeadlineExceeded) || noAnswer(err) }

func noAnswer(err error) bool {
	switch apiCode(err) {
	case jetstream.JSErrCodeJetStreamNotEnabledForAccount, jetstream.JSErrCodeJetStreamNotEnabled, // the server is starting
		codeClusterNotAvailable, codeClusterNotLeader, codeStreamOffline:
		return true
	}
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// silent makes nats.ErrTimeout of a time that is over and not the caller's own: the server has not answered.
func silent(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
	}
	return err
}

// streamFull reports whether the server refuses an append as the stream, or the server's disk, is at its limit.
func streamFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	// The code of a failed store is shared by messages that are too large, which say "message size exceeds maximum".
	return api.ErrorCode == codeAccountFull || api.ErrorCode == codeStorageFull ||
		api.ErrorCode == codeStoreFailed && strings.HasPrefix(api.Description, "maximum ")
}
