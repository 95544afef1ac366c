package inference

import (
	"context"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/inference/vocabulary"
)

// Overflow is a server's refusal of a request whose prompt and answer are longer
// together than its context.
type Overflow = vocabulary.Overflow

// Room is how many tokens an answer can have in a context behind a prompt. One token stays free:
// SGLang refuses what fills its context.
func Room(limit, prompt int) int { return limit - prompt - 1 }

// ContextLimit is how many tokens a server's context has for prompt and answer together, 0 where it
// does not say: max_model_len of vLLM and SGLang, n_ctx of llama.cpp, which versions that do not
// list it tell under /props. Its error is a *Failure.
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
	// an adapter's is that of its base
	if of := slices.IndexFunc(list, func(m Model) bool { return m.ID == list[i].Parent }); list[i].Context == 0 &&
		of >= 0 {
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
