// Package inference speaks with OpenAI-compatible inference servers, and reads from their answers
// exactly which tokens were sampled.
package inference

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/memory"
)

// The wire format is OpenAI's chat completions with the fields that inference servers add for
// training: token ids, log-probabilities and the weights' version.
//
// vLLM (0.10.2 and later) takes return_token_ids, and answers with prompt_token_ids
// beside the choices, token_ids in each choice, and the log-probabilities where OpenAI
// has them, in logprobs.content.
//
// SGLang (0.5.13 and later) takes return_prompt_token_ids and return_meta_info, and answers with
// prompt_token_ids and meta_info.output_token_logprobs in each choice; newer versions know
// return_token_ids too. The weights' version stands in meta_info and in metadata.
//
// Both say which weights sampled which tokens: vLLM 0.33 takes return_weight_versions, and answers
// with weight_versions in each choice; SGLang has them in meta_info, where there were several.

// Request asks for one turn.
type Request struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools,omitempty"`
	Sample
	Seed     *int64 `json:"seed,omitempty"`
	Logprobs bool   `json:"logprobs"`
	// 0 is said, too: newer vLLM gives no log-probabilities without it
	TopLogprobs          int    `json:"top_logprobs"`
	ToolChoice           string `json:"tool_choice,omitempty"`
	ReturnTokenIDs       bool   `json:"return_token_ids"`
	ReturnPromptTokenIDs bool   `json:"return_prompt_token_ids"`
	ReturnMetaInfo       bool   `json:"return_meta_info"`
	ReturnWeightVersions bool   `json:"return_weight_versions"`
	// ReturnTokensAsIDs has vLLM name the tokens of top_logprobs by their ids.
	ReturnTokensAsIDs bool `json:"return_tokens_as_token_ids,omitempty"`
	// AddGenerationPrompt is for renderings alone: false ends them behind the last message.
	AddGenerationPrompt *bool `json:"add_generation_prompt,omitempty"`
	// Extra are further fields, those of a run's extra_body.
	Extra map[string]any `json:"-"`
	// Columns are what is asked for beside tokens, which each engine calls
	// something else; nil is nothing.
	Columns *runfile.TokenColumns `json:"-"`
	// Written are the first so many Messages as AppendMessages writes them, where the caller has
	// kept that: it is sent in their place. Whoever changes Messages leaves it out.
	Written Written `json:"-"`
}

// Written are messages in JSON.
type Written struct {
	Messages int
	JSON     []byte
}

// NewSeed is a seed as a run sends it: nil where it sends none.
func NewSeed(s runfile.Sampling, seed int64) *int64 {
	if s.Seed == runfile.SeedNone {
		return nil
	}
	return &seed
}

// Message is one message of a conversation.
type Message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	Thoughts
}

// ToolCall is one call that a message asks for.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function Function `json:"function"`
}

// Function is what is called.
type Function struct {
	Name string `json:"name"`
	// Arguments are JSON text in requests. Models write what they like, and servers
	// pass on a text or an object.
	Arguments Arguments `json:"arguments"`
}

// Arguments is the text of a tool call's arguments as the model wrote it.
type Arguments string

// UnmarshalJSON takes any JSON value: what is wrong with it is for the tool to say.
func (a *Arguments) UnmarshalJSON(data []byte) error {
	var text *string
	switch err := json.Unmarshal(data, &text); {
	case err != nil:
		*a = Arguments(data)
	case text != nil:
		*a = Arguments(*text)
	}
	return nil
}

// ForServer is the text as servers accept it in a conversation: they read it before they render it,
// and answer 400 to all but a JSON object.
func (a Arguments) ForServer() Arguments {
	text := strings.TrimLeft(string(a), " \t\r\n")
	// each call of a conversation is looked at in each of its turns
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		return a
	}
	if strings.TrimSpace(text) == "" {
		return "{}"
	}
	wrapped, _ := json.Marshal(map[string]string{"malformed_arguments": string(a)}) // a map of texts is always JSON
	return Arguments(wrapped)
}

// Tool is a tool that the model may call.
type Tool struct {
	Type     string      `json:"type"`
	Function Description `json:"function"`
	// Raw is written in place of the others, where it is there: a tool as a client wrote it.
	Raw json.RawMessage `json:"-"`
}

// MarshalJSON writes a tool.
func (t Tool) MarshalJSON() ([]byte, error) {
	type plain Tool // without this method
	if t.Raw != nil {
		return t.Raw, nil
	}
	return Encode(plain(t))
}

// Description says what a tool does; Parameters is a JSON Schema.
type Description struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	// Strict: the server is to hold the arguments to the schema while it
	// samples; nil leaves that to it.
	Strict *bool `json:"strict,omitempty"`
}

// Response is an answer.
type Response struct {
	sent     time.Time     // when it was asked for
	took     time.Duration // until it was there
	asked    int           // bytes of the request
	share    *memory.Share
	parts    int // requests that sampled it, where they are counted
	recorded int // tokens of it that were recorded before it was asked for
	beside   *tokenColumns
	streamed bool // it came as a stream
	// the server has said that some of its tokens have no log-probability,
	// or has left out their ids
	unmeasured     bool
	lifted         []int32  // ids of the prompt that were read as digits alone, so that none is below 0
	PromptTokenIDs tokenIDs `json:"prompt_token_ids"`
	Choices        choices  `json:"choices"`
	Usage          usage    `json:"usage"`
	WeightVersion  version  `json:"weight_version"` // where the built-in policy puts it
	Metadata       struct {
		WeightVersion version `json:"weight_version"`
	} `json:"metadata"`
	SGLExt struct { // of SGLang's chats
		RoutedExperts packed `json:"routed_experts"`
	} `json:"sglext"`
}

// usage is how many tokens a server counts.
type usage struct {
	PromptTokens     tokenCount `json:"prompt_tokens"`
	CompletionTokens tokenCount `json:"completion_tokens"`
}

// UnmarshalJSON has no error: the turn is as good without.
func (u *usage) UnmarshalJSON(data []byte) error {
	type plain usage
	_ = json.Unmarshal(data, (*plain)(u))
	return nil
}

// tokenCount is how many tokens a server counts; 0 where it does not say, or says what is no count.
type tokenCount int

// UnmarshalJSON has no error.
func (c *tokenCount) UnmarshalJSON(data []byte) error {
	var n float64
	if err := json.Unmarshal(data, &n); err != nil || n != math.Trunc(n) || n < 0 || n > math.MaxInt32 {
		n = 0
	}
	*c = tokenCount(n)
	return nil
}

// SentAt is when the request was sent that this answers: not one that was refused before it.
func (r *Response) SentAt() time.Time { return r.sent }

// Streamed reports whether the answer came as a stream.
func (r *Response) Streamed() bool { return r.streamed }

// Recorded is how many tokens of the answer, the first ones, were recorded before it was asked for.
func (r *Response) Recorded() int { return r.recorded }

// timed notes when the request was sent, and how long the server took. The wait for
// memory in this process is not the server's time; before is how long the share had
// waited when the request was sent.
func (r *Response) timed(sent time.Time, share *memory.Share, before time.Duration) {
	r.sent, r.took = sent, time.Since(sent)-(share.Waited()-before)
}

// Done says that the answer is of no more use, so that its memory is given to others. It may be
// called twice, and for no answer.
func (r *Response) Done() {
	if r != nil {
		r.share.End()
	}
}

// Choice is what was sampled.
type Choice struct {
	FinishReason   finishWord      `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason"` // a text, the id of a token, or null
	Message        saidMessage     `json:"message"`
	TokenIDs       tokenIDs        `json:"token_ids"`
	PromptTokenIDs tokenIDs        `json:"prompt_token_ids"`
	WeightVersions versionSpans    `json:"weight_versions"`
	RoutedExperts  packed          `json:"routed_experts"`
	SamplingMask   lists[int32]    `json:"sampling_mask"`
	logprobs       []float32       // of TokenIDs, where these came in a stream or in parts
	Logprobs       struct {
		Content []sampledEntry `json:"content"`
	} `json:"logprobs"`
	MetaInfo struct {
		WeightVersion  version      `json:"weight_version"`
		WeightVersions versionSpans `json:"weight_versions"`
		// OutputTokenLogprobs are [logprob, token id, text or null].
		OutputTokenLogprobs []sampledToken      `json:"output_token_logprobs"`
		OutputTopLogprobs   lists[sampledToken] `json:"output_top_logprobs"`
		SamplingMask        lists[int32]        `json:"output_token_sampling_mask"`
		RoutedExperts       packed              `json:"routed_experts"`
		RoutedExpertsStart  *int                `json:"routed_experts_start_len"`
	} `json:"meta_info"`
}

// sampledEntry is a sampled token's log-probability.
type sampledEntry struct {
	Token   string       `json:"token"`
	TokenID *int32       `json:"token_id"` // of vLLM's path of tokens
	Logprob *logprob     `json:"logprob"`
	Top     []topLogprob `json:"top_logprobs"`
}

// topLogprob is a token that was likely in a place.
type topLogprob struct {
	Token   string   `json:"token"`
	TokenID *int32   `json:"token_id"` // of vLLM's path of tokens
	ID      *int32   `json:"id"`       // of llama.cpp's chats
	Logprob *logprob `json:"logprob"`
}
