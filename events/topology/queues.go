package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// WaitingSubject begins the subjects on which the server tells of each submission that it has
// stored, in place of events.IntakePrefix.
const WaitingSubject = "rondo.waiting."

// Queue is a part of the submissions that has a durable consumer of its own, so that nobody else
// waits behind it: those of one kind in one run, which one role makes or a few do, or those of
// one policy or repository.
type Queue struct {
	// Run is the run of the submissions, or events.Catalogue. Kind is their kind, "" where no
	// outsider states any of it. Entity is the policy or repository in the catalogue.
	Run, Kind, Entity string
	// Name tells the queue from others, as a part of its consumer's name.
	Name string
	// Filter selects its submissions, and none of another queue.
	Filter string
}

// QueueOf is the queue of a submission by its subject. A few have none, as no filter selects them
// alone: a server stores messages on subjects that hold wildcards.
func QueueOf(subject string) (q Queue, ok bool) {
	tokens := strings.Split(strings.TrimPrefix(subject, events.IntakePrefix), ".")
	q.Run = tokens[0]
	named := 2 // tokens that name the queue
	if q.Run == events.Catalogue {
		named = 3
	}
	rest := ".>"
	if len(tokens) <= named {
		named, rest = len(tokens), "" // nobody's subject, which is a queue by itself
	}
	tokens = tokens[:named]
	q.Filter = events.IntakePrefix + strings.Join(tokens, ".") + rest
	if rest != "" && slices.ContainsFunc(outsideTypes(), func(t events.Type) bool { return t.Kind() == tokens[1] }) {
		q.Kind, q.Entity = tokens[1], strings.Join(tokens[2:], "")
	}
	if q.Name = strings.Join(tokens, "+"); rest == "" ||
		slices.ContainsFunc(tokens, func(token string) bool { return !runfile.ValidToken(token) }) {
		sum := sha256.Sum256([]byte(q.Filter)) // a consumer's name may not have every character of a subject
		q.Name = "other+" + hex.EncodeToString(sum[:8])
	}
	return q, !slices.Contains(tokens, "*") && !slices.Contains(tokens, ">")
}
