package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
)

// Fields of a request are passed on, or are the run's to say, or have no effect on what is sampled; all others are refused by name, unless their value says nothing.

// constraintFields are those of chat completions and of inference servers that are passed on although the model's own distribution is not sampled then: the turn says
// so. Those by which servers run code of the client's are not among them.
var constraintFields = []string{
	"response_format", "logit_bias", "min_tokens", "bad_words", "allowed_token_ids", "ignore_eos", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
	"guided_grammar", "structural_tag", "json_schema", "regex", "ebnf", "grammar",
}

// Fields that all dialects, or chat completions, or the others, take up. Of these model, temperature, and what else the run's sampling sets are the run's to say; the turn
// has beside it what was asked for.
var (
	commonFields = []string{
		"model", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "chat_template_kwargs",
	}
	chatFields = slices.Concat(commonFields, constraintFields, []string{
		"messages", "parallel_tool_calls", "stop", "reasoning_effort", "max_tokens", "max_completion_tokens", "n", "logprobs", "top_logprobs", "return_token_ids", "stream_options",
		"functions",
	})
	messagesFields = slices.Concat(commonFields, []string{
		"max_tokens", "system", "messages", "stop_sequences", "output_config", "output_format",
	})
	responsesFields = slices.Concat(commonFields, []string{
		"input", "instructions", "previous_response_id", "conversation", "max_output_tokens", "background", "parallel_tool_calls", "text", "reasoning",
	})
)

// Fields that agents send and that change nothing of what is sampled here: names of users and sessions, keys of caches, tiers of service, what a provider keeps, and the
// budget of thoughts, which the model's template sets.
var (
	harmlessFields = []string{
		"metadata", "user", "safety_identifier", "service_tier", "store", "prompt_cache_key", "prompt_cache_retention", "stream_options", "include_reasoning", "usage",
	}
	harmlessChat     = append(slices.Clip(harmlessFields), "verbosity", "prediction", "modalities", "return_tokens_as_token_ids")
	harmlessMessages = append(slices.Clip(harmlessFields), "thinking", "context_management", "cache_control", "betas", "anthropic_beta", "anthropic_version", "speed", "inference_geo")
	harmlessOthers   = append(slices.Clip(harmlessFields), "include", "client_metadata", "truncation", "max_tool_calls", "text_verbosity")
)

func (chatDialect) fields() (taken, harmless []string)      { return chatFields, harmlessChat }
func (messagesDialect) fields() (taken, harmless []string)  { return messagesFields, harmlessMessages }
func (responsesDialect) fields() (taken, harmless []string) { return responsesFields, harmlessOthers }

// refuseFields refuses the fields of a request that nobody would see.
func refuseFields(d dialect, body []byte) error {
	var request map[string]json.RawMessage
	if err := json.Unmarshal(body, &request); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	taken, harmless := d.fields()
	for _, field := range slices.Sorted(maps.Keys(request)) {
		switch {
		case slices.Contains(taken, field) || slices.Contains(harmless, field) || saysNothing(request[field]):
		case field == "best_of" && string(request[field]) == "1":
		case field == "seed":
			return fmt.Errorf("seed: each turn has a seed of its own, which follows from the rollout's; leave it out")
		default:
			return fmt.Errorf("%.100s: it is not passed on to the inference server; leave it out, or set it in the run file's sampling.extra_body", field)
		}
	}
	return nil
}

// saysNothing reports whether a value leaves a field as it is without it.
func saysNothing(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "false", "0", `""`, "[]", "{}":
		return true
	}
	return false
}

// constraints names what of a call makes the server sample from another distribution than the policy's: what the harness asks for, and what the run does.
func (a *ask) constraints() (names []string) {
	for _, field := range slices.Sorted(maps.Keys(a.forward)) {
		value := a.forward[field]
		switch {
		case saysNothing(value):
		case field == "tool_choice" && forces(value), field == "tools" && strict(value):
			names = append(names, field)
		case field == "response_format" && typeOf(value) == "text":
		case runfile.Constraining(field):
			names = append(names, field)
		}
	}
	return append(names, a.sampling.Constraints()...)
}

// forces reports whether a choice of tools makes the model call one.
func forces(choice json.RawMessage) bool {
	var word string
	if json.Unmarshal(choice, &word) != nil {
		word = typeOf(choice)
	}
	return word != "auto" && word != "none"
}

// strict reports whether a tool's arguments must follow its schema, for which servers have a grammar.
func strict(tools json.RawMessage) bool {
	var list []struct {
		Strict   bool `json:"strict"`
		Function struct {
			Strict bool `json:"strict"`
		} `json:"function"`
	}
	if json.Unmarshal(tools, &list) != nil {
		return false
	}
	for _, tool := range list {
		if tool.Strict || tool.Function.Strict {
			return true
		}
	}
	return false
}

func typeOf(value json.RawMessage) string {
	var typed struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(value, &typed) != nil {
		return ""
	}
	return typed.Type
}
