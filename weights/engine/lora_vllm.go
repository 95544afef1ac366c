package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// vllmAdapters is a vLLM server.
type vllmAdapters struct{ *client }

func (e vllmAdapters) load(ctx context.Context, name, dir string) error {
	err := e.ask(ctx, loadTime, "/v1/load_lora_adapter", map[string]string{"lora_name": name, "lora_path": dir}, nil)
	if missing(err) {
		err = fmt.Errorf("%w (start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)", err)
	}
	return err
}

func (e vllmAdapters) model(_, name string) string { return name }

func (e vllmAdapters) unload(ctx context.Context, name string) error {
	err := e.ask(ctx, controlTime, "/v1/unload_lora_adapter", map[string]string{"lora_name": name}, nil)
	if missing(err) {
		return nil
	}
	return err
}

// Names of vLLM's metrics: the adapters of the requests that it has, with the time of the note as
// the value, and how many requests it has.
const (
	adaptersMetric = "vllm:lora_requests_info"
	runningMetric  = "vllm:num_requests_running"
	waitingMetric  = "vllm:num_requests_waiting"
)

// heldAdapters tells which adapters the server's requests hold. A server that has requests, and
// does not say of which adapters, holds all.
func (e vllmAdapters) heldAdapters(ctx context.Context) (func(name string) bool, error) {
	var text []byte
	if err := e.ask(ctx, controlTime, "/metrics", nil, &text); err != nil {
		return nil, err
	}
	requests, newest, names, counted := 0.0, map[string]float64{}, map[string]string{}, false
	for line := range strings.Lines(string(text)) {
		metric, rest, _ := strings.Cut(line, "{")
		labels, number, _ := strings.Cut(rest, "} ")
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			continue
		}
		switch metric {
		case runningMetric, waitingMetric:
			requests, counted = requests+value, true
		// one series for each set of adapters that there ever was; the newest of each engine counts
		case adaptersMetric:
			of := label(labels, "engine")
			if _, known := newest[of]; !known || value > newest[of] {
				newest[of], names[of] = value, label(labels, "running_lora_adapters")+","+
					label(labels, "waiting_lora_adapters")
			}
		}
	}
	switch {
	case counted && requests == 0:
		return func(string) bool { return false }, nil
	case !counted || len(newest) == 0:
		return func(string) bool { return true }, nil
	}
	all := strings.Split(strings.Join(slices.Collect(maps.Values(names)), ","), ",")
	return func(name string) bool { return slices.Contains(all, name) }, nil
}

// label is the value of one of a metric's labels.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// probes is how many tokens of a fingerprint are asked for.
const probes = 16

// logprobs asks for some of the tokens, each as a sample behind those before it: vLLM
// on CPU ends when a request with an adapter asks for the log-probabilities of its
// prompt while another one runs.
func (e vllmAdapters) logprobs(ctx context.Context, name string, tokens []int32) ([]float64, error) {
	found, salt := make([]float64, len(tokens)-1), rand.Text()
	for i := range found {
		found[i] = math.NaN()
	}
	for n := range min(probes, len(found)) {
		at := (n + 1) * len(found) / min(probes, len(found))
		logprob, err := e.next(ctx, name, salt, tokens[:at], tokens[at])
		if err != nil {
			return nil, err
		}
		found[at-1] = logprob
	}
	return found, nil
}

// next asks for the log-probability of a token behind others.
func (e vllmAdapters) next(ctx context.Context, name, salt string, before []int32, token int32) (float64, error) {
	type entry struct {
		Token   *int32  `json:"token_id"`
		Logprob float64 `json:"logprob"`
	}
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Content []struct {
					Top []entry `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	// vLLM wants as many logprobs as tokens, and lists no more than these with the one that it
	// samples: another token makes room.
	tokens := []int32{token, (token + 1) % 2}
	sampling := map[string]any{"max_tokens": 1, "temperature": 1, "logprobs": len(tokens), "logprob_token_ids": tokens}
	request := map[string]any{"model": name, "token_ids": before, "sampling_params": sampling, "cache_salt": salt}
	var refused *statusError
	switch err := e.ask(ctx, controlTime, "/inference/v1/generate", request, &answer); {
	case errors.As(err, &refused) &&
		(refused.status == http.StatusForbidden || missing(err) && !strings.Contains(refused.text, name)):
		return 0, ErrNoLogprobs // it was started without --enable-scale-out
	case err != nil:
		return 0, err
	case len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs.Content) != 1:
		return 0, fmt.Errorf("%s: %w", e.base, errProbe)
	}
	for _, of := range answer.Choices[0].Logprobs.Content[0].Top {
		if of.Token != nil && *of.Token == token {
			return of.Logprob, nil
		}
	}
	return 0, fmt.Errorf("%s: no log-probability of the token behind %d of the probe: %w", e.base, len(before),
		errProbe)
}
