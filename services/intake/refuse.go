package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// refusal is an answer to the outsider: the message is wrong and will not become right.
type refusal struct {
	reason string
	// again is set where only a quota is spent: the time after which the same
	// message may be taken in.
	again time.Duration
}

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error {
	return &refusal{reason: fmt.Sprintf(format, wording.Args(args)...)}
}

// secondLook is when a message is looked at again that the intake would refuse at the first look,
// where the log has replicas.
const secondLook = 300 * time.Millisecond

// early reports whether a refusal may come too early: an outsider has read something from one
// replica, and the leader that the intake asks does not have it yet.
func (s *Service) early(ctx context.Context, m pipeline.Message) (bool, error) {
	run, _, _, err := events.ParseIntakeSubject(m.Subject)
	if m.Delivered > 1 || err != nil {
		return false, nil
	}
	for _, run := range []string{run, events.Catalogue} {
		if replicated, err := s.streams.Replicated(ctx, run); replicated || err != nil {
			return replicated, err
		}
	}
	return false, nil
}

// first reports whether a message is looked at for the first time, which is
// when its sender pays for it.
func first(m pipeline.Message) bool { return !m.Again && m.Delivered <= 1 }

// inbox is a reply subject as NATS clients make them. Nobody may make the intake publish elsewhere.
var inbox = regexp.MustCompile(`^_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}$`)

// answer tells the outsider over core NATS.
func (s *Service) answer(m pipeline.Message, a events.IntakeAnswer) {
	s.answerTo(replyTo(m), a)
}

// replyTo is where a message's sender waits for an answer, "" where it names no inbox.
func replyTo(m pipeline.Message) string {
	if reply := m.Header[events.HeaderReply]; len(reply) == 1 && inbox.MatchString(reply[0]) {
		return reply[0]
	}
	return ""
}

func (s *Service) answerTo(reply string, a events.IntakeAnswer) {
	if reply == "" {
		return
	}
	if body, err := json.Marshal(a); err == nil {
		// An answer that is lost leaves the fact on the log; the outsider may
		// ask again with the same id.
		_ = s.nc.Publish(reply, body)
	}
}

// refusedShare is the part of the catalogue's stream up to which refused messages are recorded: a
// flood of them must leave room for weights and runs.
const refusedShare = 0.5

// deadLetter is the record of a refused message, within the quota of whoever sent it: beyond
// it messages are answered and counted, and it is nil, as where an earlier delivery recorded
// it. Each has a chain of its own, so that many can be recorded at once, and that no link
// misses it when it expires.
func (s *Service) deadLetter(ctx context.Context, from sender, m pipeline.Message,
	cause *refusal) (*events.Event, error) {
	queue, _ := topology.QueueOf(m.Subject)
	dead := events.DeadLettered{
		Stream: events.IntakeStream, Sequence: m.Seq, Consumer: topology.ConsumersOf(
			topology.Intake)[0].ForQueue(queue).Name,
		Subject: m.Subject, Reason: cause.reason,
	}
	entity := fmt.Sprintf("%s-%d", events.IntakeStream, m.Seq)
	if stated, err := s.log.Has(ctx, events.Catalogue,
		events.Chain(events.Catalogue, events.DeadLetteredType.Kind(), entity)); err != nil || stated {
		return nil, err
	}
	if !s.meter.records(from) {
		s.meter.count(from, "unrecorded")
		return nil, nil
	}
	full, err := s.log.Fill(ctx, events.Catalogue)
	if err != nil {
		return nil, err
	}
	if full > refusedShare {
		s.meter.count(from, "unrecorded")
		s.logger.ErrorContext(ctx, "dead letter not recorded", "subject", m.Subject, "sequence", m.Seq,
			"reason", cause.reason, "full", full)
		return nil, nil
	}
	if !personal(m) {
		body, err := storage.PutBlob(ctx, s.log.Store(), m.Data)
		if err != nil {
			return nil, err
		}
		dead.Body = &body
	}
	letter, err := events.New(events.Catalogue, events.DeadLetteredType, entity, "0", dead)
	letter.Expires = s.meter.quotas.DeadLettersFor
	return &letter, err
}

// personal reports whether a message is what a person wrote. What users wrote, and their
// sessions, are not kept when they are refused: they may not have agreed, and whether they have
// is not known of what cannot be read.
func personal(m pipeline.Message) bool {
	_, t, _, err := events.ParseIntakeSubject(m.Subject)
	if err != nil {
		return false
	}
	switch t {
	case events.QuerySubmittedType, events.FeedbackRecordedType, events.MarkRecordedType:
		return true
	case events.GroupOpenedType:
		list := []together{{Type: t, Data: m.Data}}
		if isList(m.Data) && json.Unmarshal(m.Data, &list) != nil {
			return true
		}
		return slices.ContainsFunc(list, func(f together) bool {
			var group events.GroupOpened
			return f.Type == t && (json.Unmarshal(f.Data, &group) != nil || group.Session != "")
		})
	}
	return false
}
