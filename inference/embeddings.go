package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// EmbeddingRequest asks for the vectors of texts, none of which is empty.
type EmbeddingRequest struct {
	Model      string   `json:"model"`
	Input      []string `json:"input"`
	Dimensions int      `json:"dimensions,omitempty"` // 0: as many as the model has
}

// vector is a list of numbers: null, as NaN is read too, is none.
type vector []float32

// UnmarshalJSON names the first element that is no number.
func (v *vector) UnmarshalJSON(data []byte) error {
	var list []*float32
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for i, x := range list {
		if x == nil {
			return fmt.Errorf("element %d of a vector is no number", i)
		}
		*v = append(*v, *x)
	}
	return nil
}

// Embed asks for a vector for each text, in their order, all of one size. Its error is a *Failure
// that does not tell the key.
func (c *Client) Embed(ctx context.Context, endpoint string, request EmbeddingRequest) ([][]float32, error) {
	url := strings.TrimSuffix(endpoint, "/") + "/embeddings"
	var answer struct {
		Data []struct {
			Index     int    `json:"index"`
			Embedding vector `json:"embedding"`
		} `json:"data"`
	}
	share := answers.Share(endpoint)
	defer share.End()
	if err := c.ask(ctx, url, request, &answer, share); err != nil {
		return nil, err
	}
	wrong := func(format string, args ...any) error {
		return &Failure{Class: events.ClassBadResponse, Permanent: true,
			Err: fmt.Errorf("answer of %s: %w", url, fmt.Errorf(format, args...))}
	}
	if len(answer.Data) != len(request.Input) {
		return nil, wrong("%d vectors for %d texts", len(answer.Data), len(request.Input))
	}
	vectors := make([][]float32, len(answer.Data))
	for _, d := range answer.Data {
		switch {
		case d.Index < 0 || d.Index >= len(vectors) || vectors[d.Index] != nil:
			return nil, wrong("the index %d is out of range or there twice", d.Index)
		case len(d.Embedding) == 0 || len(d.Embedding) != len(answer.Data[0].Embedding):
			return nil, wrong("vectors of %d and %d dimensions", len(answer.Data[0].Embedding), len(d.Embedding))
		}
		vectors[d.Index] = d.Embedding
	}
	return vectors, nil
}
