package runfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Bounds of a run's extra_body.
const (
	maxExtraFields = 32
	maxExtraBody   = 4 << 10 // bytes, as JSON
)

// ownFields are those of a request that Rondo sets, or whose meaning it counts
// on: one answer, as a whole.
var ownFields = []string{
	"model", "messages", "tools", "tool_choice", "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k",
	"min_p", "repetition_penalty", "repeat_penalty",
	"presence_penalty", "frequency_penalty", "stop", "chat_template_kwargs", "seed", "logprobs", "top_logprobs",
	"return_token_ids", "return_prompt_token_ids", "return_meta_info",
	"return_weight_versions",
	"prompt", "stream", "stream_options", "n", "best_of", "echo", "use_beam_search",
}

// promptFields are those of which servers make the prompt, neutral to the model's distribution.
var promptFields = []string{
	"chat_template", "documents", "mm_processor_kwargs", "media_io_kwargs", "add_generation_prompt",
	"add_special_tokens", "continue_final_message", "truncate_prompt_tokens", "n_keep",
	"thinking", "enable_thinking", "reasoning", "reasoning_effort", "reasoning_format", "session_params", "verbosity",
}

// neutralFields are the others that leave the model's distribution as it is, and the
// prompt: where an answer ends by its text, what comes with it, and whose request it is.
// All servers together know hundreds of fields for samplers and grammars, so that one that
// is not here counts as one of these.
var neutralFields = []string{
	"cache_salt", "priority", "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
	"prompt_cache_retention", "rid", "request_id", "extra_key",
	"kv_transfer_params", "data_parallel_rank", "routed_dp_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room",
	"cache_prompt", "id_slot", "n_cache_reuse",
	"keep_alive", "provider", "usage", "timings_per_token", "n_probs", "post_sampling_probs", "prompt_logprobs",
	"stop_token_ids", "stop_regex", "include_stop_str_in_output", "no_stop_trim", "skip_special_tokens",
	"spaces_between_special_tokens", "repetition_detection", "t_max_predict_ms",
	"parallel_tool_calls", "parse_tool_calls", "include_reasoning", "separate_reasoning", "stream_reasoning",
	"return_tokens_as_token_ids", "return_hidden_states", "return_routed_experts", "return_sampling_mask",
	"return_cached_tokens_details",
}

// Constraining reports whether a field of a request makes the server sample from another
// distribution than the model's own, as far as anybody can know.
func Constraining(field string) bool {
	return !slices.Contains(ownFields, field) && !slices.Contains(neutralFields, field) &&
		!slices.Contains(promptFields, field)
}

// GrammarFields are those constraining ones that are known to leave the prompt as it is, and by
// which servers run no code of a client's.
var GrammarFields = []string{
	"response_format", "logit_bias", "min_tokens", "bad_words", "allowed_token_ids", "ignore_eos", "structured_outputs",
	"guided_json", "guided_regex", "guided_choice", "guided_grammar",
	"structural_tag", "json_schema", "regex", "ebnf", "grammar",
}

// LeavesPrompt reports whether a field of a request is known to have no part in its prompt.
func LeavesPrompt(field string) bool {
	return slices.Contains(neutralFields, field) || slices.Contains(GrammarFields, field)
}

// Constraints names the fields of extra_body by which tokens are sampled from another
// distribution than the model's own.
func (s Sampling) Constraints() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.ExtraBody)) {
		if Constraining(name) {
			names = append(names, "extra_body."+name)
		}
	}
	return names
}

// Resumes reports whether an answer that broke off can be gone on with behind its tokens, so that
// all of it is sampled from one distribution. A server does not count the tokens of an earlier
// request for a penalty on what was said or for what repeats, nor its time, begins a grammar anew,
// and does not see a stop text that an earlier request began.
func (s Sampling) Resumes() bool {
	counts := func(penalty *float64) bool { return penalty != nil && *penalty != 0 }
	for _, name := range []string{"repetition_detection", "stop_regex", "t_max_predict_ms"} {
		if _, set := s.ExtraBody[name]; set {
			return false
		}
	}
	return !counts(s.PresencePenalty) && !counts(s.FrequencyPenalty) && len(s.Constraints()) == 0 && len(s.Stop) == 0
}

func (s Sampling) validateExtraBody() (errs []error) {
	if len(s.ExtraBody) > maxExtraFields {
		errs = append(errs, fmt.Errorf("sampling.extra_body: %d fields, at most %d", len(s.ExtraBody), maxExtraFields))
	}
	for _, name := range slices.Sorted(maps.Keys(s.ExtraBody)) {
		if slices.Contains(ownFields, name) {
			errs = append(errs, fmt.Errorf("sampling.extra_body: %s is Rondo's to set", name))
		}
	}
	if text, err := json.Marshal(s.ExtraBody); err != nil || len(text) > maxExtraBody {
		errs = append(errs, fmt.Errorf("sampling.extra_body: want at most %d bytes of JSON", maxExtraBody))
	}
	return errs
}
