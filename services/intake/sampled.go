package intake

import (
	"context"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Bounds of a turn that was sampled elsewhere.
const (
	maxPrompt    = 10000 // messages
	maxToolCalls = 64
)

// promptRoles are the roles of messages in a prompt.
var promptRoles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// admitSampled checks a turn of an external rollout against the turns before it. That it comes next
// is checked with the chain.
func (s *Service) admitSampled(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	p *events.TurnSampled) error {
	switch {
	case p.Turn >= cfg.Limits.Turns:
		return refuse("turn %d: rollouts of run %s have at most %d turns", p.Turn, r.Run, cfg.Limits.Turns)
	case p.After != nil && *p.After >= p.Turn:
		return refuse("after %d: only turns before turn %d can be continued", *p.After, p.Turn)
	case p.After == nil && !p.NewSegment:
		return refuse("new_segment: turn %d continues no other one, so a segment begins with it", p.Turn)
	case p.Summary != nil || p.SegmentCause == events.CauseSummary:
		return refuse("summary: turns that were sampled elsewhere have none; a prompt that does not go on with an earlier one begins a segment")
	case p.RoomTold != "":
		return refuse("room_told: the prompts of turns that were sampled elsewhere say what their models were told")
	case p.RequestDigest != "":
		return refuse("request_digest: only turns of a run's agent have one")
	case len(p.ToolCalls) > maxToolCalls:
		return refuse("tool_calls: %d, at most %d", len(p.ToolCalls), maxToolCalls)
	case !events.KnownFinish(p.FinishReason):
		return refuse("finish_reason %.80q: must be one of %v, or empty", p.FinishReason, events.Finishes)
	case len(p.FinishWord) > maxName:
		return refuse("finish_word: %d bytes, at most %d", len(p.FinishWord), maxName)
	case p.PromptTokens < 0 || p.CompletionTokens < 0 || p.LatencyMS < 0:
		return refuse("prompt_tokens %d, completion_tokens %d, latency_ms %g: must not be negative", p.PromptTokens,
			p.CompletionTokens, p.LatencyMS)
	}
	if err := admitConversation(cfg, r, p); err != nil {
		return err
	}
	if err := admitPrompt(p.Prompt); err != nil {
		return err
	}
	if err := s.admitImages(ctx, cfg, r, p); err != nil {
		return err
	}
	if err := admitTokens(p); err != nil {
		return err
	}
	if err := admitSegment(r, p); err != nil {
		return err
	}
	if err := s.admitColumns(ctx, cfg, r, p); err != nil {
		return err
	}
	return s.admitVersions(ctx, cfg, p)
}

// admitVersions checks the versions of a turn's tokens: they say of each token one version,
// which the policy has reached.
func (s *Service) admitVersions(ctx context.Context, cfg runfile.RunConfig, p *events.TurnSampled) error {
	latest := p.PolicyVersion
	if len(p.VersionSpans) > 0 {
		if err := events.CheckVersionSpans(p.VersionSpans, len(p.TokenIDs)); err != nil {
			return refuse("version_spans: %v", err)
		}
		oldest := p.VersionSpans[0].Version
		for _, span := range p.VersionSpans {
			oldest, latest = min(oldest, span.Version), max(latest, span.Version)
		}
		if oldest != p.PolicyVersion {
			return refuse("policy_version %d: the oldest of version_spans is %d", p.PolicyVersion, oldest)
		}
	}
	if latest == runfile.UnknownVersion {
		return nil
	}
	return s.admitVersion(ctx, cfg, "policy_version", latest)
}

func admitPrompt(prompt []events.PromptMessage) error {
	if len(prompt) > maxPrompt {
		return refuse("prompt: %d messages, at most %d", len(prompt), maxPrompt)
	}
	for i, m := range prompt {
		if !slices.Contains(promptRoles, m.Role) {
			return refuse("prompt[%d].role %.40q: must be one of %v", i, m.Role, promptRoles)
		}
		if len(m.Name) > maxName || len(m.ToolCallID) > maxName {
			return refuse("prompt[%d]: name and tool_call_id have at most %d bytes", i, maxName)
		}
	}
	return nil
}

func admitTokens(p *events.TurnSampled) error {
	switch {
	case p.TextOnly && len(p.TokenIDs)+len(p.Logprobs)+len(p.PromptDelta) > 0:
		return refuse("text_only: the turn has tokens")
	case !p.TextOnly && p.NewSegment && len(p.PromptDelta) == 0:
		return refuse("prompt_delta: a segment begins with the tokens of its prompt")
	}
	if err := tokencheck.IDs(p.PromptDelta); err != nil {
		return refuse("prompt_delta: %v", err)
	}
	if err := tokencheck.Sampled(p.TokenIDs, p.Logprobs); err != nil {
		return refuse("token_ids and logprobs: %v", err)
	}
	return nil
}
