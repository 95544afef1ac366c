package intake

import (
	"context"
	"encoding/json"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// maxCaptured bounds the tokens of a captured call: prompt and generation.
const maxCaptured = 4 << 20

// admitCapture checks what a model server elsewhere says of a call, before it is linked.
func admitCapture(cfg runfile.RunConfig, fact events.Event, payload any) error {
	if !cfg.External {
		return refuse("run %s takes no captured calls: its run file does not say external: true", fact.Run)
	}
	rollout := ""
	switch p := payload.(type) {
	case *events.CaptureBegun:
		rollout = p.Rollout
	case *events.CaptureIncomplete:
		rollout = p.Rollout
	case *events.CaptureRetired:
		rollout = p.Rollout
	case *events.CaptureRecorded:
		rollout = p.Rollout
		if err := admitEntry(p); err != nil {
			return err
		}
	}
	if want := events.CaptureEntity(rollout); fact.Entity != want {
		return refuse("entity %s: the capture of rollout %.100q is %s", fact.Entity, rollout, want)
	}
	return nil
}

func admitEntry(p *events.CaptureRecorded) error {
	var entry events.CaptureEntry
	if err := json.Unmarshal([]byte(p.Entry), &entry); err != nil {
		return refuse("entry: not the JSON of a call with its tokens")
	}
	switch {
	case entry.Rollout != p.Rollout || entry.Call != p.Call:
		return refuse("entry: it is of call %.100q of rollout %.100q", entry.Call, entry.Rollout)
	case len(entry.SampledIDs) != len(entry.SampledLogs):
		return refuse("entry: %d sampled tokens with %d log-probabilities", len(entry.SampledIDs), len(entry.SampledLogs))
	case len(entry.PromptIDs)+len(entry.SampledIDs) > maxCaptured:
		return refuse("entry: %d tokens, at most %d", len(entry.PromptIDs)+len(entry.SampledIDs), maxCaptured)
	}
	return nil
}

// followsCapture refuses what comes behind a capture's end, and an end that somebody decided on before he saw the last call.
func (s *Service) followsCapture(ctx context.Context, fact events.Event, last *events.Event) error {
	if last != nil && last.Type == events.CaptureRetiredType {
		return refuse("capture %s is retired, at sequence %d", fact.Entity, last.Seq)
	}
	if fact.Type != events.CaptureRetiredType {
		return s.admitClosed(ctx, fact)
	}
	p, err := events.Data[events.CaptureRetired](fact)
	if err != nil {
		return err
	}
	if last == nil || last.Seq != p.Last {
		return refuse("capture %s: sequence %d is not its last event", fact.Entity, p.Last)
	}
	return nil
}
