package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// maxCaptured bounds the tokens of a captured call: prompt and generation.
const maxCaptured = 4 << 20

// admitCapture checks what a model server elsewhere says of a call, before it is linked.
func admitCapture(_ *Service, _ context.Context, a submitted) error {
	if !a.run.External {
		return refuse("run %s takes no captured calls: its run file does not say external: true", a.fact.Run)
	}
	rollout := ""
	switch p := a.payload.(type) {
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
	if want := events.CaptureEntity(rollout); a.fact.Entity != want {
		return refuse("entity %s: the capture of rollout %.100q is %s", a.fact.Entity, rollout, want)
	}
	return nil
}

func admitEntry(p *events.CaptureRecorded) error {
	var entry events.CaptureEntry
	if err := json.Unmarshal([]byte(p.Entry), &entry); err != nil {
		return refuse("entry: not the JSON of a call with its tokens")
	}
	if entry.Rollout != p.Rollout || entry.Call != p.Call {
		return refuse("entry: it is of call %.100q of rollout %.100q", entry.Call, entry.Rollout)
	}
	prompt, err := tokensOf(entry.PromptIDs)
	if err != nil {
		return refuse("entry: prompt_token_ids: %v", err)
	}
	sampled, err := tokensOf(entry.SampledIDs)
	if err != nil {
		return refuse("entry: generation_token_ids: %v", err)
	}
	if n := len(prompt) + len(sampled); n > maxCaptured {
		return refuse("entry: %d tokens, at most %d", n, maxCaptured)
	}
	logprobs := make([]float32, len(entry.SampledLogs))
	for i, l := range entry.SampledLogs {
		if l == nil {
			return refuse("entry: generation_log_probs: token %d has null, %v", i, tokencheck.ErrNone)
		}
		logprobs[i] = *l
	}
	tokencheck.Round(logprobs)
	if err := tokencheck.Sampled(sampled, logprobs); err != nil {
		return refuse("entry: generation_token_ids and generation_log_probs: %v", err)
	}
	return nil
}

// tokensOf are the ids of a list that may be missing.
func tokensOf(list json.RawMessage) ([]int32, error) {
	if len(list) == 0 {
		return nil, nil
	}
	if bytes.Count(list, []byte{','}) >= maxCaptured { // before a list is made of them
		return nil, fmt.Errorf("more than %d tokens", maxCaptured)
	}
	ids, err := tokencheck.ReadIDs(list)
	if err != nil {
		return nil, err
	}
	return ids, tokencheck.IDs(ids)
}

// followsCapture refuses what comes behind a capture's end, and an end that somebody decided on
// before he saw the last call.
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
