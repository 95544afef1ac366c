package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
)

// Limits of what is remembered of replicas.
const (
	maxPolicies  = 1024
	maxActivated = 4096 // of one policy
)

// activations are the versions that servers serve as the log says: what weights.activated states of
// a replica whose name is a server's URL. Until the log has been read to its end nothing is known.
type activations struct {
	mu        sync.Mutex
	read      bool
	seq       uint64
	published map[string]int64                // by policy
	serving   map[string]map[string]activated // by policy and base URL
	promoted  map[string]events.WeightsPromoted
	changed   chan struct{} // closed by each change
}

type activated struct {
	version int64
	lost    bool
	model   string // the name of this version alone, "" where the server knows the policy by one name
}

func newActivations() *activations {
	a := &activations{changed: make(chan struct{})}
	a.forget()
	return a
}

// forget is done where the log is another one.
func (a *activations) forget() {
	a.read, a.seq, a.published, a.serving = false, 0, map[string]int64{}, map[string]map[string]activated{}
	a.promoted = map[string]events.WeightsPromoted{}
}

// take notes an event of the catalogue.
func (a *activations) take(e events.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Seq <= a.seq {
		return nil
	}
	a.seq = e.Seq
	switch e.Type {
	case events.WeightsPublishedType:
		published, err := events.Data[events.WeightsPublished](e)
		if err != nil || published.Version <= a.published[e.Entity] {
			return err
		}
		note(a.published, e.Entity, published.Version, maxPolicies)
	case events.WeightsActivatedType:
		said, err := events.Data[events.WeightsActivated](e)
		if err != nil || !strings.HasPrefix(said.Replica, "http") {
			return err // other names say nothing of an address
		}
		of := a.serving[e.Entity]
		if of == nil {
			of = map[string]activated{}
			note(a.serving, e.Entity, of, maxPolicies)
		}
		note(of, strings.TrimRight(said.Replica, "/"), activated{said.Version, said.Lost, said.Model}, maxActivated)
	case events.WeightsPromotedType:
		promoted, err := events.Data[events.WeightsPromoted](e)
		if err != nil {
			return err
		}
		note(a.promoted, e.Entity, promoted, maxPolicies)
	default:
		return nil
	}
	a.change()
	return nil
}

// note sets a value. A name that is new is left out when there are enough of them; what is said of
// a known one is always heard.
func note[V any](of map[string]V, name string, value V, most int) {
	if _, known := of[name]; known || len(of) < most {
		of[name] = value
	}
}

func (a *activations) change() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// reach notes that the log has been read up to an end.
func (a *activations) reach(end uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.read && a.seq >= end {
		a.read = true
		a.change()
	}
}

// readAgain is how long to wait after a log that could not be read.
var readAgain = retry.Policy{First: time.Second, Most: 30 * time.Second}

// FollowVersions learns from the log which versions servers serve, until the context ends.
// Several may do so at once.
func (f *Fleet) FollowVersions(ctx context.Context, log eventlog.Reader) {
	_ = readAgain.Keep(ctx, func() (bool, error) { return false, f.activations.follow(ctx, log) },
		func(err error, wait time.Duration) {
			f.opts.Logger.Warn("versions of inference servers unavailable",
				"retry_in", wait.Round(time.Millisecond), "error", err)
		})
}

func (a *activations) follow(ctx context.Context, log eventlog.Reader) error {
	in, err := log.Incarnation(ctx, events.Catalogue)
	if err != nil {
		return err
	}
	a.mu.Lock()
	if in.LastSeq < a.seq {
		a.forget()
	}
	from := a.seq + 1
	a.mu.Unlock()
	a.reach(in.LastSeq)
	err = log.FollowStream(ctx, events.Catalogue, in, from, "", func(e events.Event) error {
		defer a.reach(in.LastSeq)
		return a.take(e)
	})
	if errors.Is(err, eventlog.ErrReplaced) {
		a.mu.Lock()
		a.forget()
		a.mu.Unlock()
	}
	return err
}

// bound is how many versions a turn may be behind to be of use to one of the run's feeds.
func bound(cfg *runfile.RunConfig) int64 {
	most := cfg.Staleness.Max
	for _, feed := range cfg.Feeds {
		most = max(most, cfg.StalenessOf(feed).Max)
	}
	return most
}

// usable are the targets whose version a call may be sampled with, and what is wrong with the
// others. changed is closed when that may be no longer so.
func (a *activations) usable(c Call, among []target) (may []target, wrong []string, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cfg := c.Config
	serving := a.serving[cfg.Policy]
	oldest, wanted := a.published[cfg.Policy]-bound(cfg), a.promotedVersion(c)
	if a.read && wanted > 0 && cfg.Endpoint == runfile.BuiltinEndpoint {
		return builtin(cfg.Policy, wanted, among), nil, a.changed
	}
	known := func(t target) bool { _, ok := serving[t.url]; return ok }
	if !a.read || !slices.ContainsFunc(among, known) {
		return among, nil, a.changed
	}
	for _, t := range among {
		switch s := serving[t.url]; {
		case !known(t) && (cfg.RequiresVersions() || wanted > 0):
			wrong = append(wrong, t.url+" says nothing of its version")
		case !known(t):
			may = append(may, t)
		case s.lost:
			wrong = append(wrong, fmt.Sprintf("%s does not serve version %d any more", t.url, s.version))
		case wanted > 0 && s.version != wanted:
			wrong = append(wrong, fmt.Sprintf("%s serves version %d, and %d is promoted", t.url, s.version, wanted))
		case wanted == 0 && cfg.PolicyVersion == nil && s.version < oldest:
			wrong = append(wrong, fmt.Sprintf("%s serves version %d", t.url, s.version))
		default:
			may = append(may, t.withVersion(cfg, s))
		}
	}
	return may, wrong, a.changed
}

// promotedVersion is the version that a rollout gets because it is promoted; 0 for none.
func (a *activations) promotedVersion(c Call) int64 {
	if c.Config.PolicyVersion != nil {
		return 0
	}
	return a.promoted[c.Config.Policy].VersionFor(c.Run, c.Affinity)
}

// builtin asks the built-in policy for a version by its name: it serves every one that was
// published, and says nothing of its address.
func builtin(policy string, version int64, among []target) []target {
	named := slices.Clone(among)
	for i := range named {
		named[i].named = &activated{version: version, model: fmt.Sprintf("%s@%d", policy, version)}
	}
	return named
}

// withVersion is a target that is asked for the version that it serves, where versions have names.
// A pinned run asks for its own by name anyhow.
func (t target) withVersion(cfg *runfile.RunConfig, s activated) target {
	if s.model != "" && cfg.PolicyVersion == nil {
		t.named = &s
	}
	return t
}

// modelName is the name of the model that the server is asked for.
func (t target) modelName() string {
	if t.named != nil {
		return t.named.model
	}
	return t.model
}

// lacksVersion reports whether a server does not know the version any more for which it was asked
// by name: the log says soon what it has.
func (t target) lacksVersion(f *inference.Failure) bool {
	if t.named == nil {
		return false
	}
	text, adapter := f.Error(), t.named.model[strings.Index(t.named.model, ":")+1:]
	// vLLM, and SGLang
	return strings.Contains(text, adapter) &&
		(f.Status == http.StatusNotFound || f.Status == http.StatusBadRequest && strings.Contains(text, "not loaded"))
}

// lagging is when a call may come again whose servers have to load a version.
const lagging = time.Second

// caughtUp are the targets that serve a version which the run may be sampled with. Where none does
// it waits for one, until c.Until.
func (f *Fleet) caughtUp(ctx context.Context, c Call, among []target) ([]target, error) {
	for {
		may, wrong, changed := f.activations.usable(c, among)
		if len(may) > 0 {
			return may, nil
		}
		timer := time.NewTimer(time.Until(c.Until))
		select {
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
			slices.Sort(wrong)
			return nil, &inference.Failure{
				Class: events.ClassEndpoint, Status: http.StatusTooManyRequests, Throttled: true, After: lagging,
				Err: fmt.Errorf("no server has a version of %s that is promoted, or at most %d behind: %s",
					c.Config.Policy, bound(c.Config), strings.Join(wrong, ", ")),
			}
		}
	}
}

// enter takes a place at a server that has caught up, also by the time when there is a place.
func (f *Fleet) enter(ctx context.Context, c Call, targets []target) (target, error) {
	for {
		may, err := f.caughtUp(ctx, c, targets)
		if err != nil {
			return target{}, err
		}
		at, err := f.admit(ctx, c, may)
		if err != nil {
			return target{}, err
		}
		if still, _, _ := f.activations.usable(c, []target{at}); len(still) > 0 {
			return still[0], nil
		}
		f.leave(at)
	}
}

// leave gives a place back that was not used.
func (f *Fleet) leave(at target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.replica.leave(at.since)
	f.serve(time.Now())
}
