package policy

import (
	"math"
	"math/rand/v2"
	"strings"
)

// Prompt is a request for one answer.
type Prompt struct {
	Tools       []string // names of the tools on offer
	Messages    []Message
	Temperature float64 // 0: the likeliest; 1: as trained
	Seed        uint64
	MaxTokens   int // 0: no limit
}

// Answer is one turn of the policy. TokenIDs and Logprobs have the same length; only action tokens
// have a log-probability other than 0, because the text behind an action token follows from it.
// Log-probabilities are those of the model itself (temperature 1), as vLLM reports them.
type Answer struct {
	PromptTokenIDs []int32
	TokenIDs       []int32
	Logprobs       []float32
	Content        string
	ToolCalls      []ToolCall
	FinishReason   string // tool_calls, stop or length
}

// Generate continues a chat by one answer. The same model, prompt and seed give the same answer.
func (m *Model) Generate(p Prompt) (*Answer, error) {
	a := &Answer{PromptTokenIDs: Render(p.Tools, p.Messages, true)}
	tools, messages, err := parse(a.PromptTokenIDs[:len(a.PromptTokenIDs)-1])
	if err != nil {
		return nil, err
	}
	s := newState(tools)
	for i := range messages {
		s.observe(&messages[i].Message)
	}
	sampler := &sampler{model: m, temperature: p.Temperature,
		random: rand.New(rand.NewPCG(p.Seed, hashTokens(a.PromptTokenIDs)))}
	budget := answerBudget
	if p.MaxTokens > 0 {
		budget = min(budget, p.MaxTokens)
	}
	t, _ := s.answer(sampler.choose, budget)
	a.Content, a.ToolCalls = t.content(), t.calls
	a.finish(sampler.logprobs, p.MaxTokens)
	return a, nil
}

// finish renders the answer. When it is longer than limit tokens, the calls are left out and then
// the text is cut, so that what is returned renders to what was sampled.
func (a *Answer) finish(logprobs []float32, limit int) {
	a.FinishReason = "stop"
	if len(a.ToolCalls) > 0 {
		a.FinishReason = "tool_calls"
	}
	a.TokenIDs = append(appendAnswer(nil, a.Content, a.ToolCalls), tokenEnd)
	if limit > 0 && len(a.TokenIDs) > limit {
		a.FinishReason, a.ToolCalls = "length", nil
		a.TokenIDs = appendLines(nil, a.Content)
		a.TokenIDs = a.TokenIDs[:min(limit, len(a.TokenIDs))]
		a.Content = contentOf(a.TokenIDs)
		a.TokenIDs = appendLines(nil, a.Content)
	}
	a.Logprobs = make([]float32, len(a.TokenIDs))
	next := 0
	for i, token := range a.TokenIDs {
		if token >= ActionBase && next < len(logprobs) {
			a.Logprobs[i] = logprobs[next]
			next++
		}
	}
}

// sampler draws from the model and keeps the log-probability of what it drew.
type sampler struct {
	model       *Model
	temperature float64
	random      *rand.Rand
	logprobs    []float32
	buffer      []float64
}

func (s *sampler) choose(candidates []candidate) int {
	s.buffer = s.model.logProbabilities(candidates, s.buffer)
	i := s.draw(s.buffer)
	s.logprobs = append(s.logprobs, float32(s.buffer[i]))
	return i
}

func (s *sampler) draw(logprobs []float64) int {
	best := 0
	for i := range logprobs {
		if logprobs[i] > logprobs[best] {
			best = i
		}
	}
	if s.temperature <= 0 {
		return best
	}
	sum := 0.0
	for _, l := range logprobs {
		sum += math.Exp((l - logprobs[best]) / s.temperature)
	}
	left := s.random.Float64() * sum
	for i, l := range logprobs {
		if left -= math.Exp((l - logprobs[best]) / s.temperature); left < 0 {
			return i
		}
	}
	return best
}

// contentOf is the text of the lines that begin a token sequence, without an
// incomplete character at the end.
func contentOf(tokens []int32) string {
	p := tokenReader{tokens: tokens}
	return strings.ToValidUTF8(p.answer().Content, "")
}
