package export

import "encoding/json"

// The Agent Trajectory Interchange Format, version 1.8: RFC 0001 of the Harbor project. The
// rest is in the field extra.

const atifVersion = "ATIF-v1.8"

type atifTrajectory struct {
	SchemaVersion string           `json:"schema_version"`
	SessionID     string           `json:"session_id"`
	TrajectoryID  string           `json:"trajectory_id"`
	Agent         atifAgent        `json:"agent"`
	Steps         []atifStep       `json:"steps"`
	Notes         string           `json:"notes,omitempty"`
	FinalMetrics  atifFinalMetrics `json:"final_metrics"`
	Extra         map[string]any   `json:"extra,omitempty"`
}

type atifAgent struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	ModelName string `json:"model_name,omitempty"`
}

type atifStep struct {
	StepID      int              `json:"step_id"`
	Timestamp   string           `json:"timestamp,omitempty"`
	Source      string           `json:"source"`
	ModelName   string           `json:"model_name,omitempty"`
	Message     string           `json:"message"`
	Reasoning   string           `json:"reasoning_content,omitempty"`
	ToolCalls   []atifCall       `json:"tool_calls,omitempty"`
	Observation *atifObservation `json:"observation,omitempty"`
	Metrics     *atifMetrics     `json:"metrics,omitempty"`
	LLMCalls    *int             `json:"llm_call_count,omitempty"`
	Copied      bool             `json:"is_copied_context,omitempty"`
	Extra       map[string]any   `json:"extra,omitempty"`
}

type atifCall struct {
	ID        string          `json:"tool_call_id"`
	Function  string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"`
}

type atifObservation struct {
	Results []atifResult `json:"results"`
}

type atifResult struct {
	SourceCallID string `json:"source_call_id,omitempty"`
	Content      string `json:"content"`
}

type atifMetrics struct {
	PromptTokens     int       `json:"prompt_tokens"`
	CompletionTokens int       `json:"completion_tokens"`
	PromptIDs        []int32   `json:"prompt_token_ids,omitempty"`
	CompletionIDs    []int32   `json:"completion_token_ids,omitempty"`
	Logprobs         []float32 `json:"logprobs,omitempty"`
}

type atifFinalMetrics struct {
	PromptTokens     int            `json:"total_prompt_tokens"`
	CompletionTokens int            `json:"total_completion_tokens"`
	Steps            int            `json:"total_steps"`
	Extra            map[string]any `json:"extra,omitempty"`
}
