package intake

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

// Refusals are answered to whoever sent a message, so none of them holds anything that was
// computed from an object's content: no digest, no size, no text of a file. What was found
// goes into the intake's log.

// admitReferences refuses references to objects outside of the sender's own prefixes, before any
// object is opened. The payload is checked as it was decoded: the message may spell it otherwise.
func admitReferences(fact events.Event, payload any) error {
	document, err := json.Marshal(payload)
	if err == nil {
		err = topology.CheckReferences(fact.Type, fact.Run, fact.Entity, document)
	}
	if err != nil {
		return refuse("%s: %v", fact.Type, err)
	}
	return nil
}

// object fetches an object of at most most bytes that a checked reference names.
func (s *Service) object(ctx context.Context, from sender, field string, ref storage.Ref, most int64) ([]byte, error) {
	if ref.Size > most {
		return nil, refuse("%s: %d bytes, at most %d", field, ref.Size, most)
	}
	if err := s.meter.read(from, ref.Size); err != nil {
		return nil, err
	}
	data, err := storage.GetBlob(ctx, s.log.Store(), ref)
	return data, s.refuseLost(field, ref, err)
}

// admitBlob checks that the store holds the blob of at most most bytes that a
// fact names, if it names one.
func (s *Service) admitBlob(ctx context.Context, from sender, field string, ref *storage.Ref, most int64) error {
	if ref == nil {
		return nil
	}
	if err := topology.CheckBlob(*ref); err != nil {
		return refuse("%s: %v", field, err)
	}
	if ref.Size > most {
		return refuse("%s: %d bytes, at most %d", field, ref.Size, most)
	}
	if err := s.meter.read(from, ref.Size); err != nil {
		return err
	}
	return s.refuseLost(field, *ref, storage.VerifyBlob(ctx, s.log.Store(), *ref))
}

// refuseLost refuses a reference that the store does not hold, in the same words whatever is there,
// and lets the message come again when the store fails.
func (s *Service) refuseLost(field string, ref storage.Ref, err error) error {
	if !storage.IsUnusable(err) {
		return err
	}
	s.logger.Warn("object refused", "field", field, "key", ref.Key, "error", err)
	return refuse("%s: the store has no object %.200q of %d bytes with that sha256", field, ref.Key, ref.Size)
}

// chargeBody counts the body that a message refers to.
func (s *Service) chargeBody(from sender, m pipeline.Message) error {
	var ref storage.Ref
	if len(m.Header[events.HeaderDataRef]) == 0 || json.Unmarshal(m.Data, &ref) != nil || ref.Size < 0 {
		return nil
	}
	return s.meter.read(from, ref.Size)
}

// lostBody is the same for the body of a message.
func (s *Service) lostBody(err error) error {
	switch {
	case errors.Is(err, events.ErrMalformed) || errors.Is(err, storage.ErrTooLarge): // of the reference itself
		return refuse("body: %v", err)
	case storage.IsUnusable(err):
		s.logger.Warn("body refused", "error", err)
		return refuse("body: the store has no blob of the size and the sha256 that its reference names")
	}
	return err
}
