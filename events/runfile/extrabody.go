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

// ownFields are those of a request that Rondo sets, or whose meaning it counts on: one answer, as a whole.
var ownFields = []string{
	"model", "messages", "tools", "tool_choice", "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "min_p", "repetition_penalty", "repeat_penalty",
	"presence_penalty", "frequency_penalty", "stop", "chat_template_kwargs", "seed", "logprobs", "top_logprobs", "return_token_ids", "return_prompt_token_ids", "return_meta_info",
	"return_weight_versions",
	"prompt", "stream", "stream_options", "n", "best_of", "echo", "use_beam_search",
}

// reshapingFields are those by which servers sample from another distribution than the model's own: bounds and biases of tokens, rules for the end, other samplers,
// grammars in the words of each server, and processors of logits.
var reshapingFields = []string{
	"logit_bias", "min_tokens", "min_new_tokens", "bad_words", "bad_words_ids", "banned_tokens", "banned_strings", "allowed_token_ids", "force_words_ids", "ignore_eos",
	"thinking_token_budget", "thinking_budget", "no_repeat_ngram_size", "length_penalty",
	"typical_p", "typical", "tfs_z", "top_a", "eta_cutoff", "epsilon_cutoff", "top_n_sigma", "xtc_probability", "dry_multiplier", "mirostat", "dynatemp_range", "dynatemp_exponent",
	"adaptive_target", "smoothing_factor", "samplers",
	"response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding", "guided_decoding_params", "structural_tag", "grammar",
	"json_schema", "json_object", "regex", "regex_schema", "ebnf",
	"custom_logit_processor", "custom_params", "logits_processors", "logits_processors_args", "vllm_xargs",
}

// Constraining reports whether a field of a request makes the server sample from another distribution than the model's own.
func Constraining(field string) bool { return slices.Contains(reshapingFields, field) }

// Constraints names the fields of extra_body by which tokens are sampled from another distribution than the model's own.
func (s Sampling) Constraints() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s.ExtraBody)) {
		if Constraining(name) {
			names = append(names, "extra_body."+name)
		}
	}
	return names
}

// Resumes reports whether an answer that broke off can be gone on with behind its tokens, so that all of it is sampled from one distribution. A server does not count the tokens of an earlier
// request for a penalty on what was said or for what repeats, begins a grammar anew, and does not see a stop text that an earlier request began.
func (s Sampling) Resumes() bool {
	counts := func(penalty *float64) bool { return penalty != nil && *penalty != 0 }
	_, repeats := s.ExtraBody["repetition_detection"]
	return !counts(s.PresencePenalty) && !counts(s.FrequencyPenalty) && !repeats && len(s.Constraints()) == 0 && len(s.Stop) == 0
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
