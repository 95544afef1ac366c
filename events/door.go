package events

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// DoorPrefix begins the subjects of the door: everything from outside is published to
// rondo.in.<run>.<kind>.<entity>.<type>.
const DoorPrefix = "rondo.in."

// Headers of a message at the door.
const (
	// HeaderMessageID de-duplicates what an outsider sends again, and identifies facts that may repeat.
	HeaderMessageID = nats.MsgIdHdr
	// HeaderReply names a subject on which the intake answers with a DoorAnswer over core NATS.
	HeaderReply = "Rondo-Reply"
	// HeaderSource says who the outsider is; it becomes the fact's ce-source.
	HeaderSource = "ce-source"
)

// DoorAnswer is the intake's answer: the fact's place on the log, or why there is none.
type DoorAnswer struct {
	ID       string `json:"id,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Error    string `json:"error,omitempty"`
}

// DoorSubject is where an outsider publishes a fact of this type.
func DoorSubject(run string, t Type, entity string) string {
	return DoorPrefix + run + "." + t.Kind() + "." + entity + "." + t.Name()
}

// ParseDoorSubject reads run, type and entity from a door subject.
func ParseDoorSubject(subject string) (run string, t Type, entity string, err error) {
	rest, ok := strings.CutPrefix(subject, DoorPrefix)
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) != 4 {
		return "", "", "", fmt.Errorf("subject %q: use %s<run>.<kind>.<entity>.<type>", subject, DoorPrefix)
	}
	for i, name := range []string{"run", "kind", "entity", "type"} {
		if !ValidToken(tokens[i]) {
			return "", "", "", fmt.Errorf("subject %q: %s %q: use letters, digits, - and _, at most 64", subject, name, tokens[i])
		}
	}
	return tokens[0], Type(tokens[1] + "." + tokens[3]), tokens[2], nil
}
