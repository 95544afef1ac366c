package intake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
)

// sender is who a message is counted for. The server tells nobody which user sent a stored
// message, but its permissions hold each user to a run, a role, and a feed or policy, and a
// message's subject names these.
type sender struct {
	name string
	// role is the sender's part of the name that does not grow with runs, for metrics.
	role string
	// stranger: the log knows nothing of the run or policy that the message names. Whoever may name
	// any could have as many names as messages.
	stranger bool
}

// otherRole is the role of messages that no role may send.
const otherRole = "other"

// rememberedRuns bounds the runs, policies and repositories that are known to exist.
const rememberedRuns = 4096

// senders tells senders apart.
type senders struct {
	log eventlog.Reader
	// feeds are those of each run that exists; policies and repositories have none.
	feeds *lru.Cache[string, []string]
}

func newSenders(log eventlog.Reader) (*senders, error) {
	feeds, err := lru.New[string, []string](rememberedRuns)
	return &senders{log: log, feeds: feeds}, err
}

// find is who sent a message to a subject.
func (s *senders) find(ctx context.Context, subject string) (sender, error) {
	tokens := strings.SplitN(strings.TrimPrefix(subject, events.IntakePrefix), ".", 5)
	if len(tokens) != 4 {
		_, known, err := s.run(ctx, tokens[0])
		return sender{name: otherRole + " of run " + tokens[0], role: otherRole, stranger: !known}, err
	}
	run, kind, entity, t := tokens[0], tokens[1], tokens[2], events.Type(tokens[1]+"."+tokens[3])
	role := roleOf(t)
	if run == events.Catalogue {
		known, err := s.entity(ctx, t, entity)
		return sender{name: fmt.Sprintf("%s of %s %s", role, kind, entity), role: role, stranger: !known}, err
	}
	feeds, known, err := s.run(ctx, run)
	about := "run " + run
	if kind == events.BatchReadyType.Kind() && slices.Contains(feeds, entity) {
		about = "feed " + entity + " of " + about
	}
	return sender{name: role + " of " + about, role: role, stranger: !known}, err
}

// harness is who brings the rollouts of a run.
func harness(run string) sender {
	return sender{name: fmt.Sprintf("%s of run %s", topology.RoleHarness, run), role: string(topology.RoleHarness)}
}

// product is who brings a run's queries.
func product(run string) sender {
	return sender{name: fmt.Sprintf("%s of run %s", topology.RoleProduct, run), role: string(topology.RoleProduct)}
}

// roleOf is the one role that may submit a type; types that several roles may submit
// are counted by themselves.
func roleOf(t events.Type) string {
	role := ""
	for _, r := range topology.Roles {
		if !slices.Contains(r.States, t) {
			continue
		}
		if role != "" {
			return string(t)
		}
		role = string(r.Role)
	}
	switch {
	case role != "":
		return role
	case t.IsDefined() && t.FromOutside():
		return string(t)
	}
	return otherRole
}

// run reports whether a run exists, and its feeds.
func (s *senders) run(ctx context.Context, run string) (feeds []string, known bool, err error) {
	if feeds, known = s.feeds.Get(run); known {
		return feeds, true, nil
	}
	if !events.ValidRun(run) {
		return nil, false, nil
	}
	cfg, err := s.log.Config(ctx, run)
	if err != nil {
		return nil, false, unlessAbsent(err)
	}
	for _, f := range cfg.Feeds {
		feeds = append(feeds, f.Name)
	}
	s.feeds.Add(run, feeds)
	return feeds, true, nil
}

// entity reports whether the catalogue has events of a policy or repository.
func (s *senders) entity(ctx context.Context, t events.Type, entity string) (known bool, err error) {
	place := t.Kind() + "." + entity // which is the name of no run
	if s.feeds.Contains(place) {
		return true, nil
	}
	if !t.CatalogueOnly() || !t.FromOutside() || !runfile.ValidToken(entity) {
		return false, nil
	}
	if _, err := s.log.Last(ctx, events.Catalogue, t.Kind(), entity); err != nil {
		return false, unlessAbsent(err)
	}
	s.feeds.Add(place, nil)
	return true, nil
}

// unlessAbsent passes on errors other than that there is nothing, or nothing that can be read.
func unlessAbsent(err error) error {
	if errors.Is(err, eventlog.ErrNotFound) || errors.Is(err, events.ErrMalformed) ||
		errors.Is(err, events.ErrSubject) {
		return nil
	}
	return err
}
