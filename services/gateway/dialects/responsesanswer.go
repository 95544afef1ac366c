package dialects

import (
	"fmt"
	"iter"

	"github.com/rondo-rl/rondo/events"
)

// The answer's parts.
type (
	responsesAnswer struct {
		ID                string          `json:"id"`
		Object            string          `json:"object"`
		CreatedAt         int64           `json:"created_at"`
		Status            string          `json:"status"`
		Error             any             `json:"error"`
		IncompleteDetails any             `json:"incomplete_details"`
		Instructions      any             `json:"instructions"`
		Metadata          map[string]any  `json:"metadata"`
		Model             string          `json:"model"`
		Output            []any           `json:"output"`
		Parallel          bool            `json:"parallel_tool_calls"`
		Temperature       any             `json:"temperature"`
		ToolChoice        string          `json:"tool_choice"`
		Tools             []any           `json:"tools"`
		TopP              any             `json:"top_p"`
		Usage             *responsesUsage `json:"usage"`
	}
	responsesUsage struct {
		InputTokens   int            `json:"input_tokens"`
		InputDetails  map[string]int `json:"input_tokens_details"`
		OutputTokens  int            `json:"output_tokens"`
		OutputDetails map[string]int `json:"output_tokens_details"`
		TotalTokens   int            `json:"total_tokens"`
	}
	responsesText struct {
		Type        string `json:"type"` // output_text
		Text        string `json:"text"`
		Annotations []any  `json:"annotations"`
	}
	responsesMessage struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Status  string          `json:"status"`
		Role    string          `json:"role"`
		Content []responsesText `json:"content"`
	}
	// responsesCall is one of a function, or of a tool of another type, which has other fields.
	responsesCall struct {
		Type      string       `json:"type"`
		ID        string       `json:"id"`
		CallID    string       `json:"call_id"`
		Namespace string       `json:"namespace,omitempty"`
		Name      string       `json:"name,omitempty"`
		Arguments any          `json:"arguments,omitempty"` // a text, or of a search an object
		Input     *string      `json:"input,omitempty"`
		Action    *shellAction `json:"action,omitempty"`
		Execution string       `json:"execution,omitempty"`
		Status    string       `json:"status"`
	}
	responsesSummary struct {
		Type string `json:"type"` // summary_text
		Text string `json:"text"`
	}
	responsesReasoning struct {
		Type    string             `json:"type"`
		ID      string             `json:"id"`
		Summary []responsesSummary `json:"summary"`
	}
)

const inProgress, completed = "in_progress", "completed"

func responsesHead(n *Answer, status string) responsesAnswer {
	return responsesAnswer{
		ID: "resp_" + n.ID, Object: "response", CreatedAt: n.Created.Unix(), Status: status, Metadata: map[string]any{}, Model: n.Model,
		Output: []any{}, Parallel: true, ToolChoice: "auto", Tools: []any{},
	}
}

// reasoningItem is what the model thought; it has no items before it.
func reasoningItem(n *Answer) responsesReasoning {
	return responsesReasoning{"reasoning", "rs_" + n.ID, []responsesSummary{{"summary_text", n.Reasoning}}}
}

func textOf(text string) responsesText {
	return responsesText{Type: "output_text", Text: text, Annotations: []any{}}
}

// callItem is a call as the client knows the tool. Arguments that a local shell cannot take are told as those of a function, so that the client answers the model what is wrong.
func callItem(a *Request, n *Answer, i int) responsesCall {
	c := n.Turn.ToolCalls[i]
	item := responsesCall{Type: "function_call", ID: fmt.Sprintf("fc_%s_%d", n.ID, i), CallID: c.ID, Name: c.Name, Arguments: c.Arguments, Status: completed}
	tool, ok := a.tools[c.Name]
	if !ok {
		return item
	}
	item.Namespace, item.Name = tool.namespace, tool.name
	switch tool.kind {
	case customTool:
		input := CustomInput(c.Arguments)
		item.Type, item.Arguments, item.Input = "custom_tool_call", nil, &input
	case localShellTool:
		if action, ok := readAction(c.Arguments); ok {
			item.Type, item.Name, item.Arguments, item.Action = "local_shell_call", "", nil, &action
		}
	case toolSearchTool:
		item.Type, item.Name, item.Execution = "tool_search_call", "", "client"
		item.Arguments = input(c)
	}
	return item
}

// begun is a call before its arguments are there, and the name of the events that bring them; "" where they come with the item.
func (c responsesCall) begun() (start responsesCall, kind, field, text string) {
	start = c
	start.Status = inProgress
	switch {
	case c.Input != nil:
		start.Input = new(string)
		return start, "response.custom_tool_call_input", "input", *c.Input
	case c.Type == "function_call":
		start.Arguments = ""
		return start, "response.function_call_arguments", "arguments", c.Arguments.(string)
	}
	return start, "", "", ""
}

// Whole implements Dialect.
func (Responses) Whole(a *Request, n *Answer) any {
	r := responsesHead(n, completed)
	if n.Turn.Cut() {
		reason := finishReason(n)
		if reason == events.FinishLength {
			reason = "max_output_tokens"
		}
		r.Status, r.IncompleteDetails = "incomplete", map[string]string{"reason": reason}
	}
	if n.Reasoning != "" {
		r.Output = append(r.Output, reasoningItem(n))
	}
	if n.Turn.Content != "" || len(n.Turn.ToolCalls) == 0 {
		r.Output = append(r.Output, responsesMessage{"message", "msg_" + n.ID, completed, "assistant", []responsesText{textOf(n.Turn.Content)}})
	}
	for i := range n.Turn.ToolCalls {
		r.Output = append(r.Output, callItem(a, n, i))
	}
	r.Usage = &responsesUsage{
		n.Turn.PromptTokens, map[string]int{"cached_tokens": 0}, n.Turn.CompletionTokens, map[string]int{"reasoning_tokens": 0},
		n.Turn.Used(),
	}
	return r
}

// Pieces implements Dialect.
func (d Responses) Pieces(a *Request, n *Answer) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		s := responsesStream{yield: yield, going: true}
		s.send("response.created", map[string]any{"response": responsesHead(n, inProgress)})
		s.send("response.in_progress", map[string]any{"response": responsesHead(n, inProgress)})
		if n.Reasoning != "" {
			s.item(responsesReasoning{"reasoning", "rs_" + n.ID, []responsesSummary{}}, reasoningItem(n), func() {})
		}
		if n.Turn.Content != "" || len(n.Turn.ToolCalls) == 0 {
			s.message(n)
		}
		for i := range n.Turn.ToolCalls {
			s.call(callItem(a, n, i))
		}
		whole := d.Whole(a, n).(responsesAnswer)
		s.send("response."+whole.Status, map[string]any{"response": whole})
	}
}

// responsesStream numbers events and items.
type responsesStream struct {
	yield           func(Piece) bool
	going           bool
	sequence, index int
}

func (s *responsesStream) send(name string, data map[string]any) {
	data["type"], data["sequence_number"] = name, s.sequence
	s.sequence++
	s.going = s.going && s.yield(Piece{Name: name, Data: data})
}

func (s *responsesStream) item(begun, done any, content func()) {
	s.send("response.output_item.added", map[string]any{"output_index": s.index, "item": begun})
	content()
	s.send("response.output_item.done", map[string]any{"output_index": s.index, "item": done})
	s.index++
}

func (s *responsesStream) call(done responsesCall) {
	start, kind, field, text := done.begun()
	s.item(start, done, func() {
		if kind == "" {
			return
		}
		for part := range parts(text) {
			s.send(kind+".delta", map[string]any{"item_id": done.ID, "output_index": s.index, "delta": part})
		}
		s.send(kind+".done", map[string]any{"item_id": done.ID, "output_index": s.index, "name": done.Name, field: text})
	})
}

func (s *responsesStream) message(n *Answer) {
	id := "msg_" + n.ID
	begun := responsesMessage{"message", id, inProgress, "assistant", []responsesText{}}
	done := responsesMessage{"message", id, completed, "assistant", []responsesText{textOf(n.Turn.Content)}}
	s.item(begun, done, func() {
		at := func(field string, value any) map[string]any {
			return map[string]any{"item_id": id, "output_index": s.index, "content_index": 0, field: value}
		}
		s.send("response.content_part.added", at("part", textOf("")))
		for part := range parts(n.Turn.Content) {
			s.send("response.output_text.delta", at("delta", part))
		}
		s.send("response.output_text.done", at("text", n.Turn.Content))
		s.send("response.content_part.done", at("part", textOf(n.Turn.Content)))
	})
}

// Failure implements Dialect.
func (Responses) Failure(f Failure) Piece {
	p := Chat{}.Failure(f)
	p.Name = "error"
	return p
}
