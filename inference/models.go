package inference

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// Model is one of those that a server says it has.
type Model struct {
	ID string `json:"id"`
	// OwnedBy names the kind of the server: vllm, sglang, llamacpp and so on.
	OwnedBy string `json:"owned_by"`
	// Parent is the model of which this one is an adapter.
	Parent string `json:"parent"`
	// Context is how many tokens prompt and answer have together, 0 where the server does
	// not say. Trained is how many the model was trained with, which llama.cpp says of
	// models that it has not loaded.
	Context int `json:"-"`
	Trained int `json:"-"`
}

// maxModels bounds the list of models, and what else a server says of itself, in bytes.
const maxModels = 4 << 20

// Models asks which models a server has. Its error is a *Failure.
func (c *Client) Models(ctx context.Context, endpoint string) ([]Model, error) {
	var answer struct {
		Data []struct {
			Model
			MaxModelLen int `json:"max_model_len"` // of vLLM and SGLang
			Meta        struct {
				Slot  int `json:"n_ctx"` // of llama.cpp
				Train int `json:"n_ctx_train"`
			} `json:"meta"`
		} `json:"data"`
	}
	if err := c.get(ctx, strings.TrimSuffix(endpoint, "/")+"/models", &answer); err != nil {
		return nil, err
	}
	var list []Model
	for _, d := range answer.Data {
		d.Context, d.Trained = max(0, cmp.Or(d.MaxModelLen, d.Meta.Slot)), max(0, d.Meta.Train)
		list = append(list, d.Model)
	}
	return list, nil
}

// get reads a small answer. Its error is a *Failure.
func (c *Client) get(ctx context.Context, url string, answer any) error {
	return c.page(ctx, url, func(body io.Reader) error {
		return json.NewDecoder(io.LimitReader(body, maxModels)).Decode(answer)
	})
}

// page hands what a server answers under an address to a function, which bounds how much it reads.
// Its error is a *Failure.
func (c *Client) page(ctx context.Context, url string, take func(io.Reader) error) error {
	failed := func(err error) error { return &Failure{Class: events.ClassEndpoint, Err: redactError(err, c.APIKey)} }
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return failed(err)
	}
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		var op *net.OpError
		return &Failure{Class: events.ClassEndpoint, Away: errors.As(err, &op) && op.Op == "dial",
			Err: redactError(err, c.APIKey)}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &Failure{Class: events.ClassEndpoint, Status: resp.StatusCode,
			Err: fmt.Errorf("%s answered %s", url, resp.Status)}
	}
	if err := take(resp.Body); err != nil {
		return failed(fmt.Errorf("answer of %s: %w", url, err))
	}
	return nil
}
