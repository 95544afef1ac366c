package faults

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// hostile submits nonsense of every type that outsiders may state but those that open, pause and
// end runs. What fits its schema is about entities that there are not: an outsider may rewind a
// feed. What does not is about all kinds of them, and none of it may be taken.
func (tr *trial) hostile(ctx context.Context) {
	ends := []events.Type{events.RunClosedType, events.RunPausedType, events.RunResumedType, events.RunOpenedType}
	nowhere := []string{nobody, "a.b", "*", ">", "", "_", "\x00"}
	entities := append([]string{run, "trainer", "g000001", "g000001-0", "g000001-1", "policy"}, nowhere...)
	draw, refused := payloads{tr.chance}, 0
	for _, typ := range events.Types() {
		if !typ.FromOutside() || slices.Contains(ends, typ) {
			continue
		}
		body, fits, err := draw.nonsense(typ)
		if err != nil {
			tr.t.Error(err)
			return
		}
		about := entities
		if fits {
			about = nowhere
		}
		entity, in := about[tr.chance.IntN(len(about))], run
		if typ.CatalogueOnly() {
			in = events.Catalogue
		}
		answer, err := tr.submit(ctx, in, typ, entity, body)
		switch {
		case err != nil: // nobody has answered
		case answer.Error != "":
			refused++
		case !fits:
			tr.t.Errorf("%s of %q was taken, and breaks its schema: %.200s", typ, entity, body)
		}
	}
	tr.t.Logf("%d hostile submissions were refused", refused)
}

// submit submits a body as the Log does, or by hand with the headers of an event that the
// sender has made himself.
func (tr *trial) submit(ctx context.Context, in string, typ events.Type, entity string,
	body []byte) (answer events.IntakeAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if json.Valid(body) && tr.chance.IntN(2) == 0 {
		answer, err := tr.log.Submitter.Submit(ctx, eventlog.Submission{Run: in, Type: typ, Entity: entity,
			Data: json.RawMessage(body)})
		if errors.Is(err, eventlog.ErrRefused) {
			err = nil
		}
		return answer, err
	}
	nc := tr.log.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return answer, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	m := nats.NewMsg(events.IntakeSubject(in, typ, entity))
	m.Data = body
	m.Header = nats.Header{
		"ce-type": {string(typ)}, "ce-id": {events.ID(in, typ, entity, "0")}, "ce-prev": {"1"},
		"ce-specversion": {"1.0"}, "ce-source": {"querysampler"},
		events.HeaderReply: {sub.Subject},
	}
	if err := nc.PublishMsg(m); err != nil {
		return answer, err
	}
	said, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(said.Data, &answer)
}
