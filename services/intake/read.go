package intake

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/schemas"
)

// readSubject reads run, type and entity of a message from its subject, and refuses types that
// outsiders may not state.
func readSubject(m pipeline.Message) (run string, t events.Type, entity string, err error) {
	run, t, entity, err = events.ParseIntakeSubject(m.Subject)
	if err != nil {
		return run, t, entity, refuse("%v", err)
	}
	return run, t, entity, admitType(t, entity)
}

func admitType(t events.Type, entity string) error {
	switch {
	case !t.IsDefined():
		return refuse("%s: unknown event type; `rondo events schema` lists the types", t)
	case !t.FromOutside():
		return refuse("%s: only Rondo's own services state it; `rondo events schema` lists what outsiders may state", t)
	case t.ExternalOnly() && !events.External(entity):
		return refuse("%s of %s: only Rondo's own services state it; outsiders may state it of groups whose names begin with %s",
			t, entity, events.ExternalPrefix)
	}
	return nil
}

// body is the body of a message, which its sender pays for.
func (s *Service) body(ctx context.Context, from sender, m pipeline.Message) ([]byte, error) {
	if first(m) {
		if err := s.chargeBody(from, m); err != nil {
			return nil, err
		}
	}
	body, err := eventlog.SubmittedBody(ctx, s.log.Store(), m.Header, m.Data)
	if err != nil {
		return nil, s.lostBody(err)
	}
	return body, nil
}

// read goes from a body to the fact that it states, with its payload decoded.
func (s *Service) read(ctx context.Context, m pipeline.Message, run string, t events.Type, entity string,
	body []byte) (fact events.Event, payload any, err error) {
	if err = schemas.Validate(t, body); err == nil {
		payload, err = decode(t, body)
	}
	switch {
	case err != nil && len(m.Header[events.HeaderDataRef]) > 0: // the text of an error may quote the object
		s.logger.WarnContext(ctx, "body refused", "subject", m.Subject, "error", err)
		return fact, nil,
			refuse("%s: the object that is its body does not fit the schema, which `rondo events schema %s` shows",
				t, t)
	case err != nil:
		return fact, nil, refuse("%s: %v", t, err)
	}
	ordinal, err := ordinal(m, t, payload)
	if err != nil {
		return fact, nil, err
	}
	fact = events.Event{
		ID: events.ID(run, t, entity, ordinal), Run: run, Type: t, Entity: entity,
		Source: source(m), Data: body,
	}
	if turn, ok := payload.(*events.TurnSampled); ok { // outsiders write its tokens as JSON
		if fact.Data, err = events.Encode(turn); err != nil {
			return fact, nil, refuse("%s: %v", t, err)
		}
	}
	if t.Routed() {
		// who made it runs its tools; a call on a workspace gets its route when it is admitted
		fact.Route = runfile.RouteFinal
	}
	return fact, payload, nil
}

// decode reads a body that fits its schema. JSON's numbers are wider than Go's,
// so some still do not fit.
func decode(t events.Type, body []byte) (any, error) {
	payload := events.Payload(t)
	return payload, events.Decode(body, payload)
}

// sameContent reports whether two facts of one type say the same, however they are spelled.
func sameContent(a, b events.Event) bool {
	x, errX := decode(a.Type, a.Data)
	y, errY := decode(b.Type, b.Data)
	return a.Type == b.Type && errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// maxName bounds what outsiders call themselves and their messages, in bytes.
const maxName = 128

// ownOrdinal begins the ordinals that the intake gives to messages without an id.
const ownOrdinal = "door-" // an old word for the intake, which stands in recorded events

// ordinal identifies the fact: by itself where it can happen only once or is counted, else by the
// sender's id, else by the message's sequence in the intake's stream. All of them stay the same
// when the message is delivered again.
func ordinal(m pipeline.Message, t events.Type, payload any) (string, error) {
	switch rule := rules[t]; {
	case rule.once:
		return "0", nil
	case rule.ordinal != nil:
		return rule.ordinal(payload), nil
	}
	ids := m.Header[events.HeaderMessageID]
	switch {
	case len(ids) == 0 || len(ids) == 1 && ids[0] == "":
		// The time is for streams that used a sequence twice: a power cut
		// may take the last of them.
		return fmt.Sprintf("%s%d-%d", ownOrdinal, m.Seq, m.Time.UnixNano()), nil
	case len(ids) > 1 || len(ids[0]) > maxName || strings.HasPrefix(ids[0], ownOrdinal):
		return "", refuse("%s %.40q: give one id of at most %d bytes that does not begin with %s",
			events.HeaderMessageID, ids, maxName, ownOrdinal)
	}
	return ids[0], nil
}

// source is who the outsider says it is.
func source(m pipeline.Message) string {
	if v := m.Header[events.HeaderSource]; len(v) == 1 && v[0] != "" && len(v[0]) <= maxName {
		return "outside/" + v[0]
	}
	return "outside"
}
