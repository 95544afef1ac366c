// Package embedder opens what turns the texts of an index into vectors: the built-in table, or a
// server that is asked over HTTP.
package embedder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/retry"
)

// Where the key of a server stands.
const (
	keyVariable     = "RONDO_EMBEDDINGS_KEY"
	keyFileVariable = "RONDO_EMBEDDINGS_KEY_FILE"
	maxKey          = 64 << 10 // bytes
)

// What a server is asked at once, and how often.
const (
	batchTexts = 64
	batchBytes = 128 << 10 // some 32 thousand tokens
	maxText    = 16 << 10  // bytes of one text: models take some 8000 tokens, and most fewer. The rest is left out
	inFlight   = 4

	requestTime = time.Minute
	openTime    = 2 * time.Minute
)

// askAgain is how long a server rests after a request that may still become right,
// and how often that is made.
var askAgain = retry.Policy{First: 500 * time.Millisecond, Most: 30 * time.Second, Tries: 6}

// remote asks an OpenAI-compatible server.
type remote struct {
	client     inference.Client
	endpoint   string
	model      string
	asked      int // dimensions, 0 where the model's are taken
	dimensions int
	memory     dimensionMemory
	id         string
	again      retry.Policy
}

// Open gives the embedder that a spec names:
//
//	static                                       the built-in table
//	https://api.example.com/v1#MODEL             an OpenAI-compatible server
//	https://api.example.com/v1?dimensions=512#M  the same, which is asked for as many dimensions
//
// A server is shown the key in the environment variable RONDO_EMBEDDINGS_KEY, or in the file that
// RONDO_EMBEDDINGS_KEY_FILE names. The server is asked once, for its dimensions, which are
// remembered in a folder; "" remembers nothing.
func Open(spec, memory string) (embed.Embedder, error) {
	switch {
	case spec == "", spec == "static":
		return embed.Static(), nil
	case strings.HasPrefix(spec, "http://"), strings.HasPrefix(spec, "https://"):
		r, err := openRemote(spec, memory)
		if err != nil {
			return nil, fmt.Errorf("embedder: %w", err)
		}
		return r, nil
	}
	return nil, fmt.Errorf("embedder: %.80q: want static or http(s)://HOST/v1#MODEL", spec)
}

func openRemote(spec, memory string) (*remote, error) {
	r, err := parseRemote(spec)
	if err != nil {
		return nil, err
	}
	if r.client.APIKey, err = readKey(); err != nil {
		return nil, err
	}
	// which would lose the body
	r.client.HTTP = &http.Client{CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	if err := r.measure(memory); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(r.endpoint + "\x00" + r.model + "\x00" + strconv.Itoa(r.dimensions)))
	r.id = "remote-" + hex.EncodeToString(sum[:8])
	return r, nil
}

// measure learns how many dimensions the model has: from what is remembered of the
// server, or by asking it.
func (r *remote) measure(memory string) error {
	r.memory = newDimensionMemory(memory, r)
	if r.dimensions = r.memory.load(); r.dimensions > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	vectors, err := r.ask(ctx, []string{"How many dimensions?"})
	if err != nil {
		return err
	}
	r.dimensions = len(vectors[0])
	if r.dimensions > embed.MaxDimensions || r.asked > 0 && r.dimensions != r.asked {
		return fmt.Errorf("%s answered %d dimensions: want %d, at most %d", r.endpoint, r.dimensions,
			r.asked, embed.MaxDimensions)
	}
	r.memory.keep(r.dimensions)
	return nil
}

func parseRemote(spec string) (*remote, error) {
	base, model, _ := strings.Cut(spec, "#")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, errors.New("give a server as https://HOST/v1#MODEL, without credentials: its key is read from " +
			keyVariable)
	}
	if model == "" {
		return nil, fmt.Errorf("%s names no model: add #MODEL", base)
	}
	r := &remote{model: model, again: askAgain}
	for name, values := range u.Query() {
		if r.asked, err = strconv.Atoi(values[0]); name != "dimensions" || err != nil || r.asked < 1 ||
			r.asked > embed.MaxDimensions || len(values) > 1 {
			return nil, fmt.Errorf("%s: %s: want ?dimensions=N, N within 1 and %d", base, name, embed.MaxDimensions)
		}
	}
	u.RawQuery = ""
	r.endpoint = strings.TrimRight(u.String(), "/")
	return r, nil
}

// readKey gives the server's key, "" for none.
func readKey() (string, error) {
	key, from := os.Getenv(keyVariable), keyVariable
	if name := os.Getenv(keyFileVariable); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", keyFileVariable, err)
		}
		key, from = string(text), name
	}
	key = strings.TrimSpace(key)
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("%s holds no key: want one line of visible characters", from)
	}
	return key, nil
}

func (r *remote) ID() string { return r.id }

func (r *remote) Dimensions() int { return r.dimensions }

func (r *remote) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors, short := make([][]float32, len(texts)), make([]string, len(texts))
	for i, text := range texts {
		short[i] = cut(text)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	for _, places := range batches(short) {
		group.Go(func() error {
			list := make([]string, len(places))
			for i, at := range places {
				list[i] = short[at]
			}
			answer, err := r.ask(ctx, list)
			if err != nil {
				return err
			}
			for i, at := range places {
				if len(answer[i]) != r.dimensions {
					r.memory.forget()
					return fmt.Errorf("%s answered %d dimensions, and %d before: it has another model now; try again, and all is embedded anew",
						r.endpoint, len(answer[i]), r.dimensions)
				}
				vectors[at] = direction(answer[i])
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("embed %d texts: %w", len(texts), err)
	}
	for i := range vectors {
		if vectors[i] == nil {
			vectors[i] = make([]float32, r.dimensions) // of an empty text, which servers refuse
		}
	}
	return vectors, nil
}

// batches gives the places of the texts that are asked for together. Empty texts are in none.
func batches(texts []string) [][]int {
	var list [][]int
	var batch []int
	size := 0
	for i, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		if len(batch) == batchTexts || size+len(text) > batchBytes && len(batch) > 0 {
			list, batch, size = append(list, batch), nil, 0
		}
		batch, size = append(batch, i), size+len(text)
	}
	if len(batch) > 0 {
		list = append(list, batch)
	}
	return list
}

// cut gives the beginning of a text, and valid UTF-8.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// direction gives a vector its length; one that has no direction is zero.
func direction(values []float32) []float32 {
	square := 0.0
	for _, x := range values {
		square += float64(float64(x) * float64(x)) // the conversion keeps a compiler from fusing
	}
	vector := make([]float32, len(values))
	if length := math.Sqrt(square); length > 0 && !math.IsInf(length, 0) {
		for i, x := range values {
			vector[i] = float32(float64(x) / length)
		}
	}
	return vector
}

// ask tries again what may become right, and rests in between.
func (r *remote) ask(ctx context.Context, texts []string) ([][]float32, error) {
	request := inference.EmbeddingRequest{Model: r.model, Input: texts, Dimensions: r.asked}
	for try := 1; ; try++ {
		vectors, err := r.once(ctx, request)
		if err == nil {
			return vectors, nil
		}
		var f *inference.Failure
		if !errors.As(err, &f) || !mayBecomeRight(f) || ctx.Err() != nil {
			return nil, err
		}
		if r.again.GivesUp(try) {
			return nil, fmt.Errorf("after %d tries: %w", try, err)
		}
		if !retry.Sleep(ctx, max(f.After, r.again.Delay(try))) {
			return nil, fmt.Errorf("%w, the last answer being: %w", ctx.Err(), err)
		}
	}
}

func (r *remote) once(ctx context.Context, request inference.EmbeddingRequest) ([][]float32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return r.client.Embed(ctx, r.endpoint, request)
}

// mayBecomeRight: a connection, a server in trouble, or one that has too much to do.
func mayBecomeRight(f *inference.Failure) bool {
	return !f.Permanent && (f.Status == 0 || f.Status == http.StatusRequestTimeout ||
		f.Status == http.StatusTooManyRequests || f.Status >= 500)
}
