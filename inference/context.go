package inference

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Overflow is a server's refusal of a request whose prompt and answer are longer together than its context.
type Overflow struct {
	// Prompt is how many tokens the prompt has, and Limit how many the context; 0 where the server does not say.
	Prompt, Limit int
}

// What servers answer where a request is too long for their context: vLLM in several versions, SGLang, llama.cpp and OpenAI. The first number
// that a list finds counts.
var (
	overflowed = regexp.MustCompile(`(?i)maximum context length|context length is only|longer than the (model's context length|maximum model length)|` +
		`exceeds the available context size|exceed_context_size_error|context_length_exceeded`)
	limits = []*regexp.Regexp{
		regexp.MustCompile(`maximum context length (?:is|of) (\d+)`),
		regexp.MustCompile(`context length is only (\d+)`),
		regexp.MustCompile(`context length \((\d+)`),
		regexp.MustCompile(`maximum model length of (\d+)`),
		regexp.MustCompile(`context size \((\d+)`),
	}
	prompts = []*regexp.Regexp{
		regexp.MustCompile(`\((\d+) in the messages`),
		regexp.MustCompile(`has (\d+) input tokens`),
		regexp.MustCompile(`contains (\d+) input tokens`),
		regexp.MustCompile(`input \((\d+) tokens`),
		regexp.MustCompile(`(\d+) tokens from the input messages`),
		regexp.MustCompile(`prompt \(length (\d+)`),
		regexp.MustCompile(`request \((\d+) tokens`),
		regexp.MustCompile(`messages resulted in (\d+) tokens`),
	}
)

// overflowOf reads an error answer; nil where it says anything else. vLLM's "You passed N input tokens" stops counting behind the
// longest prompt that would fit, so that N is no length of the prompt.
func overflowOf(status int, body []byte) *Overflow {
	if status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge && status != http.StatusUnprocessableEntity || !overflowed.Match(body) {
		return nil
	}
	var counted struct {
		Error struct {
			Prompt int `json:"n_prompt_tokens"` // of llama.cpp
			Limit  int `json:"n_ctx"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &counted) // other servers say it in their text alone
	o := &Overflow{Prompt: max(0, counted.Error.Prompt), Limit: max(0, counted.Error.Limit)}
	if o.Prompt == 0 {
		o.Prompt = firstNumber(prompts, string(body))
	}
	if o.Limit == 0 {
		o.Limit = firstNumber(limits, string(body))
	}
	return o
}

// firstNumber is the number that the first matching pattern finds, 0 for none.
func firstNumber(patterns []*regexp.Regexp, text string) int {
	for _, p := range patterns {
		if found := p.FindStringSubmatch(text); found != nil {
			n, _ := strconv.Atoi(found[1]) // one too large for an int counts as none
			return n
		}
	}
	return 0
}

// Room is how many tokens an answer can have in a context behind a prompt. One token stays free: SGLang refuses what fills its context.
func Room(limit, prompt int) int { return limit - prompt - 1 }

// ContextLimit is how many tokens a server's context has for prompt and answer together, 0 where it does not say: max_model_len of vLLM and
// SGLang, n_ctx of llama.cpp, which versions that do not list it tell under /props. Its error is a *Failure.
func (c *Client) ContextLimit(ctx context.Context, endpoint, model string) (int, error) {
	list, err := c.Models(ctx, endpoint)
	if err != nil || len(list) == 0 {
		return 0, err
	}
	i := slices.IndexFunc(list, func(m Model) bool { return m.ID == model })
	switch {
	case i < 0 && len(list) > 1:
		return 0, nil
	case i < 0: // llama.cpp serves its one model under any name
		i = 0
	}
	if of := slices.IndexFunc(list, func(m Model) bool { return m.ID == list[i].Parent }); list[i].Context == 0 && of >= 0 { // an adapter's is that of its base
		i = of
	}
	if list[i].Context > 0 || list[i].OwnedBy != "llamacpp" {
		return list[i].Context, nil
	}
	var props struct {
		Settings struct {
			Slot int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	base := strings.TrimSuffix(strings.TrimSuffix(endpoint, "/"), "/v1")
	if err := c.get(ctx, base+"/props", &props); err != nil {
		return 0, err
	}
	return max(0, props.Settings.Slot), nil
}
