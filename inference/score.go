package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// Score is how likely a model finds given tokens.
type Score struct {
	// Logprobs are natural logarithms at temperature 1, one for each token; 0 for the first,
	// which has nothing before it.
	Logprobs []float32
	// Model and Version are what the server calls itself and its weights; "" where it does not say.
	Model, Version string
}

// Score asks a server how likely its model finds tokens. Nothing is sampled that counts:
//
//	vLLM    POST /v1/completions  prompt: the ids; prompt_logprobs 0; choices[0].prompt_logprobs holds {id: {logprob}} of each token, null of the first
//	SGLang  POST /generate        input_ids; return_logprob, logprob_start_len 0; meta_info.input_token_logprobs holds [logprob, id, text] of each, null of the first
//
// An answer that names another token at some place, or has no log-probability there, is refused:
// one place off looks like a working teacher. The error is a *Failure that does not tell the key.
func (c *Client) Score(ctx context.Context, t runfile.Teacher, tokens []int32) (Score, error) {
	if len(tokens) == 0 {
		return Score{}, nil
	}
	base := strings.TrimSuffix(t.URL, "/")
	share := answers.Share(t.URL)
	defer share.End()
	if t.API == runfile.TeacherSGLang {
		url := strings.TrimSuffix(base, "/v1") + "/generate"
		var answer struct {
			MetaInfo struct {
				Logprobs []scoredToken   `json:"input_token_logprobs"`
				Version  json.RawMessage `json:"weight_version"`
			} `json:"meta_info"`
		}
		request := map[string]any{
			"input_ids": tokens, "sampling_params": map[string]any{"max_new_tokens": 0, "temperature": 0},
			"return_logprob": true, "logprob_start_len": 0, "stream": false,
		}
		if err := c.ask(ctx, url, request, &answer, share); err != nil {
			return Score{}, err
		}
		logprobs, err := scored(tokens, answer.MetaInfo.Logprobs)
		return Score{Logprobs: logprobs, Version: short(answer.MetaInfo.Version)},
			misread(url+": meta_info.input_token_logprobs", err)
	}
	url := base + "/completions"
	var answer struct {
		Model   string `json:"model"`
		Choices []struct {
			Logprobs []promptToken `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	request := map[string]any{"model": t.Model, "prompt": tokens, "max_tokens": 1, "temperature": 0,
		"prompt_logprobs": 0, "stream": false}
	if err := c.ask(ctx, url, request, &answer, share); err != nil {
		return Score{}, err
	}
	if len(answer.Choices) != 1 {
		return Score{}, misread(url, fmt.Errorf("%d choices instead of 1", len(answer.Choices)))
	}
	list := make([]scoredToken, len(answer.Choices[0].Logprobs))
	for i, entry := range answer.Choices[0].Logprobs {
		if i < len(tokens) {
			list[i] = entry.score(tokens[i])
		}
	}
	logprobs, err := scored(tokens, list)
	return Score{Logprobs: logprobs, Model: named(answer.Model)}, misread(url+": prompt_logprobs", err)
}

// Tokenize asks a server for the tokens of a text, without any that begin or end a prompt:
//
//	vLLM, SGLang   POST /tokenize   model, prompt, add_special_tokens false; tokens holds the ids
//
// The error is a *Failure.
func (c *Client) Tokenize(ctx context.Context, t runfile.Teacher, text string) ([]int32, error) {
	share := answers.Share(t.URL)
	defer share.End()
	url := strings.TrimSuffix(strings.TrimSuffix(t.URL, "/"), "/v1") + "/tokenize"
	var answer struct {
		Tokens tokenIDs `json:"tokens"`
	}
	if err := c.ask(ctx, url, map[string]any{"model": t.Model, "prompt": text, "add_special_tokens": false},
		&answer, share); err != nil {
		return nil, err
	}
	return answer.Tokens, misread(url, tokencheck.IDs(answer.Tokens))
}

// promptToken is what vLLM says of one place: the log-probabilities of the token there, and of
// likelier ones where it was asked for them, by id.
type promptToken map[string]struct {
	Logprob *float64 `json:"logprob"`
}

// score is what is said of the token that was asked about; another token's id where it is not.
func (p promptToken) score(token int32) scoredToken {
	if entry, there := p[strconv.Itoa(int(token))]; there {
		return scoredToken{entry.Logprob, token}
	}
	for id := range p {
		if other, err := strconv.ParseInt(id, 10, 32); err == nil {
			return scoredToken{nil, int32(other)}
		}
	}
	return scoredToken{nil, -1}
}

// scoredToken is a token with its log-probability, in SGLang's form [logprob or
// null, id, text or null].
type scoredToken struct {
	logprob *float64
	id      int32
}

// UnmarshalJSON reads a triple.
func (s *scoredToken) UnmarshalJSON(data []byte) error {
	var text any
	parts := []any{&s.logprob, &s.id, &text}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return fmt.Errorf("%d parts instead of a log-probability and a token id", len(parts))
	}
	return nil
}

// scored checks that a list says of each token, in its place, how likely it is.
func scored(tokens []int32, list []scoredToken) ([]float32, error) {
	if len(list) != len(tokens) {
		return nil, fmt.Errorf("%d entries for %d tokens", len(list), len(tokens))
	}
	logprobs := make([]float32, len(tokens))
	for i, entry := range list {
		switch v := entry.logprob; {
		case i == 0:
			continue // nothing is before it, and servers say null
		case entry.id != tokens[i]:
			return nil, fmt.Errorf("entry %d is of token %d, the token there is %d", i, entry.id, tokens[i])
		case v == nil:
			return nil, fmt.Errorf("entry %d has no log-probability of token %d", i, tokens[i])
		default:
			logprobs[i] = float32(*v)
		}
	}
	tokencheck.Round(logprobs)
	if err := tokencheck.Scored(logprobs); err != nil {
		return nil, err
	}
	return logprobs, nil
}

// misread is an answer that is none to what was asked. It does not become one by asking again.
func misread(what string, err error) error {
	if err == nil {
		return nil
	}
	return &Failure{Class: events.ClassBadResponse, Permanent: true,
		Err: errors.New(cut(printable(fmt.Sprintf("%s: %v", what, err)), maxError))}
}

// mostNamed bounds the names that servers give themselves and their weights, in characters.
const mostNamed = 100

func named(text string) string { return cut(printable(text), mostNamed) }

// short is a version, which is a text or a number.
func short(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return named(text)
	}
	var number json.Number
	if json.Unmarshal(value, &number) == nil {
		return named(number.String())
	}
	return ""
}
