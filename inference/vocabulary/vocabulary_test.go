package vocabulary

import (
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

// TestFinish: each server's word is one of a closed set, however it is spelt, and no word is
// the model's end by default.
func TestFinish(t *testing.T) {
	for want, words := range map[string][]string{
		events.FinishStop: {"stop", "STOP", "FinishReason.STOP", "eos", "eos_token", "EOS", "end_turn",
			"stop_sequence", "COMPLETE", "word", "kEND_ID", "STOP_WORDS"},
		events.FinishToolCalls: {"tool_calls", "TOOL_CALL", "tool_use", "function_call", "MALFORMED_FUNCTION_CALL"},
		events.FinishLength: {"length", "MAX_TOKENS", "max_length", "model_length", "max_output_tokens", "maxTokens",
			"limit", "model_context_window_exceeded", "FINISH_REASON_MAX_TOKENS",
			"kLENGTH", "max_tokens_reached", "context_full", "truncated"},
		events.FinishRepetition: {"repetition", "REPETITION", "loop_detected"},
		events.FinishFiltered: {"content_filter", "SAFETY", "recitation", "refusal", "guardrail_intervened",
			"sensitive", "ContentFilter", "PROHIBITED_CONTENT", "MODEL_ARMOR",
			"IMAGE_RECITATION", "content_blocked", "unsafe"},
		events.FinishAborted: {"abort", "ABORT"},
		events.FinishFailed: {"error", "aborted", "cancelled", "CANCELLED", "USER_CANCEL", "timeout",
			"insufficient_system_resource", "network_error", "ERROR", "max_time", "kTIMED_OUT",
			"deadline_exceeded", "stream_error"},
		events.FinishUnknown: {"", "null", "none", "not_finished", "OTHER", "FINISH_REASON_UNSPECIFIED", "NOT_FINISHED",
			"success", "ok", "true", "IMAGE_OTHER", "load", "pause_turn", "a new word", "停止", "1", "finish_reason"},
	} {
		for _, word := range words {
			if got := Finish(word); got != want {
				t.Errorf("%q is %q, want %q", word, got, want)
			}
		}
	}
	for word, state := range finishOf {
		if !slices.Contains(append(slices.Clone(events.Finishes), events.FinishAborted, events.FinishFailed), state) ||
			Finish(word) != state {
			t.Errorf("%q is in the table as %q, and is read as %q", word, state, Finish(word))
		}
	}
}

// TestOverflowWords: servers and proxies say in many ways that a request is too long for a context;
// other refusals that have such words are none.
func TestOverflowWords(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		full   bool
	}{
		// TensorRT-LLM
		{400, "Prompt length (9000) exceeds maximum input length (8192)", true},
		// TensorRT-LLM
		{400, "The sum of prompt length (9000.0), query length (0) and max_tokens (100) should not exceed max_num_tokens (8192)", true},
		// TensorRT-LLM
		{400, "default_max_tokens (-808) should be greater than 0, default_max_tokens (-808) = max_seq_len (8192) - prompt_len (9000)", true},
		// LMDeploy
		{400, "the prompt of 9000 tokens exceeds the session length 8192", true},
		// TGI
		{422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 100 `max_new_tokens`", true},
		// TGI
		{422, "Input validation error: `inputs` must have less than 8192 tokens. Given: 9000", true},
		// LiteLLM, Anthropic
		{400, "ContextWindowExceededError: prompt is too long: 9000 tokens > 8192 maximum", true},
		// Anthropic
		{400, "input length and `max_tokens` exceed context limit: 9000 + 100 > 8192, decrease input length or `max_tokens` and try again", true},
		// Ollama
		{400, "the input length exceeds the context length", true},
		// Ollama
		{400, "prompt too long; exceeded max context length by 808 tokens", true},
		// llama-cpp-python
		{400, "Requested tokens (9000) exceed context window of 8192", true},
		{400, "Prompt 超长", true},                 // Zhipu
		{400, "context shift is disabled", true}, // llama.cpp
		// SGLang
		{400, "Input length (9000 tokens) exceeds the maximum allowed length (8192 tokens). Use a shorter input or enable --allow-auto-truncate.", true},
		// Gemini
		{400, "The input token count (9000) exceeds the maximum number of tokens allowed (8192).", true},
		// Mistral
		{400, "Prompt contains 9000 tokens and 0 draft tokens, too large for model with 8192 maximum context length",
			true},
		// Bedrock
		{400, "Input is too long for requested model.", true},
		// xAI
		{400, "This model's maximum prompt length is 8192 but the request contains 9000 tokens.", true},
		// Moonshot
		{400, "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)", true},
		// DashScope
		{400, "Range of input length should be [1, 30720]", true},
		// Cerebras
		{400, "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
			true},
		// LM Studio
		{400, "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens", true},
		// TabbyAPI
		{400, "Prompt length 9000 is greater than max_seq_len 8192", true},
		{400, "prompt token count of 9000 exceeds the limit of 8192", true},
		{400, `{"error":{"message":"no","code":"model_max_prompt_tokens_exceeded","type":"context_length_exceeded"}}`,
			true},
		// Cohere
		{400, "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 9000", true},
		{400, "Please reduce your prompt; or completion length.", true},
		{400, "ValueError: The sequence length 9000 is longer than the KV cache capacity", true},
		{400, "total tokens 9000 would exceed the window 8192", true},
		{400, "prompt exceeds n_ctx", true},
		{400, "messages are too long for the model", true},
		{400, "Your request's input has 9000 tokens, but this model supports at most 8192", true},
		// vLLM
		{400, "max_tokens must be at least 1, got -808.", true},
		// gateways
		{400, "max_completion_tokens must be positive, got -5", true},
		// transformers
		{400, "Input length of input_ids is 9000, but `max_length` is set to 8192", true},
		// Bedrock
		{400, "Malformed input request: expected maxLength: 100000, actual: 120000, please reformat your input and try again.", true},
		// Volcengine
		{400, "Total tokens of image and text exceed max message tokens", true},
		// Baidu
		{400, "the max input characters is 11200", true},
		// OpenAI
		{400, "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got one of 11000000.", true},
		// OpenAI
		{400, "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2050 instead.", true},
		// OpenAI
		{400, `{"error":{"code":"string_above_max_length","param":"messages.[1].content","message":"Expected a string of length 1048576"}}`, true},
		// Azure
		{400, "Request body too large. Max size is 4 MB", true},
		// AI21
		{400, "number of tokens in prompt (9000) is over the limit", true},
		// gateways
		{400, "The total number of tokens is 9000 which is over the 8192 limit", true},
		// gateways
		{400, "prompt (9000 tokens) does not fit into the context (8192)", true},
		// gateways
		{400, "conversation has 9000 tokens; the limit is 8192", true},
		// gateways
		{400, "Requested 9000 tokens but the model only has 8192", true},
		// gateways
		{400, "Exceeded the model's limit of 8192 tokens", true},
		// MLX
		{400, "Context window full", true},
		// MLX
		{400, "not enough context left for the completion", true},
		// gateways
		{400, "No tokens left to generate: prompt has 9000 of 8192", true},
		// LM Studio
		{400, "The number of tokens to keep from the initial prompt is greater than the context length.", true},
		// ExLlama
		{400, "AssertionError: Total sequence length exceeds cache size in model.forward", true},
		// Vertex
		{400, "Unable to submit request because the input token count is 9000 but model only supports up to 8192. Reduce the input token count", true},
		// SambaNova
		{400, "Requested generation length 9000 is not possible! The provided prompt is 8000 tokens long, but the maximum supported sequence length is 16384!", true},
		{400, "Requested 130000 tokens, but context is 128000", true},
		{400, "len(prompt_tokens)=9000 must be less than seq_len=8192", true}, // LLaMA's own code
		{400, "This request (9000 tokens) would not fit in the KV cache (8192 tokens)", true},
		{400, "prompt of 9000 tokens has no room in n_ctx_slot = 8192", true},
		{400, "Token limit exceeded: 9000/8192", true},
		{422, "tokenized prompt is 9000 long, limit 8192", true},
		{413, "request entity too large", true},
		{413, "<html>413 Request Entity Too Large</html>", true},
		{500, `{"error":{"type":"exceed_context_size_error"}}`, true},

		{400, "max_tokens: 64000 exceeds the model's output limit", false},
		{429, "You exceeded the model's concurrency limit", false},
		{400, "temperature must be non-negative", false},
		{400, "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.", false},
		{400, "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model", false},
		{422, "Input validation error: `temperature` must be strictly positive", false},
		{422, "Input validation error: `max_new_tokens` must be <= 1024. Given: 2048", false},
		{422, `{"detail":[{"loc":["body","n"],"msg":"Input should be greater than or equal to 1000"}]}`, false},
		{400, "Invalid 'messages[3].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 55 instead.", false},
		{400, "Conversation roles must alternate user/assistant", false},
		{400, "image input exceeds the size limit of 20 MB", false},
		{400, "prompt contains token id 200000, which exceeds the vocabulary size 151936", false},
		{400, "The prompt exceeds our content policy limit", false},
		{400, "max_tokens must be at least 1, got 0", false},
		{400, "Invalid request: max_tokens must be less than 8192", false},
		{400, "token limit exceeded per minute", false},
		{400, "the tool call limit of 100 was exceeded", false},
		{400, "the request exceeds the maximum of 64 tools", false},
		{400, "tools: array too long. Expected maximum length 128", false},
		{400, "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024",
			false},
		{400, "stop sequence exceeds limit of 4", false},
		{400, "tool name exceeds the maximum length of 64", false},
		{400, "context variable x is not defined in the chat template", false},
		{400, "Request timed out: exceeds limit of 60 s", false},
		{400, "number of requests exceeds the limit of 100 concurrent", false},
		{429, "Request too large: input tokens per minute exceed the limit of 6000", false},
		{401, "the prompt is too long", false},
		{500, "This model's maximum context length is 2048 tokens.", false},
	} {
		if got := OverflowOf(c.status, []byte(c.body)); (got != nil) != c.full {
			t.Errorf("%d %q: a full context is %v, want %v", c.status, c.body, got != nil, c.full)
		}
	}
}

// TestUnreadCall: a call is found in the marks of each family of templates, and what a model says
// of calls in its thoughts is none.
func TestUnreadCall(t *testing.T) {
	const qwen = "<tool_call>\n{\"name\": \"ls\"}\n</tool_call>"
	for name, c := range map[string]struct {
		said, thoughts string
		want           bool
	}{
		"hermes":                   {qwen, "", true},
		"dsml":                     {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"ls\">", "", true},
		"dsml, the call alone":     {"<｜DSML｜invoke name=\"ls\">", "", true},
		"deepseek":                 {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "", true},
		"minimax":                  {"<minimax:tool_call>\n<invoke name=\"ls\"></invoke>", "", true},
		"seed":                     {"<seed:tool_call><function=ls>", "", true},
		"step":                     {"<steptml:invoke name=\"ls\">", "", true},
		"kimi":                     {"<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0", "", true},
		"harmony":                  {"<|channel|>commentary to=functions.ls<|message|>{}<|call|>", "", true},
		"harmony, of a role":       {"<|start|>assistant to=functions.ls<|channel|>commentary", "", true},
		"mistral":                  {"[TOOL_CALLS]ls{}", "", true},
		"llama":                    {"<|python_tag|>ls()", "", true},
		"nemotron":                 {"<TOOLCALL>[{}]</TOOLCALL>", "", true},
		"lfm":                      {"<|tool_call_start|>[ls()]<|tool_call_end|>", "", true},
		"gemma":                    {"<start_function_call>call:ls{}<end_function_call>", "", true},
		"command":                  {"<|START_ACTION|>[]", "", true},
		"qwen coder":               {"<function=ls>\n</function>", "", true},
		"in thoughts":              {"", "I look.\n" + qwen, true},
		"in thoughts, white space": {" \n", "I look.\n" + qwen + "\nNow I wait", true},
		"thoughts end with it":     {"I will look.", "I look.\n" + qwen, true},
		"thoughts speak of it": {"The mark is explained.",
			"The template writes <tool_call> before a call. I explain that", false},
		"llama, bare":     {"{\"name\": \"ls\", \"parameters\": {}}", "", true},
		"a bare list":     {" [{\"name\": \"ls\", \"arguments\": {\"path\": \".\"}}]\n", "", true},
		"bare in a fence": {"```json\n{\"name\": \"ls\", \"arguments\": {}}\n```", "", true},
		"openai's form": {"{\"type\": \"function\", \"function\": {\"name\": \"ls\", \"arguments\": \"{}\"}}",
			"", true},
		"arguments that are text": {"{\"name\": \"ls\", \"arguments\": \"all of them\"}", "", false},
		"harmony, without marks":  {"to=functions.ls <|message|>{}", "", true},
		"gemma, as code":          {"```tool_code\nls()\n```", "", true},
		"qwen, by signs":          {"✿FUNCTION✿: ls\n✿ARGS✿: {}", "", true},
		"claude's":                {"<tool_use>\n{\"name\": \"ls\"}", "", true},
		"glaive":                  {"<functioncall> {\"name\": \"ls\", \"arguments\": '{}'}", "", true},
		"mirothinker":             {"<use_mcp_tool>\n<server_name>files</server_name>", "", true},
		"functionary":             {">>>ls\n{}", "", true},
		"functionary, older":      {"<|recipient|> ls\n<|content|> {}", "", true},
		"LM Studio":               {"[TOOL_REQUEST]{}[END_TOOL_REQUEST]", "", true},
		"as Python":               {"[ls(path=\".\"), cat(file=\"a\")]", "", true},
		"command, as text": {"Action: ```json\n[{\"tool_name\": \"ls\", \"parameters\": {}}]\n```", "",
			true},
		"reason and act":          {"Thought: I look.\nAction: ls\nAction Input: {}", "", true},
		"without harmony's marks": {"commentary to=functions.ls json{}", "", true},
		"a fence of calls":        {"```tool_calls\n[]\n```", "", true},
		"a fence behind words":    {"I look.\n```json\n{\"name\": \"ls\", \"arguments\": {}}\n```\n", "", true},
		"an object behind words":  {"The config:\n```json\n{\"name\": \"build\", \"parameters\": {\"target\": \"x\"}}\n```\n", "", false},
		"calls in a field":        {"{\"tool_calls\": [{\"name\": \"ls\", \"arguments\": {}}]}", "", true},
		"an older field":          {"{\"function_call\": {\"name\": \"ls\", \"arguments\": \"{}\"}}", "", true},
		"other names of fields":   {"{\"action\": \"ls\", \"action_input\": {\"path\": \".\"}}", "", true},
		"claude's, bare": {"{\"type\": \"tool_use\", \"id\": \"a\", \"name\": \"ls\", \"input\": {}}",
			"", true},
		"two in lines":                  {"{\"name\": \"ls\", \"arguments\": {}}\n{\"name\": \"ls\", \"arguments\": {}}", "", true},
		"two with a sign":               {"{\"name\": \"ls\", \"parameters\": {}}; {\"name\": \"ls\", \"parameters\": {}}", "", true},
		"in capitals":                   {"<TOOL_CALL>{}</TOOL_CALL>", "", true},
		"command, newer":                {"<|START_TOOL_CALL|>[]", "", true},
		"qwen, as it was shown":         {"[tool_call: ls for '.']", "", true},
		"qwen coder, without its begin": {"<parameter=path>\n.\n</parameter>\n</function>", "", true},
		"glm, without its begin":        {"ls\n<arg_key>path</arg_key>\n<arg_value>.</arg_value>", "", true},
		"a tool's name":                 {"<tool name=\"ls\"><path>.</path></tool>", "", true},
		"harmony, others' tools":        {"commentary to=repo_browser.print_tree code{\"path\":\".\"}", "", true},
		"harmony, words together":       {"assistantcommentary to=container.exec json{\"cmd\":[\"ls\"]}", "", true},
		"gemini":                        {"print(default_api.ls(path='.'))", "", true},
		"many at once":                  {"{\"tool_uses\": [{\"recipient_name\": \"functions.ls\", \"parameters\": {}}]}", "", true},
		"one in a field":                {"{\"tool_call\": {\"name\": \"ls\", \"arguments\": {}}}", "", true},
		"mistral, without its mark":     {"ls{\"path\": \".\"}", "", true},
		"mistral, with one":             {"ls[ARGS]{\"path\": \".\"}", "", true},
		"kimi, without marks":           {"functions.ls:0{\"path\": \".\"}", "", true},
		"glm-4":                         {"ls\n{\"path\": \".\"}", "", true},
		"deepseek, without marks":       {"functionls\n```json\n{\"path\": \".\"}\n```", "", true},
		"an action in a fence": {"Thought: x\nAction:\n```\n{\"action\": \"ls\", \"action_input\": {}}\n```",
			"", true},
		"lines behind words":      {"I look.\n\n{\"name\": \"ls\", \"arguments\": {}}", "", true},
		"a list over lines":       {"[\n{\"name\": \"ls\", \"arguments\": {}}\n]", "", true},
		"a word and an object":    {"Answer {\"path\": 1}", "", false},
		"a name and other braces": {"class{x}", "", false},
		"a fence of JSON":         {"```json\n{\"path\": 1}\n```", "", false},
		"other lines behind words": {"The config:\n{\"name\": \"build\", \"parameters\": {\"target\": \"x\"}}", "",
			false},
		"a link":                  {"[the manual](https://example.org/a(b))", "", false},
		"a remark in brackets":    {"[see the file (it is long)]", "", false},
		"an input without a name": {"{\"input\": {}, \"output\": {}}", "", false},
		"a text as an input":      {"{\"name\": \"ls\", \"input\": \"a file\"}", "", false},
		"code in a fence": {"Use this:\n```python\nprint({'name': 'ls', 'arguments': {}})\n```", "",
			false},
		"a prompt of Python":   {">>> ls\n3", "", false},
		"no calls":             {"[]", "", false},
		"other JSON":           {"{\"name\": \"ls\", \"version\": \"1.0\"}", "", false},
		"a call in a sentence": {"Write {\"name\": \"ls\", \"arguments\": {}} to call it.", "", false},
		"words":                {"I called the tool. tool_calls are in the list.", "", false},
		"a type":               {"It returns Promise<ToolCall> and vector<function>.", "", false},
		"nothing":              {"", "", false},
	} {
		if got := UnreadCall(c.said, c.thoughts); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFiltered: what a filter refuses is told from other refusals.
func TestFiltered(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"The response was blocked by our usage policies","code":"policy_violation"}}`:   true,
		`{"error":{"message":"Your request was rejected by our safety system","code":"moderation_blocked"}}`: true,
		// Zhipu
		`{"error":{"message":"Input data may contain unsafe content","code":"1301"}}`:      true,
		`{"message":"内容包含敏感信息"}`:                                                           true,
		`{"error":{"message":"This request has been blocked because of harmful content"}}`: true,
		`{"error":{"message":"temperature must be below 2"}}`:                              false,
		`{"error":{"message":"no usage was counted"}}`:                                     false,
	} {
		if got := Filtered(400, []byte(body)); got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

// TestErrorBody: an error that comes with a status of success is one, whatever its
// form, and an answer is none.
func TestErrorBody(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"openai":         {`{"error":{"message":"no","type":"server_error","code":null}}`, 500},
		"a code":         {`{"error":{"message":"no","code":503}}`, 503},
		"a code as text": {`{"error":{"message":"no","code":"429"}}`, 429},
		"a type":         {`{"error":{"message":"slow down","type":"rate_limit_error"}}`, 429},
		"a text":         {`{"error":"model is loading"}`, 500},
		"an object":      {`{"object":"error","message":"no","type":"BadRequestError","code":400}`, 400},
		"anthropic":      {`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 503},
		"google":         {`[{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}]`, 400},
		"fastapi":        {`{"detail":"Internal"}`, 500},
		"a proxy":        {`{"code":502,"message":"upstream"}`, 502},
		"a full context": {`{"error":{"message":"the input length exceeds the context length"}}`, 400},
		"beside choices": {`{"error":{"message":"died","code":502},"choices":[{"message":{"content":"half"}}]}`,
			502},
		"a stream": {"data: {\"error\":{\"message\":\"no\",\"code\":500}}\n\ndata: [DONE]\n", 500},
		"a named stream": {"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
			500},
		"tgi": {`{"error":"Model is overloaded","error_type":"overloaded"}`, 503},
		"cloudflare": {`{"success":false,"errors":[{"code":5007,"message":"No such model"}],"result":null}`,
			500},
		"without success":       {`{"success":false,"message":"no"}`, 500},
		"minimax":               {`{"base_resp":{"status_code":1002,"status_msg":"rate limit"},"choices":null}`, 500},
		"minimax, an answer":    {`{"base_resp":{"status_code":0,"status_msg":""},"choices":[{"message":{"content":"a"}}]}`, 0},
		"baidu":                 {`{"error_code":17,"error_msg":"Open api daily request limit reached"}`, 500},
		"tencent":               {`{"Response":{"Error":{"Code":"LimitExceeded","Message":"no"}}}`, 500},
		"lambda":                {`{"errorMessage":"timeout","errorType":"Function.TimedOut"}`, 500},
		"apigee":                {`{"fault":{"faultstring":"quota"}}`, 500},
		"problem details":       {`{"type":"https://x/problem","title":"Bad Gateway","status":502}`, 502},
		"spring":                {`{"timestamp":"x","status":503,"error":"Service Unavailable","path":"/v1"}`, 503},
		"a full context alone":  {`{"message":"prompt is too long: 9000 tokens > 8192"}`, 400},
		"in the choice":         {`{"object":"chat.completion","choices":[{"error":{"code":502,"message":"no"},"finish_reason":"stop"}]}`, 502},
		"fields of other types": {`{"error":{"message":"no","code":503},"type":404,"success":"no"}`, 503},
		"a stream's event":      {"event: error\ndata: {\"message\":\"died\"}\n\n", 500},
		"null choices":          {`{"code":"InvalidParameter","message":"no","choices":null}`, 400},
		"an error of nothing":   {`{"error":{"message":"","code":null},"choices":[{"message":{"content":"a"}}]}`, 0},
		"a code of success":     {`{"code":0,"message":"success","choices":[{"message":{"content":"\"error\""}}]}`, 0},
		"an answer":             {`{"object":"chat.completion","choices":[{"message":{"content":"{\"error\":1}"}}],"error":null}`, 0},
		"tokens":                {`{"tokens":[1,2],"count":2}`, 0},
		"an answer with detail": {`{"choices":[],"detail":"x"}`, 0},
		"no JSON":               {`<html>`, 0},
		"nothing":               {``, 0},
	} {
		if got, _ := ErrorBody([]byte(c.body)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
