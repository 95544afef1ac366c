package tables

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// RejectedWeights says of an open run of a policy that the last weights of the policy were
// rejected, and that nothing was submitted since: the run opens groups until its bound of staleness
// and stands still then. version is the one that the run has. It is empty where that is not so.
func RejectedWeights(ctx context.Context, log *eventlog.Log, policy string, version int64) (string, error) {
	if policy == "" {
		return "", nil
	}
	last, err := log.LastOfType(ctx, events.Catalogue, events.WeightsRejectedType, policy)
	if errors.Is(err, eventlog.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, later := range []events.Type{events.WeightsSubmittedType, events.WeightsPublishedType} {
		e, err := log.LastOfType(ctx, events.Catalogue, later, policy)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return "", err
		}
		if err == nil && e.Seq > last.Seq {
			return "", nil
		}
	}
	rejected, err := events.Data[events.WeightsRejected](last)
	return fmt.Sprintf("for weights: version %d of policy %s was rejected, and none was submitted since: %s. No groups are opened once staleness.max batches are ahead of version %d",
		rejected.Version, policy, rejected.Reason, version), err
}
