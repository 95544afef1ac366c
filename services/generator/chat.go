package generator

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// The wire format is OpenAI's chat completions with the fields that inference servers add for training: token ids,
// log-probabilities and the weights' version.
//
// vLLM (0.10.2 and later) takes return_token_ids, and answers with prompt_token_ids beside the choices, token_ids in
// each choice, and the log-probabilities where OpenAI has them, in logprobs.content.
//
// SGLang (0.5.13 and later) takes return_prompt_token_ids and return_meta_info, and answers with prompt_token_ids and
// meta_info.output_token_logprobs in each choice; newer versions know return_token_ids too. The weights' version
// stands in meta_info and in metadata.

type chatRequest struct {
	Model                string        `json:"model"`
	Messages             []chatMessage `json:"messages"`
	Tools                []chatTool    `json:"tools,omitempty"`
	Temperature          float64       `json:"temperature"`
	MaxTokens            int           `json:"max_tokens"`
	Seed                 int64         `json:"seed"`
	Logprobs             bool          `json:"logprobs"`
	ReturnTokenIDs       bool          `json:"return_token_ids"`
	ReturnPromptTokenIDs bool          `json:"return_prompt_token_ids"`
	ReturnMetaInfo       bool          `json:"return_meta_info"`
}

type chatMessage struct {
	Role       string         `json:"role"`
	Content    string         `json:"content"`
	ToolCalls  []chatToolCall `json:"tool_calls,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"`
}

type chatToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name string `json:"name"`
	// Arguments are JSON text in requests. Models write what they like, and servers pass on a text or an object.
	Arguments arguments `json:"arguments"`
}

// arguments is the text of a tool call's arguments as the model wrote it.
type arguments string

// UnmarshalJSON takes any JSON value: what is wrong with it is for the tool to say.
func (a *arguments) UnmarshalJSON(data []byte) error {
	var text *string
	switch err := json.Unmarshal(data, &text); {
	case err != nil:
		*a = arguments(data)
	case text != nil:
		*a = arguments(*text)
	}
	return nil
}

// forServer is the text as servers accept it in a conversation: they read it before they render it, and answer 400
// to all but a JSON object.
func (a arguments) forServer() arguments {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(a), &object) == nil && object != nil {
		return a
	}
	if strings.TrimSpace(string(a)) == "" {
		return "{}"
	}
	wrapped, _ := json.Marshal(map[string]string{"malformed_arguments": string(a)}) // a map of texts is always JSON
	return arguments(wrapped)
}

type chatTool struct {
	Type     string          `json:"type"`
	Function chatDescription `json:"function"`
}

type chatDescription struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

type chatResponse struct {
	PromptTokenIDs []int32      `json:"prompt_token_ids"`
	Choices        []chatChoice `json:"choices"`
	Usage          struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	WeightVersion version `json:"weight_version"` // where the built-in policy puts it
	Metadata      struct {
		WeightVersion version `json:"weight_version"`
	} `json:"metadata"`
}

type chatChoice struct {
	FinishReason string `json:"finish_reason"`
	Message      struct {
		Content   string         `json:"content"`
		ToolCalls []chatToolCall `json:"tool_calls"`
	} `json:"message"`
	TokenIDs       []int32 `json:"token_ids"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"`
	Logprobs       struct {
		Content []struct {
			Logprob *float32 `json:"logprob"`
		} `json:"content"`
	} `json:"logprobs"`
	MetaInfo struct {
		WeightVersion version `json:"weight_version"`
		// OutputTokenLogprobs are [logprob, token id, text or null].
		OutputTokenLogprobs [][]json.RawMessage `json:"output_token_logprobs"`
	} `json:"meta_info"`
}

// version reads a policy version that servers write as a number or as text. One that is no version, such as SGLang's
// "default", says nothing.
type version struct {
	number int64
	known  bool
}

func (v *version) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(data), `"`), 10, 64)
	v.number, v.known = n, err == nil && n >= 0
	return nil
}

// policyVersion is the version of the weights that the answer was sampled with.
func (r *chatResponse) policyVersion(otherwise int64) int64 {
	for _, v := range []version{r.WeightVersion, r.Choices[0].MetaInfo.WeightVersion, r.Metadata.WeightVersion} {
		if v.known {
			return v.number
		}
	}
	return otherwise
}

// systemPrompt tells the model where it is. The task's own words follow as the user's message.
const systemPrompt = "You are a coding agent. The repository is your working directory, %s. " +
	"Use the tools to inspect it, run commands and edit files; several calls may stand in one answer. " +
	"When the task is done, answer without a tool call."

// conversation renders a rollout as chat messages.
func conversation(task events.TaskSpec, r *events.Rollout) []chatMessage {
	messages := []chatMessage{
		{Role: "system", Content: fmt.Sprintf(systemPrompt, task.Workdir)},
		{Role: "user", Content: task.Instruction},
	}
	for _, turn := range r.Turns {
		m := chatMessage{Role: "assistant", Content: turn.Content}
		for _, c := range turn.ToolCalls {
			m.ToolCalls = append(m.ToolCalls, chatToolCall{ID: c.ID, Type: "function", Function: chatFunction{Name: c.Name, Arguments: arguments(c.Arguments).forServer()}})
		}
		messages = append(messages, m)
		for _, result := range r.Tools[turn.Turn].Results {
			messages = append(messages, chatMessage{Role: "tool", ToolCallID: result.CallID, Content: result.Content})
		}
	}
	return messages
}

// toolDefinitions is what every request offers; it never changes while the process runs.
func toolDefinitions() []chatTool {
	var offered []chatTool
	for _, d := range tools.Definitions() {
		offered = append(offered, chatTool{Type: "function", Function: chatDescription{Name: d.Name, Description: d.Description, Parameters: d.Parameters}})
	}
	return offered
}
