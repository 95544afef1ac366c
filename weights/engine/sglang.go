package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// SGLang is an SGLang server.
type SGLang struct{ *client }

// NewSGLang is the server at an address. key, which may be "", is the admin key if the server has
// one; transport may be nil.
func NewSGLang(base, key string, transport http.RoundTripper) (*SGLang, error) {
	c, err := newClient(base, key, transport)
	return &SGLang{c}, err
}

// Label implements [Engine].
func (e *SGLang) Label(ctx context.Context) (string, error) {
	var info struct {
		Version string `json:"weight_version"`
	}
	err := e.ask(ctx, controlTime, "/model_info", nil, &info)
	if missing(err) { // its older name
		err = e.ask(ctx, controlTime, "/get_model_info", nil, &info)
	}
	return info.Version, err
}

// outcome is the answer of routes that say by a field whether they did what they were asked.
type outcome struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
}

func (e *SGLang) must(ctx context.Context, path string, request any) error {
	within := controlTime
	if path == "/update_weights_from_disk" {
		within = loadTime
	}
	var answer outcome
	if err := e.ask(ctx, within, path, request, &answer); err != nil {
		return err
	}
	if !answer.Success {
		return fmt.Errorf("%s: %s: %.300s", e.base, path, answer.Message)
	}
	return nil
}

// Load implements [Engine]. Requests in flight go back into the queue and are computed again with
// the new weights: a cache that they hold could not be emptied.
func (e *SGLang) Load(ctx context.Context, v Version) error {
	return e.paused(ctx, func() error {
		// older servers have it with the weights alone
		if err := e.relabel(ctx, v.Label()+"-"+loadingLabel); err != nil && !missing(err) {
			return err
		}
		// The label comes with the weights, and only where they were loaded.
		return e.must(ctx, "/update_weights_from_disk",
			map[string]any{"model_path": v.Dir, "weight_version": v.Label(),
				"abort_all_requests": false, "flush_cache": true})
	})
}

// Refuse implements [Engine].
func (e *SGLang) Refuse(ctx context.Context, v Version) error {
	return e.paused(ctx, func() error { return e.relabel(ctx, v.Label()+"-"+refusedLabel) })
}

func (e *SGLang) relabel(ctx context.Context, label string) error {
	return e.must(ctx, "/update_weight_version", map[string]any{"new_version": label, "abort_all_requests": false})
}

// paused does something while the server computes nothing, and lets it go on whatever comes of it.
func (e *SGLang) paused(ctx context.Context, do func() error) (err error) {
	defer func() {
		err = errors.Join(err, e.Resume(context.WithoutCancel(ctx)))
	}()
	if err := e.ask(ctx, controlTime, "/pause_generation", map[string]string{"mode": "retract"}, nil); err != nil {
		return err
	}
	return do()
}

// Resume implements [Engine].
func (e *SGLang) Resume(ctx context.Context) error {
	return e.ask(ctx, controlTime, "/continue_generation", nothing{}, nil)
}

// Logprobs implements [Engine].
func (e *SGLang) Logprobs(ctx context.Context, tokens []int32) ([]float64, error) {
	return e.promptLogprobs(ctx, tokens, map[string]any{})
}

// promptLogprobs asks SGLang for the log-probabilities of a prompt's tokens, with more fields.
func (c *client) promptLogprobs(ctx context.Context, tokens []int32, request map[string]any) ([]float64, error) {
	var answer struct {
		Meta struct {
			Prompt [][]any `json:"input_token_logprobs"` // log-probability, id, text
		} `json:"meta_info"`
	}
	request["input_ids"], request["sampling_params"] = tokens, map[string]any{"max_new_tokens": 1, "temperature": 0}
	request["return_logprob"], request["logprob_start_len"] = true, 0
	if err := c.ask(ctx, controlTime, "/generate", request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Meta.Prompt) != len(tokens) {
		return nil, fmt.Errorf("%s: %w", c.base, errProbe)
	}
	found := make([]float64, 0, len(tokens))
	for i, at := range answer.Meta.Prompt[1:] {
		if len(at) < 2 {
			return nil, fmt.Errorf("%s: %w", c.base, errProbe)
		}
		logprob, number := at[0].(float64)
		id, known := at[1].(float64)
		if !number || !known || int32(id) != tokens[i+1] {
			return nil, fmt.Errorf("%s: no log-probability of token %d of the probe: %w", c.base, i+1, errProbe)
		}
		found = append(found, logprob)
	}
	return found, nil
}
