package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runtime"
	"github.com/rondo-rl/rondo/storage"
)

// refusal is an answer to the outsider: the message is wrong and will not become right.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// inbox is a reply subject as NATS clients make them. Nobody may make the intake publish elsewhere.
var inbox = regexp.MustCompile(`^_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}$`)

// answer tells the outsider over core NATS.
func (s *Service) answer(m runtime.Message, a events.DoorAnswer) {
	reply := m.Header[events.HeaderReply]
	if len(reply) != 1 || !inbox.MatchString(reply[0]) {
		return
	}
	if body, err := json.Marshal(a); err == nil {
		// An answer that is lost leaves the fact on the log; the outsider may ask again with the same id.
		_ = s.log.Conn().Publish(reply[0], body)
	}
}

// refusedShare is the part of the catalogue's stream up to which refused messages are recorded: a flood of them
// must leave room for weights and runs.
const refusedShare = 0.5

// deadLetter records a refused message: nothing vanishes silently. Each has a chain of its own, so that many
// can be recorded at once.
func (s *Service) deadLetter(ctx context.Context, m runtime.Message, cause *refusal) error {
	full, err := s.log.Fill(ctx, events.Catalogue)
	if err != nil {
		return err
	}
	if full > refusedShare {
		s.logger.Error("a refused message is not recorded: the catalogue is too full", "subject", m.Subject, "sequence", m.Seq, "reason", cause.reason, "full", full)
		return nil
	}
	dead := events.DeadLettered{
		Stream: events.DoorStream, Sequence: m.Seq, Consumer: events.ConsumersOf(events.Intake)[0].Name,
		Subject: m.Subject, Reason: cause.reason,
	}
	if !personal(m) {
		body, err := storage.PutBlob(ctx, s.log.Store(), m.Data)
		if err != nil {
			return err
		}
		dead.Body = &body
	}
	letter, err := events.New(events.Catalogue, events.DeadLetteredType, fmt.Sprintf("%s-%d", events.DoorStream, m.Seq), "0", dead)
	if err != nil {
		return err
	}
	letter.Source = events.Intake
	_, _, err = s.log.Append(ctx, letter)
	return err
}

// personal reports whether a message is of a user. What users wrote, and their sessions, are not kept when they are refused: they
// may not have agreed, and whether they have is not known of what cannot be read.
func personal(m runtime.Message) bool {
	_, t, _, err := events.ParseDoorSubject(m.Subject)
	if err != nil {
		return false
	}
	switch t {
	case events.QuerySubmittedType, events.FeedbackRecordedType:
		return true
	case events.GroupOpenedType:
		var group events.GroupOpened
		return json.Unmarshal(m.Data, &group) != nil || group.Session != ""
	}
	return false
}
