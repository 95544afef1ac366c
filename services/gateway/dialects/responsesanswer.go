package dialects

import (
	"fmt"
	"strings"

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
		ID: "resp_" + n.ID, Object: "response", CreatedAt: n.Created.Unix(), Status: status,
		Metadata: map[string]any{}, Model: n.Model,
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

// callItem is a call as the client knows the tool. Arguments that a local shell cannot take are
// told as those of a function, so that the client answers the model what is wrong.
func callItem(a *Request, n *Answer, i int) responsesCall {
	c := n.Turn.ToolCalls[i]
	item := responsesCall{Type: "function_call", ID: fmt.Sprintf("fc_%s_%d", n.ID, i), CallID: c.ID, Name: c.Name,
		Arguments: c.Arguments, Status: completed}
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

// begun is a call before its arguments are there, and the name of the events that bring them; ""
// where they come with the item.
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
		r.Output = append(r.Output, responsesMessage{"message", "msg_" + n.ID, completed, "assistant",
			[]responsesText{textOf(n.Turn.Content)}})
	}
	for i := range n.Turn.ToolCalls {
		r.Output = append(r.Output, callItem(a, n, i))
	}
	r.Usage = &responsesUsage{
		n.Turn.PromptTokens, map[string]int{"cached_tokens": 0}, n.Turn.CompletionTokens,
		map[string]int{"reasoning_tokens": 0},
		n.Turn.Used(),
	}
	return r
}

// responsesStream is an answer in items, one after the other. It numbers events and items.
type responsesStream struct {
	told
	a               *Request
	emit            func(Piece)
	sequence, index int
	open            string          // the type of the item that is open, "" for none
	id              string          // of that item
	text            strings.Builder // and what it says
}

// Stream implements Dialect.
func (Responses) Stream(a *Request, head *Answer, send func(Piece)) Stream {
	s := &responsesStream{told: told{head: head}, a: a, emit: send}
	s.send("response.created", map[string]any{"response": responsesHead(head, inProgress)})
	s.send("response.in_progress", map[string]any{"response": responsesHead(head, inProgress)})
	return s
}

func (s *responsesStream) send(name string, data map[string]any) {
	data["type"], data["sequence_number"] = name, s.sequence
	s.sequence++
	s.emit(Piece{Name: name, Data: data})
}

// data is that of an event of the open item, whose one part has a number by the name of its kind.
func (s *responsesStream) data(part, field string, value any) map[string]any {
	return map[string]any{"item_id": s.id, "output_index": s.index, part: 0, field: value}
}

const reasoningType, messageType = "reasoning", "message"

// item begins an item, unless one of its type is open.
func (s *responsesStream) item(kind, prefix string) (begun bool) {
	if s.open == kind {
		return false
	}
	s.close()
	s.open, s.id = kind, prefix+s.head.ID
	return true
}

func (s *responsesStream) added(item any) {
	s.send("response.output_item.added", map[string]any{"output_index": s.index, "item": item})
}

func (s *responsesStream) done(item any) {
	s.send("response.output_item.done", map[string]any{"output_index": s.index, "item": item})
	s.index++
}

// Reason implements Stream. Thoughts behind words have no place among the items that a client sends
// back as this turn's: the whole answer at the end has them.
func (s *responsesStream) Reason(text string) {
	if s.content.Len() > 0 {
		return
	}
	s.reasoning.WriteString(text)
	if s.item(reasoningType, "rs_") {
		s.added(responsesReasoning{reasoningType, s.id, []responsesSummary{}})
		s.send("response.reasoning_summary_part.added",
			s.data("summary_index", "part", responsesSummary{"summary_text", ""}))
	}
	s.text.WriteString(text)
	for part := range parts(text) {
		s.send("response.reasoning_summary_text.delta", s.data("summary_index", "delta", part))
	}
}

// Say implements Stream.
func (s *responsesStream) Say(text string) {
	s.content.WriteString(text)
	if s.item(messageType, "msg_") {
		s.added(responsesMessage{messageType, s.id, inProgress, "assistant", []responsesText{}})
		s.send("response.content_part.added", s.data("content_index", "part", textOf("")))
	}
	s.text.WriteString(text)
	for part := range parts(text) {
		s.send("response.output_text.delta", s.data("content_index", "delta", part))
	}
}

// close ends the open item.
func (s *responsesStream) close() {
	text := s.text.String()
	switch s.open {
	case reasoningType:
		s.send("response.reasoning_summary_text.done", s.data("summary_index", "text", text))
		s.send("response.reasoning_summary_part.done",
			s.data("summary_index", "part", responsesSummary{"summary_text", text}))
		s.done(responsesReasoning{reasoningType, s.id, []responsesSummary{{"summary_text", text}}})
	case messageType:
		s.send("response.output_text.done", s.data("content_index", "text", text))
		s.send("response.content_part.done", s.data("content_index", "part", textOf(text)))
		s.done(responsesMessage{messageType, s.id, completed, "assistant", []responsesText{textOf(text)}})
	}
	s.open = ""
	s.text.Reset()
}

func (s *responsesStream) call(done responsesCall) {
	start, kind, field, text := done.begun()
	s.added(start)
	if kind != "" {
		for part := range parts(text) {
			s.send(kind+".delta", map[string]any{"item_id": done.ID, "output_index": s.index, "delta": part})
		}
		s.send(kind+".done", map[string]any{"item_id": done.ID, "output_index": s.index,
			"name": done.Name, field: text})
	}
	s.done(done)
}

// End implements Stream.
func (s *responsesStream) End(n *Answer) error {
	n, err := s.rest(s, n)
	if err != nil {
		return err
	}
	if n.Turn.Content == "" && len(n.Turn.ToolCalls) == 0 {
		s.Say("")
	}
	s.close()
	for i := range n.Turn.ToolCalls {
		s.call(callItem(s.a, n, i))
	}
	whole := Responses{}.Whole(s.a, n).(responsesAnswer)
	s.send("response."+whole.Status, map[string]any{"response": whole})
	return nil
}

// Failure implements Dialect.
func (Responses) Failure(f Failure) Piece {
	p := Chat{}.Failure(f)
	p.Name = "error"
	return p
}
