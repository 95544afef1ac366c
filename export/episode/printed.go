package episode

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Printed is what was printed about a rollout, at most the last 64 KiB of each.
type Printed struct {
	Verifier string // by the verifier that scored it
	Agent    string // by the run's own agent, to its standard output
	// Unread says what of it cannot be read, and why.
	Unread []string
}

const (
	mostPrinted = 64 << 10 // bytes that are given
	mostOutput  = 16 << 20 // bytes of an output that is read
)

// PrintedBy reads what was printed about a rollout.
func PrintedBy(ctx context.Context, store storage.Store, r *events.Rollout) (p Printed) {
	end := func(whose string, size int64, read func() ([]byte, error)) string {
		if size > mostOutput {
			p.Unread = append(p.Unread, fmt.Sprintf("what %s printed is not shown: it has %d bytes", whose, size))
			return ""
		}
		text, err := read()
		if err != nil {
			p.Unread = append(p.Unread, fmt.Sprintf("what %s printed cannot be read: %v", whose, err))
			return ""
		}
		text = bytes.TrimSpace(text)
		return strings.ToValidUTF8(string(text[max(0, len(text)-mostPrinted):]), "\uFFFD")
	}
	if r.Scored != nil && r.Scored.Log != nil {
		p.Verifier = end("the verifier", r.Scored.Log.Size, func() ([]byte, error) {
			return storage.GetBlob(ctx, store, *r.Scored.Log)
		})
	}
	if r.AgentEnded() != nil {
		output := r.Answers[len(r.Answers)-1].Output
		p.Agent = end("the agent", output.Size(), func() ([]byte, error) { return output.Get(ctx, store) })
	}
	return p
}
