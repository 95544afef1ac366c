package events

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// CloudEvents attributes in NATS binary mode. Header names are case-sensitive in
// nats.go: lower case, always.
const (
	headerSpecVersion = "ce-specversion"
	headerID          = "ce-id"
	headerType        = "ce-type"
	headerSource      = "ce-source"
	headerTime        = "ce-time"
	headerPrev        = "ce-prev"
	headerAsOf        = "ce-asof"
	headerDecidedAt   = "ce-decidedat"
	// HeaderDataRef marks a body that is a reference to the real one (claim check).
	HeaderDataRef = "ce-dataref"
	headerTrace   = "traceparent"
)

// MaxPayload is the largest body that travels inline; a larger one goes to the store as a blob.
const MaxPayload = 128 << 10

// ErrMalformed marks a message that is not a Rondo event.
var ErrMalformed = errors.New("malformed event")

// Message encodes the event for its subject. A body over MaxPayload must
// have been checked in first.
func (e Event) Message() *nats.Msg {
	msg := nats.NewMsg(e.Subject())
	msg.Data = e.Data
	h := msg.Header
	set := func(name, value string) { h[name] = []string{value} } // not Set, which would change the case
	set(headerSpecVersion, "1.0")
	set(headerID, e.ID)
	set(headerType, e.cloudEvent())
	set(headerSource, e.Source)
	set(headerTime, e.Time.UTC().Format(time.RFC3339Nano))
	set(headerPrev, strconv.FormatUint(e.Prev, 10))
	if !e.DecidedAt.IsZero() {
		set(headerAsOf, strconv.FormatUint(e.AsOf, 10))
		set(headerDecidedAt, e.DecidedAt.UTC().Format(time.RFC3339Nano))
	}
	if e.TraceParent != "" {
		set(headerTrace, e.TraceParent)
	}
	return msg
}

// Parse reads an event back from its subject, headers and body. Seq is left to the
// caller, and CheckVersion.
func Parse(subject string, h nats.Header, body []byte) (Event, error) {
	e := Event{Data: body}
	if err := e.parseSubject(subject); err != nil {
		return e, err
	}
	get := func(name string) string {
		if v := h[name]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	e.ID, e.Source, e.TraceParent = get(headerID), get(headerSource), get(headerTrace)
	var err error
	if e.Time, err = parseTime(get(headerTime)); err != nil {
		return e, fmt.Errorf("%w: %s: %s: %w", ErrMalformed, subject, headerTime, err)
	}
	if e.Prev, err = strconv.ParseUint(get(headerPrev), 10, 64); err != nil {
		return e, fmt.Errorf("%w: %s: %s: %w", ErrMalformed, subject, headerPrev, err)
	}
	if at := get(headerDecidedAt); at != "" {
		if e.DecidedAt, err = parseTime(at); err != nil {
			return e, fmt.Errorf("%w: %s: %s: %w", ErrMalformed, subject, headerDecidedAt, err)
		}
		if e.AsOf, err = strconv.ParseUint(get(headerAsOf), 10, 64); err != nil {
			return e, fmt.Errorf("%w: %s: %s: %w", ErrMalformed, subject, headerAsOf, err)
		}
	}
	if e.ID == "" {
		return e, fmt.Errorf("%w: %s: no %s", ErrMalformed, subject, headerID)
	}
	if version := versionOf(get(headerType)); version > dataVersion {
		e.version = version
	}
	return e, nil
}

// cloudEvent is the ce-type attribute of the event's payload as it is.
func (e Event) cloudEvent() string {
	if e.version > 0 {
		return cloudEvent(e.Type, e.version)
	}
	return e.Type.CloudEvent()
}

// parseTime reads a time that can be written again: moments that leave the
// four-digit years in UTC cannot.
func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if year := t.UTC().Year(); err == nil && (year < 1 || year > 9999) {
		return t, fmt.Errorf("%s is out of range", text)
	}
	return t, err
}
