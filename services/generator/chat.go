package generator

import (
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/tools"
)

// The wire format is OpenAI's chat completions with the fields that vLLM (return_token_ids) and SGLang
// (return_meta_info) add for training: token ids, log-probabilities and the weights' version.

type chatRequest struct {
	Model          string        `json:"model"`
	Messages       []chatMessage `json:"messages"`
	Tools          []chatTool    `json:"tools,omitempty"`
	Temperature    float64       `json:"temperature"`
	MaxTokens      int           `json:"max_tokens"`
	Seed           int64         `json:"seed"`
	Logprobs       bool          `json:"logprobs"`
	ReturnTokenIDs bool          `json:"return_token_ids"`
	ReturnMetaInfo bool          `json:"return_meta_info"`
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
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
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
	WeightVersion *version `json:"weight_version"`
}

type chatChoice struct {
	FinishReason string `json:"finish_reason"`
	Message      struct {
		Content   *string        `json:"content"`
		ToolCalls []chatToolCall `json:"tool_calls"`
	} `json:"message"`
	TokenIDs       []int32 `json:"token_ids"`
	PromptTokenIDs []int32 `json:"prompt_token_ids"` // where SGLang puts them
	Logprobs       *struct {
		Content []struct {
			Logprob float32 `json:"logprob"`
		} `json:"content"`
	} `json:"logprobs"`
	MetaInfo *struct {
		WeightVersion *version `json:"weight_version"`
		// OutputTokenLogprobs are SGLang's [logprob, token id, text] triples.
		OutputTokenLogprobs [][]json.RawMessage `json:"output_token_logprobs"`
	} `json:"meta_info"`
}

// version reads a policy version that servers write as a number or as text.
type version int64

func (v *version) UnmarshalJSON(data []byte) error {
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return nil // a version that is no number ("default") says nothing
	}
	i, err := n.Int64()
	if err == nil {
		*v = version(i)
	}
	return nil
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
			m.ToolCalls = append(m.ToolCalls, chatToolCall{ID: c.ID, Type: "function", Function: chatFunction{Name: c.Name, Arguments: c.Arguments}})
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
