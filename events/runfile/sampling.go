package runfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Sampling is how turns are sampled, as it is sent to the inference server. What a run
// leaves out (nil) is not sent: a harness behind the gateway may set it, and otherwise the
// server does, often by the model's generation_config.json. A run file that says nothing has
// neutral values for all of it.
type Sampling struct {
	Temperature float64 `json:"temperature" yaml:"temperature"` // 0 to 10
	// MaxTokens bounds one turn.
	MaxTokens int `json:"max_tokens" yaml:"max_tokens"`
	// TopP is above 0 and at most 1, which keeps all tokens; MinP is 0, which keeps all, to 1; TopK
	// is -1, for all, or positive.
	TopP *float64 `json:"top_p" yaml:"top_p" jsonschema:"nullable"`
	TopK *int     `json:"top_k" yaml:"top_k" jsonschema:"nullable"`
	MinP *float64 `json:"min_p" yaml:"min_p" jsonschema:"nullable"`
	// RepetitionPenalty is above 0 and at most 2, and 1 is none; the other two
	// are -2 to 2, and 0 is none.
	RepetitionPenalty *float64 `json:"repetition_penalty" yaml:"repetition_penalty" jsonschema:"nullable"`
	PresencePenalty   *float64 `json:"presence_penalty" yaml:"presence_penalty" jsonschema:"nullable"`
	FrequencyPenalty  *float64 `json:"frequency_penalty" yaml:"frequency_penalty" jsonschema:"nullable"`
	// Stop are texts that end a turn; an empty list forbids a harness its own.
	Stop []string `json:"stop,omitzero" yaml:"stop"`
	// ChatTemplateKwargs are passed to the model's chat template, for example enable_thinking.
	ChatTemplateKwargs map[string]any `json:"chat_template_kwargs,omitzero" yaml:"chat_template_kwargs"`
	// Seed is SeedNone where requests have no seed; "" gives each turn one of its own.
	Seed string `json:"seed,omitempty" yaml:"seed" absent:"a seed of its own for each turn"`
	// ExtraBody are further fields of the request, as the server takes them: cache_salt, priority
	// and so on. Rondo's own fields cannot be among them.
	ExtraBody map[string]any `json:"extra_body,omitzero" yaml:"extra_body"`
}

// SeedNone leaves the seed of every request out.
const SeedNone = "none"

// NeutralSampling samples from the model's own distribution.
func NeutralSampling() Sampling {
	return Sampling{
		Temperature: 1, MaxTokens: 4096, TopP: new(1.0), TopK: new(-1), MinP: new(0.0),
		RepetitionPenalty: new(1.0), PresencePenalty: new(0.0), FrequencyPenalty: new(0.0),
	}
}

// DefaultSystemPrompt is the first message of a rollout's conversation; {workdir} stands for the
// task's working directory.
const DefaultSystemPrompt = "You are a coding agent. The repository is your working directory, {workdir}. " +
	"Use the tools to inspect it, run commands and edit files; several calls may stand in one answer. " +
	"When the task is done, answer without a tool call."

// Bounds of a run's sampling.
const (
	maxStops        = 16
	maxStop         = 256 // bytes
	maxTemplateArgs = 32
	maxTemplate     = 4 << 10  // bytes, as JSON
	maxSystemPrompt = 64 << 10 // bytes
)

// Reshaped names the settings by which tokens are sampled from another distribution than the
// model's own: log-probabilities of the raw model are wrong for them. Temperature 0 counts, too.
func (s Sampling) Reshaped() (names []string) {
	if s.Temperature != 1 {
		names = append(names, "temperature")
	}
	return append(names, s.Truncated()...)
}

// Truncated names those of Reshaped beside the temperature.
func (s Sampling) Truncated() (names []string) {
	for _, p := range []struct {
		name    string
		value   *float64
		neutral float64
	}{
		{"top_p", s.TopP, 1}, {"min_p", s.MinP, 0}, {"repetition_penalty", s.RepetitionPenalty, 1},
		{"presence_penalty", s.PresencePenalty, 0}, {"frequency_penalty", s.FrequencyPenalty, 0},
	} {
		if p.value != nil && *p.value != p.neutral {
			names = append(names, p.name)
		}
	}
	if s.TopK != nil && *s.TopK != -1 {
		names = append(names, "top_k")
	}
	return append(names, s.Constraints()...)
}

// Validate reports each value that is out of its range. The comparisons are also false of NaN.
func (s Sampling) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("sampling."+format, args...))
		}
	}
	check(s.Temperature >= 0 && s.Temperature <= 10, "temperature %g: must be 0 to 10", s.Temperature)
	check(s.MaxTokens >= 1, "max_tokens %d: must be positive", s.MaxTokens)
	if p := s.TopP; p != nil {
		check(*p > 0 && *p <= 1, "top_p %g: must be above 0 and at most 1", *p)
	}
	if k := s.TopK; k != nil {
		check(*k == -1 || *k >= 1 && *k <= 1<<20, "top_k %d: must be -1, for all tokens, or positive", *k)
	}
	if p := s.MinP; p != nil {
		check(*p >= 0 && *p <= 1, "min_p %g: must be 0 to 1", *p)
	}
	if p := s.RepetitionPenalty; p != nil {
		check(*p > 0 && *p <= 2, "repetition_penalty %g: must be above 0 and at most 2", *p)
	}
	for name, p := range map[string]*float64{"presence_penalty": s.PresencePenalty,
		"frequency_penalty": s.FrequencyPenalty} {
		if p != nil {
			check(*p >= -2 && *p <= 2, "%s %g: must be -2 to 2", name, *p)
		}
	}
	check(len(s.Stop) <= maxStops, "stop: %d texts, at most %d", len(s.Stop), maxStops)
	check(!slices.ContainsFunc(s.Stop, func(text string) bool { return text == "" || len(text) > maxStop }),
		"stop: want texts of 1 to %d bytes", maxStop)
	check(len(s.ChatTemplateKwargs) <= maxTemplateArgs,
		"chat_template_kwargs: %d of them, at most %d", len(s.ChatTemplateKwargs), maxTemplateArgs)
	if text, err := json.Marshal(s.ChatTemplateKwargs); err != nil || len(text) > maxTemplate {
		check(false, "chat_template_kwargs: want at most %d bytes of JSON", maxTemplate)
	}
	check(s.Seed == "" ||
		s.Seed == SeedNone, "seed %.80q: want %s, or leave it out; the run's own seed is the key beside sampling",
		s.Seed, SeedNone)
	errs = append(errs, s.validateExtraBody()...)
	return errors.Join(errs...)
}

// validateSampling checks how the run samples, also against what the built-in policy can do.
func (c *RunConfig) validateSampling() []error {
	errs := []error{c.Sampling.Validate()}
	if len(c.SystemPrompt) > maxSystemPrompt {
		errs = append(errs, fmt.Errorf("system_prompt: %d bytes, at most %d", len(c.SystemPrompt), maxSystemPrompt))
	}
	names := c.Sampling.Truncated()
	if len(c.Sampling.Stop) > 0 {
		names = append(names, "stop")
	}
	if c.Endpoint == BuiltinEndpoint && len(names) > 0 && errs[0] == nil {
		errs = append(errs, fmt.Errorf("sampling: the built-in policy samples by temperature alone; leave out %s",
			strings.Join(names, ", ")))
	}
	return errs
}
