package gc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// weightNeeds is who may still need which versions and files of a policy, by the catalogue, the
// open runs and the intake's queue.
type weightNeeds struct {
	log    eventlog.Archive
	policy string
	last   uint64 // of the catalogue
	runs   map[string]runfile.RunConfig
	// published are the versions, in their order.
	published []events.WeightsPublished
	submitted map[uint64]events.WeightsSubmitted // not answered yet
	serves    map[string]int64                   // replica → version
	promoted  events.WeightsPromoted

	pinned map[int64]string // version → who needs it
	from   int64            // all versions from this one on are needed
	by     string           // by whom
	files  map[string]bool  // of submissions that are not answered
}

func newWeightNeeds(log eventlog.Archive, policy string) *weightNeeds {
	return &weightNeeds{log: log, policy: policy, runs: map[string]runfile.RunConfig{},
		submitted: map[uint64]events.WeightsSubmitted{}, serves: map[string]int64{}}
}

// needs says who may need a version; "" is nobody.
func (n *weightNeeds) needs(version int64) string {
	if version >= n.from {
		return n.by
	}
	return n.pinned[version]
}

// read reads what is new. The intake's queue comes first: what leaves it is in the catalogue then.
func (n *weightNeeds) read(ctx context.Context) error {
	n.files = map[string]bool{}
	err := n.log.ReachSubmissions(ctx, func(key string) error {
		n.files[key] = true
		return nil
	})
	if err != nil {
		return err
	}
	for e, err := range n.log.All(ctx, events.Catalogue, n.last+1) {
		if err == nil {
			err = n.apply(e)
		}
		if err != nil {
			return fmt.Errorf("read the catalogue: %w", err)
		}
	}
	for _, s := range n.submitted {
		for _, file := range s.Files {
			n.files[file.Blob.Key] = true
		}
		if s.Delta != nil {
			n.files[s.Delta.Blob.Key] = true
		}
	}
	return n.reach(ctx)
}

func (n *weightNeeds) apply(e events.Event) (err error) {
	n.last = e.Seq
	switch {
	case e.Type == events.RunOpenedType:
		opened, err := events.Data[events.RunOpened](e)
		if err == nil && opened.Config.Policy == n.policy {
			n.runs[e.Entity] = opened.Config
		}
		return err
	case e.Type == events.RunClosedType:
		delete(n.runs, e.Entity)
	case e.Entity != n.policy:
	case e.Type == events.WeightsSubmittedType:
		n.submitted[e.Seq], err = events.Data[events.WeightsSubmitted](e)
	case e.Type == events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		if err != nil {
			return err
		}
		n.published = append(n.published, published)
		for seq, s := range n.submitted {
			if s.Version <= published.Version { // versions only grow
				delete(n.submitted, seq)
			}
		}
	case e.Type == events.WeightsRejectedType:
		for seq := range n.submitted {
			if strings.HasSuffix(e.ID, fmt.Sprintf("/submission-%d", seq)) {
				delete(n.submitted, seq)
			}
		}
	case e.Type == events.WeightsPromotedType:
		n.promoted, err = events.Data[events.WeightsPromoted](e)
	case e.Type == events.WeightsActivatedType:
		said, err := events.Data[events.WeightsActivated](e)
		if err != nil {
			return err
		}
		n.serves[said.Replica] = said.Version
		if said.Lost {
			delete(n.serves, said.Replica)
		}
	}
	return err
}

// reach finds the versions that open runs and replicas may need.
func (n *weightNeeds) reach(ctx context.Context) error {
	n.pinned, n.from, n.by = map[int64]string{}, 1<<62, ""
	for name, version := range n.serves {
		n.pinned[version] = "replica " + name + " serves it"
	}
	if n.promoted.Version > 0 { // 0 is the newest
		n.pinned[n.promoted.Version] = "it is promoted"
	}
	if n.promoted.Before > 0 {
		n.pinned[n.promoted.Before] = "a rollback returns to it"
	}
	for run, cfg := range n.runs {
		if pinned := cfg.PolicyVersion; pinned != nil {
			n.pinned[*pinned] = "open run " + run + " samples it"
			continue
		}
		from, by, err := n.reachOf(ctx, run, cfg)
		if err != nil {
			return err
		}
		if from < n.from || from == n.from && by < n.by {
			n.from, n.by = from, by
		}
	}
	return nil
}

// reachOf is the oldest version that an open run may need: by its bound of staleness, or as its
// trainer goes on at its checkpoint. One that knows no version yet may need all.
func (n *weightNeeds) reachOf(ctx context.Context, run string,
	cfg runfile.RunConfig) (from int64, by string, err error) {
	told, _, err := n.log.Published(ctx, run, n.policy)
	if err != nil {
		return 0, "", err
	}
	from, by = told.Version, fmt.Sprintf("open run %s is at version %d", run, told.Version)
	for _, feed := range cfg.Feeds {
		if bound := told.Version - cfg.StalenessOf(feed).Max; bound < from {
			from, by = bound, fmt.Sprintf("open run %s trains on rollouts of versions from %d on", run, max(0, bound))
		}
		saved, err := n.log.LastOfType(ctx, run, events.BatchCheckpointedType, feed.Name)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, "", err
		}
		checkpoint, err := events.Data[events.BatchCheckpointed](saved)
		if err != nil {
			return 0, "", err
		}
		if version, ok := n.covering(run, checkpoint.Step); ok && version < from {
			from, by = version, fmt.Sprintf("the trainer of open run %s goes on at step %d, with version %d", run,
				checkpoint.Step, version)
		}
	}
	return from, by, nil
}

// covering is the newest version that was trained on a run's batches up to a step.
func (n *weightNeeds) covering(run string, step int64) (version int64, ok bool) {
	for _, p := range n.published {
		if p.Run == run && p.ThroughStep <= step {
			version, ok = max(version, p.Version), true
		}
	}
	return version, ok
}
