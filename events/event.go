// Package events says what can happen in a run: the event types and their payloads, the
// subjects that carry them, and the codec between an [Event] and a NATS message
// (CloudEvents 1.0, binary mode).
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Catalogue is the reserved run name of facts that outlive a run: weights,
// run openings, dead letters.
const Catalogue = "_"

// Event is one immutable fact as it stands on the log.
type Event struct {
	// <run>/<entity>.<id>/<type>/<ordinal>: derived, so that doing the same thing
	// twice names the same event
	ID     string
	Run    string
	Type   Type
	Entity string // id of the entity, for example g000123-4
	Route  string // last subject token of routed types: who should act on it; "" where the type has no route
	Source string // the service or outsider that stated the fact
	Time   time.Time
	// Prev is the stream sequence of the link before this one in its
	// entity's chain, 0 for the first.
	Prev uint64
	// Seq is the stream sequence, 0 until the event is on the log.
	Seq uint64
	// AsOf and DecidedAt are set on decided facts: the last sequence that the
	// decision saw, and its clock.
	AsOf      uint64
	DecidedAt time.Time
	// TraceParent is the W3C trace context of the work that caused the event.
	TraceParent string
	// Data is the payload as it is on the log, packed or not: see Decode and JSON.
	Data json.RawMessage
	// Expires is after what time the server removes the event, at least a second; 0 is never. It is
	// no part of the recorded event. Only an event of the catalogue that is alone on its chain may
	// expire: no link may be missing behind another one.
	Expires time.Duration
	// version is the data version of Data where that is a later one than
	// this program writes; else 0.
	version int
}

// New makes an event whose identity is derived from what it is about. Ordinal tells events of one
// type and entity apart: the turn, the step, the version.
func New(run string, t Type, entity, ordinal string, data any) (Event, error) {
	body, err := Encode(data)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s of %s: %w", t, entity, err)
	}
	return Event{ID: ID(run, t, entity, ordinal), Run: run, Type: t, Entity: entity, Data: body}, nil
}

// ID derives an event's identity.
func ID(run string, t Type, entity, ordinal string) string {
	return run + "/" + t.Kind() + "." + entity + "/" + t.Name() + "/" + ordinal
}

// Ordinal formats a number as the last part of an event's identity.
func Ordinal[N ~int | ~int32 | ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// Data decodes the payload of an event whose type the caller has looked at.
func Data[T any](e Event) (T, error) {
	var v T
	if err := Decode(e.Data, &v); err != nil {
		return v, fmt.Errorf("read %s: %w", e.ID, err)
	}
	return v, nil
}

// Chain is the subject filter over all links of one entity. It is the only place that spells the
// filter: the server compares filter strings literally when it looks for appends in flight.
func Chain(run string, kind, entity string) string {
	return SubjectPrefix + run + "." + kind + "." + entity + ".>"
}

// Chain is the filter over the chain that the event is, or will be, a link of.
func (e Event) Chain() string { return Chain(e.Run, e.Type.Kind(), e.Entity) }

// SubjectPrefix begins the subject of every event on the log.
const SubjectPrefix = "rondo.v1."

// Subject is where the event lives: rondo.v1.<run>.<kind>.<entity>.<type>[.<route>].
func (e Event) Subject() string {
	s := SubjectPrefix + e.Run + "." + e.Type.Kind() + "." + e.Entity + "." + e.Type.Name()
	if e.Route != "" {
		s += "." + e.Route
	}
	return s
}

// ErrSubject marks a subject that names no event.
var ErrSubject = errors.New("not an event subject")

// parseSubject fills run, type, entity and route. An unknown type parses: an older reader skips it.
func (e *Event) parseSubject(subject string) error {
	rest, ok := strings.CutPrefix(subject, SubjectPrefix)
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) < 4 || len(tokens) > 5 {
		return fmt.Errorf("%w: %q", ErrSubject, subject)
	}
	e.Run, e.Entity = tokens[0], tokens[2]
	e.Type = Type(tokens[1] + "." + tokens[3])
	if len(tokens) == 5 {
		e.Route = tokens[4]
	}
	return nil
}

// ValidRun reports whether s may name a run: a token whose stream is not one of the fixed ones.
func ValidRun(s string) bool {
	run, ok := RunOfStream(RunStream(s))
	return ok && run == s && s != Catalogue && runfile.ValidToken(s)
}

// GroupID is the identity of the n-th group of a run, counted from 1.
func GroupID(n int64) string { return fmt.Sprintf("g%06d", n) }

// RolloutID is the identity of member i of a group, counted from 0.
func RolloutID(group string, i int) string { return group + "-" + strconv.Itoa(i) }

// ExternalPrefix begins the names of groups, and so of rollouts, that outsiders submit.
const ExternalPrefix = "x"

// QueryPrefix begins the names of queries.
const QueryPrefix = "q"

// External reports whether a group or rollout was stated by outsiders.
func External(entity string) bool { return strings.HasPrefix(entity, ExternalPrefix) }

// StepKey writes a step so that keys sort as numbers do.
func StepKey(step int64) string { return fmt.Sprintf("%012d", step) }

// GroupOf is the group that a rollout belongs to.
func GroupOf(rollout string) string {
	group, _, _ := strings.Cut(rollout, "-")
	return group
}
