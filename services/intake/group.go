package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// A message about a group may hold the facts of its rollouts, too: its body is a list then. Whoever
// may open a group may state these. All of them are checked before one is recorded, so a refusal
// leaves nothing behind that was not there.

// Bounds of what one message hands in of a group.
const (
	// maxTogether are facts: the opening, and start, end and score of each member.
	maxTogether = 1 + 3*maxMembers
	// maxFiles are the bytes of its trajectories: what a quota lets through at once.
	maxFiles = 1 << 30
)

// together is one fact of a message that has several.
type together struct {
	Type   events.Type     `json:"type"`
	Entity string          `json:"entity"`
	Data   json.RawMessage `json:"data"`
}

func isList(body []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) }

// readTogether reads a list of facts about a group and its rollouts.
func readTogether(body []byte, group string) ([]together, error) {
	var list []together
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, refuse("facts of group %s: want a list of objects with type, entity and data", group)
	}
	if len(list) == 0 || len(list) > maxTogether {
		return nil, refuse("facts of group %s: %d of them: want 1 to %d", group, len(list), maxTogether)
	}
	for i, f := range list {
		switch f.Type {
		case events.GroupOpenedType:
			if i > 0 || f.Entity != group {
				return nil, refuse("fact %d: only the first one may be %s, and of group %s", i, f.Type, group)
			}
		case events.RolloutStartedType, events.RolloutFinishedType, events.RolloutScoredType, events.RolloutFailedType:
			if events.GroupOf(f.Entity) != group || !runfile.ValidToken(f.Entity) {
				return nil, refuse("fact %d: %.100q is no rollout of group %s", i, f.Entity, group)
			}
		default:
			return nil, refuse("fact %d: %.40q cannot be handed in together with others", i, f.Type)
		}
	}
	return list, nil
}

// taking is a group while its facts are checked: what the log has of it, and behind
// that what the message adds.
type taking struct {
	*Service
	m   pipeline.Message
	cfg runfile.RunConfig
	// fresh: the log has nothing of the group.
	fresh  bool
	opened events.GroupOpened
	// rollouts are those that were looked at, with what the message adds.
	rollouts map[string]*member
	facts    []events.Event
}

// member is a rollout of the group: as it will be, and its last link on the log, nil for none.
type member struct {
	rollout events.Rollout
	last    *events.Event
	// added: a fact of the message goes behind the last link.
	added bool
}

// takeGroup takes the facts of a message in that are not on the log yet. stored is
// the opening where that is.
func (s *Service) takeGroup(ctx context.Context, from sender, m pipeline.Message, run, group string,
	body []byte) (facts []events.Event, stored events.Event, err error) {
	list, err := readTogether(body, group)
	if err != nil {
		return nil, stored, err
	}
	if first(m) {
		if err := s.meter.charge(from, float64(len(list)-1), 0); err != nil { // the message was counted as one
			return nil, stored, err
		}
	}
	t := &taking{Service: s, m: m, rollouts: map[string]*member{}}
	if t.cfg, err = s.config(ctx, events.Event{Run: run, Type: events.GroupOpenedType, Entity: group}); err != nil {
		return nil, stored, err
	}
	stated, err := t.read(ctx, run, group, list)
	if err != nil {
		return nil, stored, err
	}
	for i, f := range stated {
		if i == 0 {
			if stored, err = t.open(ctx, f.fact, f.payload); err != nil {
				return nil, stored, err
			}
			if f.fact.Type == events.GroupOpenedType {
				continue
			}
		}
		if err := t.add(ctx, f.fact, f.payload); err != nil {
			return nil, stored, err
		}
	}
	return t.facts, stored, nil
}

// statement is a fact of the message with its payload decoded.
type statement struct {
	fact    events.Event
	payload any
}

// read holds all facts to their schemas, and bounds their files, before one of them is fetched.
func (t *taking) read(ctx context.Context, run, group string, list []together) ([]statement, error) {
	stated, files := make([]statement, len(list)), int64(0)
	for i, f := range list {
		fact, payload, err := t.Service.read(ctx, t.m, run, f.Type, f.Entity, f.Data)
		if err != nil {
			return nil, err
		}
		if finished, ok := payload.(*events.RolloutFinished); ok {
			if files += min(max(finished.Trajectory.Size, 0), maxFiles); files > maxFiles {
				return nil,
					refuse("group %s: its trajectories have more than %d bytes: hand its rollouts in one by one", group,
						maxFiles)
			}
		}
		stated[i] = statement{fact, payload}
	}
	return stated, nil
}

// open looks the group's opening up, or takes it in where there is none.
func (t *taking) open(ctx context.Context, fact events.Event, payload any) (stored events.Event, err error) {
	group := events.GroupOf(fact.Entity)
	stored, err = t.log.LastOfType(ctx, fact.Run, events.GroupOpenedType, group)
	opened, ok := payload.(*events.GroupOpened)
	switch {
	case err == nil:
		t.opened, err = events.Data[events.GroupOpened](stored)
		if err == nil && ok && !sameGroup(*opened, t.opened) {
			err = t.same(fact, stored)
		}
		return stored, err
	case !errors.Is(err, eventlog.ErrNotFound):
		return stored, err
	case !ok:
		return stored, refuse("run %s has no group %q: state %s first", fact.Run, group, events.GroupOpenedType)
	}
	t.opened = *opened
	t.facts, stored, err = t.settle(ctx, t.m, fact, payload)
	t.fresh = len(t.facts) > 0
	return stored, err
}

// sameGroup reports whether an opening is of the group that stands: whoever hands in a member names
// the version that this one began with.
func sameGroup(a, b events.GroupOpened) bool {
	a.PolicyVersion, b.PolicyVersion = 0, 0
	return reflect.DeepEqual(a, b)
}

// sameStart reports whether a start is the one that stands, whose deadline counts: who hands in
// again what was handed in has a later one.
func sameStart(payload any, earlier events.Event) bool {
	started, ok := payload.(*events.RolloutStarted)
	if !ok || earlier.Type != events.RolloutStartedType {
		return false
	}
	stands, err := events.Data[events.RolloutStarted](earlier)
	again := *started
	again.Deadline = stands.Deadline
	return err == nil && reflect.DeepEqual(again, stands)
}

// add takes a fact of a rollout in, behind what the log and the message have of it.
func (t *taking) add(ctx context.Context, fact events.Event, payload any) error {
	r, err := t.member(ctx, fact)
	if err != nil {
		return err
	}
	if r.last != nil {
		earlier, found, err := t.known.find(ctx, *r.last, fact.ID)
		if err != nil {
			return err
		}
		if found && sameStart(payload, earlier) {
			return nil
		}
		if found {
			return t.same(fact, earlier)
		}
	}
	if err := t.admitTogether(ctx, r, fact, payload); err != nil {
		return err
	}
	if !r.added && r.last != nil { // the runtime links those behind it
		fact.Prev = r.last.Seq
	}
	r.added = true
	t.facts = append(t.facts, fact)
	return r.rollout.Extend([]events.Event{fact})
}

// member is the rollout that a fact is about.
func (t *taking) member(ctx context.Context, fact events.Event) (*member, error) {
	r := t.rollouts[fact.Entity]
	if r != nil {
		return r, nil
	}
	r = &member{}
	t.rollouts[fact.Entity] = r
	if t.fresh { // a rollout begins behind its group's opening
		return r, nil
	}
	last, err := t.log.Last(ctx, fact.Run, fact.Type.Kind(), fact.Entity)
	if errors.Is(err, eventlog.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.last = &last
	known, err := t.log.Rollout(ctx, fact.Run, fact.Entity)
	r.rollout = known.Share()
	return r, err
}

// admitTogether checks a fact as admit does, by the group and the rollout as they will be.
func (t *taking) admitTogether(ctx context.Context, r *member, fact events.Event, payload any) error {
	if err := admitReferences(fact, payload); err != nil {
		return err
	}
	begun := r.last != nil || r.added
	started, ok := payload.(*events.RolloutStarted)
	switch {
	case ok && begun:
		return refuse("rollout %s has started already", fact.Entity)
	case ok:
		if !t.fresh {
			if err := t.admitClosed(ctx, fact); err != nil {
				return err
			}
		}
		return t.admitMember(ctx, t.cfg, t.opened, fact, started, t.m.Time)
	case !begun:
		return refuseUnstarted(fact)
	}
	return t.admitNext(ctx, t.cfg, &r.rollout, fact, payload)
}
