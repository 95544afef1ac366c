package vocabulary

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Overflow is a server's refusal of a request whose prompt and answer are longer
// together than its context.
type Overflow struct {
	// Prompt is how many tokens the prompt has, and Limit how many the context; 0 where
	// the server does not say.
	Prompt, Limit int
}

// The words for it, in lower case and without quotes. Where a list says what the numbers are, the
// first one that it finds counts.
var (
	// overflowCodes are names that servers have for it, in a code, a type or a class of
	// errors: OpenAI, llama.cpp, LiteLLM, Anthropic, LMDeploy, Azure; and words of
	// Volcengine's that speak of images, too.
	overflowCodes = regexp.MustCompile(`context_?(length|window|size|limit)_?exceed|exceeds?_?context|(input|prompt)_?(is_)?too_?long|request_too_large|` +
		`(prompt|input)_?(tokens?|length)_?(limit_?)?(exceed|error)|tokens?_limit_(reached|exceeded)|tokens of image and text exceed`)
	overflowed = []*regexp.Regexp{
		// Lengths that are named: vLLM, SGLang, OpenAI, Mistral, xAI, and TensorRT-LLM and
		// TabbyAPI by their settings.
		regexp.MustCompile(`max(imum)? (context|prompt|input|sequence|model) (length|size)|context length is only|\bmax_(model|seq|input)_len|\bmax_num_tokens|range of input length`),
		// llama.cpp, Groq, Cerebras, older vLLM
		regexp.MustCompile(`context shift is disabled|(reduce|decrease|shorten) the (length|size|number of tokens)( of| in)?( the| your)? (prompt|input|messages|conversation|context)` +
			`|(reduce|decrease|shorten) your (prompt|input|messages|conversation|context)`),
		// The room for the answer is below 0: vLLM, TensorRT-LLM.
		regexp.MustCompile(`max_(completion_|new_|output_)?tokens must be [a-z ]*\d*,? got:? -\d`),
		// A conversation that is one text, or one list, for its server: OpenAI,
		// Bedrock, transformers, Baidu.
		regexp.MustCompile(`\bmessages(\.?\[\d+\]\.content\S{0,20})?: (string|array) too long` +
			`|string_above_max_length.{0,80}messages\.?\[\d+\]\.content` +
			`|expected maxlength: \d+, actual: \d+|length of input_ids is \d+|max input (characters|tokens|length) (is|are) \d`),
		// Without numbers: llama.cpp, MLX, gateways
		regexp.MustCompile(`\bcontext( window| size| length)? (is |was )?(full|overflow(ed)?|exhausted)\b|not enough context` +
			`|\bno (room|tokens|space) ((is |are )?left )?(to|for|in)\b|\btoken limit (was |is )?(exceeded|reached)` +
			`|\bexceed(s|ed)? (the |this )?(models? limit|(models? )?(context|prompt|input) .{0,20}\b(limit|length|window))\b`),
		// Numbers on both sides of another sentence.
		regexp.MustCompile(`\b((prompt|inputs?|messages|conversation|request)\b.{0,40}? (has|have|of|is|contains?)|requested) ` +
			`\d{3,} (tokens|long).{0,80}?\b(limit|maximum|max|only|at most|context)\b`),
		// LLaMA's own code
		regexp.MustCompile(`\b(prompt|inputs?)(_\w+)?\b.{0,60}?\b(must|should|has to|have to) be (less|fewer|smaller|lower|shorter|at most)\b.{0,60}?(token|len|context|\b\d{3,})`),
		// TGI, LMDeploy, Ollama, Anthropic, Gemini, Moonshot, LM Studio, Cohere
		regexp.MustCompile(`\b(prompt|inputs?|context|conversation|sequence|request|requested tokens|total tokens|token count|total length|number of tokens)\b.{0,120}?` +
			`(\bexceed|\boverflow|\blonger than|\blarger than|\bgreater than|\bmore than|\bbigger than|\bover the\b|\bnot fit|<=|>|\bmust have (less|fewer) than|\bcannot be over).{0,120}?` +
			`(context|window|token|len\b|length|limit|size|capacity|\bn_ctx|\b\d{3,})`),
		regexp.MustCompile(`\b(prompt|inputs?|context|conversation|messages|sequence|request|request entity|request body|payload)\b( text| length| tokens?)? (is |are |was )?too (long|large|big)`),
		regexp.MustCompile(`\b(prompt|inputs?|messages|conversation)\b.{0,120}?\bsupports? (at most|only|up to) \d{3,}`),
		regexp.MustCompile(`too many (input |prompt |total )?tokens`),                             // Bedrock, Cohere
		regexp.MustCompile(`(上下文|输入|长度|prompt).{0,24}(超过|超出|过长|超长)|(超过|超出).{0,24}(上下文|长度|token)`), // DashScope, Zhipu
	}
	// elsewhere are what other refusals say that have such words, too: a validator's own words for
	// any field, and what is no count of tokens.
	elsewhere = regexp.MustCompile(`input validation error:|input should (be|have)|validation errors? for`)
	otherwise = regexp.MustCompile(`\b(image|audio|video|media|pixel|file|vocab\w*|rate|quota|policy|safety|filter|temperature|logprobs|top_[pk]|` +
		`seconds?|ms|timed out|timeout|concurren\w*|stop (sequence|string|word|token)s?)\b|per (second|minute|hour|day)|\btpm\b|\brpm\b`)

	limits = []*regexp.Regexp{
		regexp.MustCompile(`maximum context length (?:is|of) (\d+)`),
		regexp.MustCompile(`context length is only (\d+)`),
		regexp.MustCompile(`context length \((\d+)`),
		regexp.MustCompile(`maximum model length of (\d+)`),
		regexp.MustCompile(`context size \((\d+)`),
		regexp.MustCompile(`context window of (\d+)`),
		regexp.MustCompile(`session length (\d+)`),
		regexp.MustCompile(`context limit: \d+ \+ \d+ > (\d+)`),
	}
	prompts = []*regexp.Regexp{
		regexp.MustCompile(`\((\d+) in the messages`),
		regexp.MustCompile(`has (\d+) input tokens`),
		regexp.MustCompile(`contains (\d+) input tokens`),
		regexp.MustCompile(`input \((\d+) tokens`),
		regexp.MustCompile(`(\d+) tokens from the input messages`),
		regexp.MustCompile(`prompt \(length (\d+)`),
		regexp.MustCompile(`request \((\d+) tokens`),
		regexp.MustCompile(`messages resulted in (\d+) tokens`),
		regexp.MustCompile(`prompt of (\d+) tokens`),
		regexp.MustCompile(`context limit: (\d+) \+`),
	}
	quotes = strings.NewReplacer("`", "", `"`, "", `'`, "", `\`, "", "*", "")
)

// OverflowOf reads an error answer; nil where it says anything else. A status of 413 says it alone:
// of a conversation that grows, nothing else is too large. vLLM's "You passed N input tokens" stops
// counting behind the longest prompt that would fit, so that N is no length of the prompt.
func OverflowOf(status int, body []byte) *Overflow {
	text := quotes.Replace(strings.ToLower(string(body)))
	if !overflows(status, text) {
		return nil
	}
	var counted struct {
		Error struct {
			Prompt int `json:"n_prompt_tokens"` // of llama.cpp
			Limit  int `json:"n_ctx"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &counted) // other servers say it in their text alone
	o := &Overflow{Prompt: max(0, counted.Error.Prompt), Limit: max(0, counted.Error.Limit)}
	if o.Prompt == 0 {
		o.Prompt = firstNumber(prompts, text)
	}
	if o.Limit == 0 {
		o.Limit = firstNumber(limits, text)
	}
	return o
}

func overflows(status int, text string) bool {
	switch status {
	case http.StatusRequestEntityTooLarge:
		return true
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
	case http.StatusInternalServerError: // of a server whose own exception comes out
		return overflowCodes.MatchString(text)
	default:
		return false
	}
	if overflowCodes.MatchString(text) {
		return true
	}
	if text = elsewhere.ReplaceAllString(text, ""); otherwise.MatchString(text) {
		return false
	}
	for _, words := range overflowed {
		if words.MatchString(text) {
			return true
		}
	}
	return false
}

// firstNumber is the number that the first matching pattern finds, 0 for none.
func firstNumber(patterns []*regexp.Regexp, text string) int {
	for _, p := range patterns {
		if found := p.FindStringSubmatch(text); found != nil {
			n, _ := strconv.Atoi(found[1]) // one too large for an int counts as none
			return n
		}
	}
	return 0
}
