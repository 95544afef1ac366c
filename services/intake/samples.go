package intake

import (
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// A sample is what the model saw and sampled, token by token. One of which a part is
// missing trains on a context that never was, so what outsiders bring is checked for holes
// before it stands on the log.

// admitSegment checks that a turn with tokens continues its segment where that ends, and that
// nothing between the two lacks its tokens.
func admitSegment(r *events.Rollout, p *events.TurnSampled) error {
	if p.TextOnly {
		return nil
	}
	if len(p.TokenIDs) == 0 && (p.Content != "" || len(p.ToolCalls) > 0) {
		return refuse("token_ids: the turn says something, but has no tokens; mark it text_only")
	}
	if p.CompletionTokens > 0 && p.CompletionTokens != len(p.TokenIDs) {
		return refuse("completion_tokens %d: the turn has %d token_ids", p.CompletionTokens, len(p.TokenIDs))
	}
	prompt := len(p.PromptDelta)
	if !p.NewSegment {
		before := *p.After
		for i := before + 1; i < len(r.Turns); i++ {
			if t := r.Turns[i]; !t.NewSegment && t.After != nil && *t.After == before {
				return refuse("after %d: turn %d continues that turn's tokens already; begin a new segment", before, i)
			}
		}
		if r.Turns[before].TextOnly {
			return refuse("after %d: that turn has no tokens; begin a new segment, with all tokens of the prompt",
				before)
		}
		if len(p.PromptDelta) == 0 &&
			slices.ContainsFunc(p.Prompt, func(m events.PromptMessage) bool { return m.Content != "" }) {
			return refuse("prompt_delta: the prompt has messages behind turn %d, but no tokens of them", before)
		}
		prompt += segmentTokens(r, before)
	}
	if p.PromptTokens > 0 && p.PromptTokens != prompt {
		return refuse("prompt_tokens %d: the turn's prompt has %d tokens: those of its segment before it, and prompt_delta",
			p.PromptTokens, prompt)
	}
	return nil
}

// segmentTokens are the tokens of a turn's segment up to its end.
func segmentTokens(r *events.Rollout, turn int) (n int) {
	for {
		t := r.Turns[turn]
		n += len(t.PromptDelta) + len(t.TokenIDs)
		if t.NewSegment || t.After == nil {
			return n
		}
		turn = *t.After
	}
}

// admitSamples checks the tokens of a trajectory file: log-probabilities that can be, and samples
// without holes. That the lists of a message are equally long is part of the format.
func admitSamples(t *storage.Trajectory) error {
	segments := map[int32]*segment{}
	for i := range t.Messages {
		m := &t.Messages[i]
		if err := tokencheck.Sampled(m.TokenIDs, m.Logprobs); err != nil {
			return refuse("trajectory: token_ids and logprobs of message %d: %v", i, err)
		}
		s := segments[m.Segment]
		if s == nil {
			s = &segment{}
			segments[m.Segment] = s
		}
		if why := s.add(m); why != "" {
			return refuse("trajectory: message %d: %s", i, why)
		}
	}
	return nil
}

// segment is what was read of one sample.
type segment struct {
	tokens  int
	sampled bool // a message before was sampled with tokens
	// silent: a message that says something had no tokens, and no tokens of a prompt came since.
	silent bool
}

// add reads the next message, and says what is missing before it.
func (s *segment) add(m *storage.Message) string {
	first := slices.Index(m.LossMask, true)
	says := m.Content != "" || m.ToolCalls != ""
	prompt := first
	if first < 0 {
		prompt = len(m.TokenIDs)
	}
	switch {
	// before that it may be a part of the prompt
	case s.sampled && m.PolicyVersion >= 0 && says && len(m.TokenIDs) == 0:
		return "it was sampled, but has no tokens, as others of its sample have"
	case first >= 0 && s.tokens+prompt == 0:
		return "its sample begins with sampled tokens, without those of a prompt"
	case first >= 0 && s.sampled && s.silent && prompt == 0:
		return "messages between it and what was sampled before have no tokens"
	}
	s.tokens += len(m.TokenIDs)
	switch {
	case first >= 0:
		s.sampled, s.silent = true, false
	case len(m.TokenIDs) > 0:
		s.silent = false
	case says:
		s.silent = true
	}
	return ""
}
