package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// VLLM is a vLLM server, 0.32 or later, with VLLM_SERVER_DEV_MODE=1.
type VLLM struct {
	*client
	// Update says what the backend rondo of vLLM's weight transfer needs to load a version. from is
	// the version that the server says it serves; 0: none.
	Update func(ctx context.Context, v Version, from int64) (*Update, error)
}

// NewVLLM is the server at an address. key, which may be "", is sent as a bearer
// token; transport may be nil.
func NewVLLM(base, key string, transport http.RoundTripper) (*VLLM, error) {
	c, err := newClient(base, key, transport)
	return &VLLM{client: c}, err
}

// Labels of weights that are no version, for the tokens that a server samples all the same.
const (
	loadingLabel = "loading"
	refusedLabel = "refused"
)

// Label implements [Engine].
func (e *VLLM) Label(ctx context.Context) (string, error) {
	var info struct {
		Version string `json:"weight_version"`
	}
	if err := e.ask(ctx, controlTime, "/weight_info", nil, &info); err != nil {
		if missing(err) {
			err = fmt.Errorf("%w (start vLLM with VLLM_SERVER_DEV_MODE=1)", err)
		}
		return "", err
	}
	return info.Version, nil
}

// Load implements [Engine]. Requests in flight wait meanwhile and go on with the new weights. From
// before the weights change until they are whole the label is none of a version, so that no failure
// on the way leaves a server that says that it has what it has not.
func (e *VLLM) Load(ctx context.Context, v Version) error {
	s, err := e.settings(ctx)
	if err != nil {
		return err
	}
	if s.Config.Transfer.Backend == transferBackend {
		return e.transfer(ctx, v)
	}
	method := "reload_weights"
	if s.Config.Parallel.Extension == extension {
		method = "reload_version"
	}
	return e.paused(ctx, func() error {
		if err := e.relabel(ctx, v.Label()+"-"+loadingLabel); err != nil {
			return err
		}
		reload := map[string]any{"method": method, "kwargs": map[string]string{"weights_path": v.Dir},
			"timeout": loadTime.Seconds()}
		if err := e.ask(ctx, loadTime, "/collective_rpc", reload, nil); err != nil {
			return err
		}
		if err := e.resetCache(ctx); err != nil {
			return err
		}
		return e.relabel(ctx, v.Label())
	})
}

const (
	// extension is the class of workers, from the Python package, that reloads what vLLM's
	// own reload leaves behind.
	extension = "rondo.vllm.Worker"
	// transferBackend is the backend of vLLM's weight transfer from the Python package.
	transferBackend = "rondo"
)

// vllmSettings say how a server's workers take up weights.
type vllmSettings struct {
	Config struct {
		Parallel struct {
			Extension string `json:"worker_extension_cls"`
		} `json:"parallel_config"`
		Transfer struct {
			Backend string `json:"backend"`
		} `json:"weight_transfer_config"`
	} `json:"vllm_config"`
}

func (e *VLLM) settings(ctx context.Context) (s vllmSettings, err error) {
	var refused *statusError
	if err := e.ask(ctx, controlTime, "/server_info?config_format=json", nil, &s); err != nil &&
		!errors.As(err, &refused) {
		return s, err
	}
	return s, nil
}

// Refuse implements [Engine].
func (e *VLLM) Refuse(ctx context.Context, v Version) error {
	return e.paused(ctx, func() error { return e.relabel(ctx, v.Label()+"-"+refusedLabel) })
}

// paused does something while the server computes nothing, and lets it go on whatever comes of it,
// also where the caller's time is up.
func (e *VLLM) paused(ctx context.Context, do func() error) (err error) {
	defer func() {
		err = errors.Join(err, e.Resume(context.WithoutCancel(ctx)))
	}()
	// Without clear_cache=false the requests in flight would lose their place
	// before anything has changed.
	if err := e.ask(ctx, controlTime, "/pause?mode=keep&clear_cache=false", nothing{}, nil); err != nil {
		return err
	}
	return do()
}

// Resume implements [Engine].
func (e *VLLM) Resume(ctx context.Context) error {
	return e.ask(ctx, controlTime, "/resume", nothing{}, nil)
}

func (e *VLLM) relabel(ctx context.Context, label string) error {
	return e.ask(ctx, controlTime, "/update_weight_version", map[string]string{"new_version": label}, nil)
}

// resetCache drops what the old weights have computed of prompts. While requests hold blocks of it
// the server drops nothing, and says so: then these are computed again, too.
func (e *VLLM) resetCache(ctx context.Context) error {
	for _, path := range []string{"/reset_prefix_cache", "/reset_prefix_cache?reset_running_requests=true"} {
		var answer struct {
			Success bool `json:"success"`
		}
		if err := e.ask(ctx, controlTime, path, nothing{}, &answer); err != nil {
			return err
		}
		if answer.Success {
			return nil
		}
	}
	return fmt.Errorf("%s: /reset_prefix_cache: the server keeps what the old weights have computed", e.base)
}

// Logprobs implements [Engine]. A salt of its own keeps the prompt away from what is cached.
func (e *VLLM) Logprobs(ctx context.Context, tokens []int32) ([]float64, error) {
	model, err := e.model(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Choices []struct {
			Prompt []map[string]struct {
				Logprob float64 `json:"logprob"`
			} `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	request := map[string]any{"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0,
		"cache_salt": rand.Text()}
	if err := e.ask(ctx, controlTime, "/v1/completions", request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Choices) != 1 || len(answer.Choices[0].Prompt) != len(tokens) {
		return nil, fmt.Errorf("%s: %w", e.base, errProbe)
	}
	found := make([]float64, 0, len(tokens))
	for i, at := range answer.Choices[0].Prompt[1:] {
		of, ok := at[strconv.Itoa(int(tokens[i+1]))]
		if !ok {
			return nil, fmt.Errorf("%s: no log-probability of token %d of the probe: %w", e.base, i+1, errProbe)
		}
		found = append(found, of.Logprob)
	}
	return found, nil
}
