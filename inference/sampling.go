package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Sample is how a request samples. All that a run sets is sent: what is not, servers take
// from the model's generation_config.json, as vLLM and SGLang do, or from defaults of
// their own, as llama.cpp does.
type Sample struct {
	Temperature       float64        `json:"temperature"`
	MaxTokens         int            `json:"max_tokens,omitempty"` // 0 leaves it to the server
	TopP              *float64       `json:"top_p,omitempty"`
	TopK              *int           `json:"top_k,omitempty"`
	MinP              *float64       `json:"min_p,omitempty"`
	RepetitionPenalty *float64       `json:"repetition_penalty,omitempty"`
	RepeatPenalty     *float64       `json:"repeat_penalty,omitempty"` // llama.cpp's name of it
	PresencePenalty   *float64       `json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64       `json:"frequency_penalty,omitempty"`
	Stop              []string       `json:"stop,omitempty"`
	TemplateKwargs    map[string]any `json:"chat_template_kwargs,omitempty"`
}

// MarshalJSON writes the request with the run's further fields, which take the place of none.
func (r Request) MarshalJSON() ([]byte, error) {
	parts, err := r.parts()
	return bytes.Join(parts, nil), err
}

// parts is the request in JSON: the messages come last, and those that are written are not copied.
func (r Request) parts() ([][]byte, error) {
	type plain Request // without its methods
	fields, err := Encode(struct {
		plain
		Messages *struct{} `json:"messages,omitempty"` // takes the place of the other one
	}{plain: plain(r)})
	if err == nil && len(r.Extra) > 0 {
		fields, err = r.withExtra(fields)
	}
	if err != nil {
		return nil, err
	}
	last, err := AppendMessages(nil, r.Messages[r.Written.Messages:])
	if len(last) > 0 && r.Written.Messages > 0 {
		last = append([]byte{','}, last...)
	}
	return [][]byte{append(bytes.TrimSuffix(fields, []byte("}")), `,"messages":[`...), r.Written.JSON,
		append(last, "]}"...)}, err
}

// AppendMessages writes messages behind others as JSON, with commas between them.
func AppendMessages(written []byte, messages []Message) ([]byte, error) {
	for _, m := range messages {
		text, err := Encode(m)
		if err != nil {
			return nil, err
		}
		if len(written) > 0 {
			written = append(written, ',')
		}
		written = append(written, text...)
	}
	return written, nil
}

// withExtra adds the run's further fields to those of a request.
func (r Request) withExtra(body []byte) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	err := json.Unmarshal(body, &fields)
	if err != nil {
		return nil, err
	}
	for name, value := range r.Extra {
		if _, ours := fields[name]; ours || name == "messages" {
			continue
		}
		if fields[name], err = Encode(value); err != nil {
			return nil, fmt.Errorf("extra_body: %s: %w", name, err)
		}
	}
	return Encode(fields)
}

// NewSample is a run's sampling in a request.
func NewSample(s runfile.Sampling) Sample {
	return Sample{
		Temperature: s.Temperature, MaxTokens: s.MaxTokens, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP,
		RepetitionPenalty: s.RepetitionPenalty, RepeatPenalty: s.RepetitionPenalty,
		PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Stop: s.Stop,
		TemplateKwargs: s.ChatTemplateKwargs,
	}
}

// extras are the fields that OpenAI's own API refuses, with the values that ask for nothing.
var extras = map[string][]string{
	"top_k": {"-1"}, "min_p": {"0"}, "repetition_penalty": {"1"}, "repeat_penalty": {"1"},
	"chat_template_kwargs": {"{}"},
	"return_token_ids":     {"true", "false"}, "return_prompt_token_ids": {"true", "false"},
	"return_meta_info":       {"true", "false"},
	"return_weight_versions": {"true", "false"}, "return_tokens_as_token_ids": {"true"},
	"return_routed_experts": {"true"}, "return_sampling_mask": {"true"},
}

// ErrRefusedSampling means that a server refuses a parameter that the run sets to
// more than its neutral value.
var ErrRefusedSampling = errors.New("the server does not take a parameter that the run sets")

// WithoutExtras is a request without the fields that only servers for open models take. A parameter
// that changes how tokens are sampled cannot be left out: ErrRefusedSampling.
func WithoutExtras(request any) (map[string]json.RawMessage, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	for name, neutral := range extras {
		if value, ok := fields[name]; ok && !slices.Contains(neutral, string(value)) {
			return nil, fmt.Errorf("%w: %s is %.80s; leave it out of the run file", ErrRefusedSampling, name, value)
		}
		delete(fields, name)
	}
	return fields, nil
}

// OnlyOpenAI is a run's sampling as WithoutExtras leaves it.
func OnlyOpenAI(s runfile.Sampling) runfile.Sampling {
	s.TopK, s.MinP, s.RepetitionPenalty, s.ChatTemplateKwargs = nil, nil, nil, nil
	return s
}

// unknownField is how servers say that they do not know a field.
var unknownField = regexp.MustCompile(`(?i)unknown|unrecogni[sz]ed|unsupported|not supported|unexpected|extra (inputs|fields)|not permitted|additional propert`)

// CompleteAs is Complete for a server of which it is known whether it takes OpenAI's
// own fields alone (plain). One that turns out to is asked again without the others;
// plain says so from then on.
func (c *Client) CompleteAs(ctx context.Context, endpoint string, plain bool,
	request any) (response *Response, nowPlain bool, err error) {
	var refused *Failure
	if !plain {
		response, err = c.Complete(ctx, endpoint, request)
		if !errors.As(err, &refused) || !refused.OnlyOpenAI {
			return response, false, err
		}
	}
	fields, err := WithoutExtras(request)
	if err != nil {
		return nil, true, &Failure{Class: events.ClassEndpoint, Permanent: true,
			Err: fmt.Errorf("%s: %w", endpoint, err)}
	}
	response, err = c.Complete(ctx, endpoint, fields)
	return response, true, err
}

// refusesExtras reports whether an error answer says that the server does not know one
// of the fields which only servers for open models take: OpenAI's own API does, and
// gateways that are as strict.
func refusesExtras(status int, text string) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || !unknownField.MatchString(text) {
		return false
	}
	for name := range extras {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}
