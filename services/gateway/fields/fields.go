// Package fields says of each field of a request whether the gateway passes it on. Fields are
// passed on, or are the run's to say, or have no effect on what is sampled; all others are refused
// by name, unless their value says nothing.
package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/wording"
)

// Constraining are those of chat completions and of inference servers that are passed on although
// the model's own distribution is not sampled then: the turn says so.
var Constraining = runfile.GrammarFields

// Fields that all dialects, or chat completions, or the others, take up. Of these model,
// temperature, and what else the run's sampling sets are the run's to say; the turn has
// beside it what was asked for.
var (
	commonFields = []string{
		"model", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
		"presence_penalty", "frequency_penalty", "chat_template_kwargs",
	}
	chatFields = slices.Concat(commonFields, Constraining, []string{
		"messages", "parallel_tool_calls", "stop", "reasoning_effort", "max_tokens", "max_completion_tokens", "n",
		"logprobs", "top_logprobs", "return_token_ids", "stream_options",
		"functions",
	})
	messagesFields = slices.Concat(commonFields, []string{
		"max_tokens", "system", "messages", "stop_sequences", "output_config", "output_format",
	})
	responsesFields = slices.Concat(commonFields, []string{
		"input", "instructions", "previous_response_id", "conversation", "max_output_tokens", "background",
		"parallel_tool_calls", "text", "reasoning",
	})
	geminiFields = []string{"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
)

// Fields that agents send and that change nothing of what is sampled here: names of users and
// sessions, keys of caches, tiers of service, what a provider keeps, and the budget of thoughts,
// which the model's template sets.
var (
	harmlessFields = []string{
		"metadata", "user", "safety_identifier", "service_tier", "store", "prompt_cache_key", "prompt_cache_retention",
		"stream_options", "include_reasoning", "usage",
	}
	harmlessChat = append(slices.Clip(harmlessFields), "verbosity", "prediction", "modalities",
		"return_tokens_as_token_ids")
	harmlessMessages = append(slices.Clip(harmlessFields), "thinking", "context_management", "cache_control", "betas",
		"anthropic_beta", "anthropic_version", "speed", "inference_geo")
	harmlessResponses = append(slices.Clip(harmlessFields), "include", "client_metadata", "truncation",
		"max_tool_calls", "text_verbosity")
	harmlessGemini = []string{"safetySettings", "labels", "serviceTier", "store"}
)

// Dialect has the fields of a protocol's requests that the gateway takes up, and
// those without an effect.
type Dialect struct {
	taken, harmless []string
	// within are the fields of those objects of which only some are taken up.
	within map[string][]string
}

// The dialects of harnesses.
var (
	Chat   = Dialect{taken: chatFields, harmless: harmlessChat}
	Gemini = Dialect{taken: geminiFields, harmless: harmlessGemini}
	// GeminiCount is a request within one for a number of tokens, which names its model again.
	GeminiCount = Dialect{taken: append(slices.Clip(geminiFields), "model"), harmless: harmlessGemini}
	Messages    = Dialect{messagesFields, harmlessMessages, map[string][]string{"output_config": {"format", "effort"}}}
	Responses   = Dialect{responsesFields, harmlessResponses, map[string][]string{
		"text": {"format", "verbosity"}, "reasoning": {"effort", "summary", "generate_summary"},
	}}
)

// Read reads the fields of a request.
func Read(body []byte) (request map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, fmt.Errorf("read the request: %w", wording.Plain(err))
	}
	return request, nil
}

// Check reads the fields of a request, and refuses one with fields that nobody would see. The
// error names the first one.
func (d Dialect) Check(body []byte) (map[string]json.RawMessage, error) {
	request, err := Read(body)
	if err != nil {
		return nil, err
	}
	if err := Exact(body, d.taken...); err != nil {
		return nil, err
	}
	return request, d.check(request)
}

func (d Dialect) check(request map[string]json.RawMessage) error {
	for _, field := range slices.Sorted(maps.Keys(request)) {
		switch {
		case d.within[field] != nil:
			if err := Only(field+".", request[field], d.within[field]); err != nil {
				return err
			}
		case slices.Contains(d.taken, field) || slices.Contains(d.harmless, field):
		case isDefault(field, request[field]):
		case field == "seed":
			return fmt.Errorf("seed: each turn has a seed of its own, which follows from the rollout's; leave it out")
		default:
			return fmt.Errorf("%.100s: it is not passed on to the inference server; leave it out, or set it in the run file's sampling.extra_body", field)
		}
	}
	return nil
}

// defaults are values of fields that ask for what is done anyway. That false and 0 are so for a
// field is not known of its name: enable_thinking and seed say much with them.
var defaults = map[string][]string{
	"best_of": {"0", "1"}, "n": {"1"}, "top_logprobs": {"0"}, "priority": {"0"}, "length_penalty": {"1", "1.0"},
	"echo": {"false"}, "use_beam_search": {"false"}, "add_special_tokens": {"false"},
	"continue_final_message":     {"false"},
	"include_stop_str_in_output": {"false"}, "no_stop_trim": {"false"}, "safe_prompt": {"false"}, "logprobs": {"false"},
	"responseLogprobs": {"false"}, "return_meta_info": {"false"}, "return_hidden_states": {"false"},
	"return_routed_experts": {"false"},
	"return_token_ids":      {"false"}, "return_prompt_token_ids": {"false"}, "return_tokens_as_token_ids": {"false"},
	"add_generation_prompt": {"true"}, "skip_special_tokens": {"true"}, "spaces_between_special_tokens": {"true"},
	"separate_reasoning": {"true"}, "ignore_eos": {"false"}, "min_tokens": {"0"},
}

// isDefault reports whether a field's value is what the request has without it.
func isDefault(field string, value json.RawMessage) bool {
	value = bytes.TrimSpace(value)
	if slices.Contains(defaults[field], string(value)) {
		return true
	}
	return saysNothing(value) && string(value) != "false" && string(value) != "0"
}

// Only refuses an object with other fields than those that are read; null has none. at
// comes before a field's name.
func Only(at string, object json.RawMessage, read []string) error {
	var has map[string]json.RawMessage
	if json.Unmarshal(object, &has) != nil {
		return fmt.Errorf("%s: want an object", strings.TrimSuffix(at, "."))
	}
	if err := Exact(object, read...); err != nil {
		return fmt.Errorf("%s%w", at, err)
	}
	for _, field := range slices.Sorted(maps.Keys(has)) {
		if !slices.Contains(read, field) && !isDefault(field, has[field]) {
			return fmt.Errorf("%s%.100s: it is not passed on to the inference server; leave it out", at, field)
		}
	}
	return nil
}

// saysNothing reports whether a value leaves a constraining field as it is without it.
func saysNothing(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}

// Constraints names what of a chat completion makes the server sample from another
// distribution than the policy's.
func Constraints(request map[string]json.RawMessage) (names []string) {
	for _, field := range slices.Sorted(maps.Keys(request)) {
		value := request[field]
		switch {
		case saysNothing(value):
		case field == "tool_choice" && forces(value), field == "tools" && strict(value):
			names = append(names, field)
		case field == "response_format" && typeOf(value) == "text":
		case runfile.Constraining(field):
			names = append(names, field)
		}
	}
	return names
}

// forces reports whether a choice of tools makes the model call one.
func forces(choice json.RawMessage) bool {
	var word string
	if json.Unmarshal(choice, &word) != nil {
		word = typeOf(choice)
	}
	return word != "auto" && word != "none"
}

// strict reports whether a tool's arguments must follow its schema, for which servers have a
// grammar. Tools that cannot be read may say so.
func strict(tools json.RawMessage) bool {
	var list []struct {
		Strict   json.RawMessage `json:"strict"`
		Function struct {
			Strict json.RawMessage `json:"strict"`
		} `json:"function"`
	}
	if Decode(tools, &list) != nil {
		return true
	}
	for _, tool := range list {
		for _, said := range []json.RawMessage{tool.Strict, tool.Function.Strict} {
			if len(said) > 0 && !saysNothing(said) {
				return true
			}
		}
	}
	return false
}

func typeOf(value json.RawMessage) string {
	var typed struct {
		Type string `json:"type"`
	}
	if Decode(value, &typed) != nil {
		return ""
	}
	return typed.Type
}

// parameterNames are those by which harnesses say, in one dialect or another, how to sample.
var parameterNames = append([]string{
	"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
	"stop", "stop_sequences",
	"max_tokens", "max_completion_tokens", "max_output_tokens", "chat_template_kwargs", "reasoning_effort",
	"reasoning", "thinking", "text",
	"tool_choice", "parallel_tool_calls", "output_config", "output_format",
}, Constraining...)

// maxParameter is how long a recorded parameter is, in bytes of JSON; of a longer
// one the digest is recorded.
const maxParameter = 1 << 10

// Settings are the fields of a request that say something about sampling.
func Settings(request map[string]json.RawMessage) map[string]json.RawMessage {
	settings := map[string]json.RawMessage{}
	for _, name := range parameterNames {
		if raw, ok := request[name]; ok && string(raw) != "null" {
			settings[name] = raw
		}
	}
	return settings
}

// Requested is what settings are, for the record.
func Requested(settings map[string]json.RawMessage) (requested map[string]any, err error) {
	for name, raw := range settings {
		var value any
		if len(raw) > maxParameter {
			value = fmt.Sprintf("%d bytes, %s", len(raw), storage.Digest(raw))
		} else if err := json.Unmarshal(raw, &value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if requested == nil {
			requested = map[string]any{}
		}
		requested[name] = value
	}
	return requested, nil
}
