package runfile

import "fmt"

// TokenColumns are further numbers of the tokens of rollouts that a run's servers are asked for.
// They are kept beside the log, in objects.
type TokenColumns struct {
	// RoutedExperts asks for the experts that a mixture's routers chose, and
	// says what they look like.
	RoutedExperts *RoutedExperts `json:"routed_experts,omitempty" yaml:"routed_experts"`
	// TopLogprobs is for how many of the likeliest tokens in the place of each sampled one the
	// log-probabilities are asked for; 0 for none.
	TopLogprobs int `json:"top_logprobs,omitempty" yaml:"top_logprobs"`
	// SamplingMask asks for the tokens that the sampler's bounds (top_k, top_p, min_p) left in the
	// place of each sampled one.
	SamplingMask bool `json:"sampling_mask,omitempty" yaml:"sampling_mask"`
	// Required: a turn that lacks one of them is a failed try. Without it the turn
	// counts, and says what it lacks.
	Required bool `json:"required,omitempty" yaml:"required"`
}

// RoutedExperts is the shape of what a model's routers choose for a token.
type RoutedExperts struct {
	// Layers are those that the server lists, and TopK how many experts of Experts each chooses.
	Layers  int `json:"layers" yaml:"layers"`
	TopK    int `json:"top_k" yaml:"top_k"`
	Experts int `json:"experts" yaml:"experts"`
}

// Names of token columns, which are also what a turn says that it lacks.
const (
	ColumnRoutedExperts = "routed_experts"
	ColumnTopLogprobs   = "top_logprobs"
	ColumnSamplingMask  = "sampling_mask"
)

// Bounds of token columns.
const (
	maxExpertLayers = 512
	maxExpertTopK   = 64
	maxExperts      = 1 << 16
	maxTopLogprobs  = 128
	// maxTopEntries bounds the entries of the longest answer, and maxMaskEntries those of its
	// sampling mask: they are in memory at once.
	maxTopEntries  = 512 << 10
	maxMaskEntries = 4 << 20
	// expertBytes is how much of an answer the experts may take, written in base64.
	expertBytes = 40 << 20
	// entryBytes is the most that a server writes for one token of
	// top_logprobs, and idBytes for one id.
	entryBytes, idBytes = 256, 12
)

// Width is how many bytes an expert's number takes.
func (e RoutedExperts) Width() int {
	if e.Experts <= 1<<8 {
		return 1
	}
	return 2
}

// Rows is for how many tokens an answer may name experts, where each number takes so many bytes.
func (e RoutedExperts) Rows(width int) int { return expertBytes / 4 * 3 / (e.Layers * e.TopK * width) }

// AnswerBytes is how much longer an answer of some tokens may be for the columns.
func (c *TokenColumns) AnswerBytes(s Sampling) (n int64) {
	if c == nil {
		return 0
	}
	if c.RoutedExperts != nil {
		n += expertBytes
	}
	n += int64(c.TopLogprobs) * entryBytes * int64(s.MaxTokens)
	if c.SamplingMask && s.TopK != nil {
		n += int64(*s.TopK) * idBytes * int64(s.MaxTokens)
	}
	return n
}

// validateTokenColumns checks what is asked for beside tokens.
func (c *RunConfig) validateTokenColumns() (errs []error) {
	if c.TokenColumns == nil {
		return nil
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("token_columns: "+format, args...))
		}
	}
	want := *c.TokenColumns
	check(want.RoutedExperts != nil || want.TopLogprobs != 0 ||
		want.SamplingMask, "name at least one of routed_experts, top_logprobs and sampling_mask")
	check(want.TopLogprobs >= 0 && want.TopLogprobs <= maxTopLogprobs,
		"top_logprobs %d: must be 0 to %d", want.TopLogprobs, maxTopLogprobs)
	check(want.TopLogprobs == 0 || c.Sampling.MaxTokens <= maxTopEntries/want.TopLogprobs,
		"top_logprobs %d of sampling.max_tokens %d: together at most %d entries for an answer",
		want.TopLogprobs, c.Sampling.MaxTokens, maxTopEntries)
	if e := want.RoutedExperts; e != nil {
		check(c.EndpointAPI == APITokens || c.External,
			"routed_experts: only the paths of tokens say which tokens they are of; set endpoint_api: %s", APITokens)
		check(e.Layers >= 1 && e.Layers <= maxExpertLayers,
			"routed_experts.layers %d: must be 1 to %d", e.Layers, maxExpertLayers)
		check(e.TopK >= 1 && e.TopK <= maxExpertTopK, "routed_experts.top_k %d: must be 1 to %d", e.TopK, maxExpertTopK)
		check(e.Experts >= e.TopK && e.Experts <= maxExperts,
			"routed_experts.experts %d: must be top_k (%d) to %d", e.Experts, e.TopK, maxExperts)
	}
	if want.SamplingMask {
		topK := c.Sampling.TopK
		check(c.EndpointAPI == APITokens || c.External,
			"sampling_mask: only the paths of tokens have it; set endpoint_api: %s", APITokens)
		check(topK != nil && *topK > 0,
			"sampling_mask: set sampling.top_k above 0, which bounds how many tokens are left for each place")
		check(topK == nil || *topK <= 0 || c.Sampling.MaxTokens <= maxMaskEntries / *topK,
			"sampling_mask: sampling.top_k and max_tokens allow more than %d ids for an answer; lower one of them",
			maxMaskEntries)
		check(c.Sampling.Temperature > 0,
			"sampling_mask: at temperature 0 one token is left in each place; leave it out")
	}
	return errs
}
