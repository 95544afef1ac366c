package events

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/runfile"
)

// IntakePrefix begins the subjects of submissions: everything from outside is published to
// rondo.in.<run>.<kind>.<entity>.<type>.
const IntakePrefix = "rondo.in."

// Headers of a submission.
const (
	// HeaderMessageID de-duplicates what an outsider sends again, and
	// identifies facts that may repeat.
	HeaderMessageID = nats.MsgIdHdr
	// HeaderReply names a subject on which the intake answers with an IntakeAnswer over core NATS.
	HeaderReply = "Rondo-Reply"
	// HeaderSource says who the outsider is; it becomes the fact's ce-source.
	HeaderSource = "ce-source"
)

// IntakeAnswer is the intake's answer: the fact's place on the log, or why there is none.
type IntakeAnswer struct {
	ID       string `json:"id,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Error    string `json:"error,omitempty"`
	// RetryAfterMS is set where only a quota is spent: the fact is neither refused for good nor
	// recorded, and may be stated again after that many milliseconds.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// IntakeSubject is where an outsider publishes a fact of this type.
func IntakeSubject(run string, t Type, entity string) string {
	return IntakePrefix + run + "." + t.Kind() + "." + entity + "." + t.Name()
}

// ParseIntakeSubject reads run, type and entity from the subject of a submission.
func ParseIntakeSubject(subject string) (run string, t Type, entity string, err error) {
	rest, ok := strings.CutPrefix(subject, IntakePrefix)
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) != 4 {
		return "", "", "", fmt.Errorf("subject %q: use %s<run>.<kind>.<entity>.<type>", subject, IntakePrefix)
	}
	for i, name := range []string{"run", "kind", "entity", "type"} {
		if !runfile.ValidToken(tokens[i]) {
			return "", "", "", fmt.Errorf("subject %q: %s %q: use letters, digits, - and _, at most 64", subject, name,
				tokens[i])
		}
	}
	return tokens[0], Type(tokens[1] + "." + tokens[3]), tokens[2], nil
}
