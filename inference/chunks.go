package inference

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/inference/memory"
)

// A chat's answer can come as a stream, too. Each chunk of it has what there is more of the
// message, of its tokens and of their log-probabilities. They are joined to the body that the
// server would have answered with as a whole, which is then read as any other is. Text and thoughts
// are told while they come. Calls are not: the end decides whether they count.

// Delta is what there is more of an answer under way.
type Delta struct {
	Reasoning, Content string
	// Prompt is how many tokens the prompt has, 0 where the server has not said that.
	Prompt int
}

// asStream asks for a stream, with the usage at its end, behind the other fields of a request.
const asStream = `,"stream":true,"stream_options":{"include_usage":true}}`

// errUnjoined: a server streams in a way that cannot be joined without a guess. It is
// asked for whole answers.
var errUnjoined = errors.New("a chunk of the stream cannot be joined to those before it")

// chunk is an event of a chat's stream: what Response reads of an answer, in parts.
type chunk struct {
	chunkFields
	Choices [2]element[chunkChoice] `json:"choices"`
}

// The fields that chunks and whole answers have alike. The last chunk that has one says what it is.
type (
	chunkFields struct {
		PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
		Usage          json.RawMessage `json:"usage,omitempty"`
		WeightVersion  json.RawMessage `json:"weight_version,omitempty"`
		Metadata       json.RawMessage `json:"metadata,omitempty"`
		SGLExt         json.RawMessage `json:"sglext,omitempty"`
	}
	choiceFields struct {
		FinishReason   json.RawMessage `json:"finish_reason,omitempty"`
		StopReason     json.RawMessage `json:"stop_reason,omitempty"`
		PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
		WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
		RoutedExperts  json.RawMessage `json:"routed_experts,omitempty"`
		MetaInfo       json.RawMessage `json:"meta_info,omitempty"`
	}
)

type chunkChoice struct {
	choiceFields
	Index    int             `json:"index"`
	TokenIDs json.RawMessage `json:"token_ids"`
	Logprobs struct {
		Content json.RawMessage `json:"content"`
	} `json:"logprobs"`
	Delta chunkDelta `json:"delta"`
}

type chunkDelta struct {
	Content          json.RawMessage                      `json:"content"`
	Reasoning        json.RawMessage                      `json:"reasoning"`
	ReasoningContent json.RawMessage                      `json:"reasoning_content"`
	ToolCalls        *[MaxToolCalls + 2]element[callPart] `json:"tool_calls"`
	FunctionCall     json.RawMessage                      `json:"function_call"`
	ThinkingBlocks   json.RawMessage                      `json:"thinking_blocks"`
	ReasoningDetails json.RawMessage                      `json:"reasoning_details"`
}

// callPart is a part of a call: the first one has its id and its name.
type callPart struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// chunks are an answer of a chat that its server may send as a stream.
type chunks struct {
	answer *Response
	follow func(Delta)

	told     bool // something of the answer
	unjoined bool
	all      bool  // the server says that it has sent all
	kept     int64 // bytes of what follows
	fields   chunkFields
	choice   choiceFields
	word     finishWord
	prompt   int

	tokenIDs, logprobs       rawList
	content                  strings.Builder
	reasoning, reasoningText strings.Builder  // of reasoning and reasoning_content
	thoughts                 *strings.Builder // the one that is told
	calls                    []joinedCall
}

type joinedCall struct {
	id, name  string
	arguments []byte
}

// rawList is what stands between the brackets of a list; nil where there is none.
type rawList []byte

// event takes one event of a stream.
func (c *chunks) event(ctx context.Context, url, key string, data []byte, share *memory.Share) *Failure {
	before, grown := c.kept, perKept*int64(len(data))+perValue*memory.Values(data)
	if err := share.Grow(ctx, grown); err != nil {
		return unread(ctx, url, err)
	}
	var part chunk
	var said Delta
	failure := readEvent(ctx, url, key, data, &part)
	if failure == nil {
		var err error
		if said, err = c.take(&part); err != nil {
			c.unjoined = c.unjoined || errors.Is(err, errUnjoined)
			failure = malformed(url, err)
		}
	}
	// bytes that are no text have become characters, which are longer
	if more := perKept*(c.kept-before) - grown; more > 0 {
		if err := share.Grow(ctx, more); err != nil {
			return unread(ctx, url, err)
		}
		grown += more
	}
	share.Shrink(grown - perKept*(c.kept-before))
	if failure == nil && (said.Content != "" || said.Reasoning != "") {
		c.told, said.Prompt = true, c.prompt
		c.follow(said)
	}
	return failure
}

// perKept is what a byte costs that is kept of a stream: buffers have room for more, and what is
// told waits for a client that reads.
const perKept = 3

func (c *chunks) ended() bool { return c.word != "" || c.all }

// complete is the end of an answer, too, of a server that has no word for why it ended. One
// that says nothing is none.
func (c *chunks) complete() bool {
	c.all = c.content.Len()+c.reasoning.Len()+c.reasoningText.Len()+len(c.calls) > 0
	return c.ended()
}

// take joins a chunk to those before it.
func (c *chunks) take(part *chunk) (said Delta, err error) {
	for _, f := range []struct{ kept, more *json.RawMessage }{
		{&c.fields.PromptTokenIDs, &part.PromptTokenIDs}, {&c.fields.Usage, &part.Usage},
		{&c.fields.WeightVersion, &part.WeightVersion},
		{&c.fields.Metadata, &part.Metadata}, {&c.fields.SGLExt, &part.SGLExt},
	} {
		c.replace(f.kept, *f.more)
	}
	c.countPrompt(part.PromptTokenIDs)
	if !part.Choices[0].there { // usage alone
		return said, nil
	}
	more := &part.Choices[0].value
	if part.Choices[1].there || more.Index != 0 {
		return said, fmt.Errorf("a chunk has more than one choice, or one of index %d", more.Index)
	}
	ended := c.ended()
	if !ended {
		if err := c.finish(more.FinishReason); err != nil {
			return said, err
		}
	}
	for _, f := range []struct{ kept, more *json.RawMessage }{
		{&c.choice.StopReason, &more.StopReason}, {&c.choice.PromptTokenIDs, &more.PromptTokenIDs},
		{&c.choice.WeightVersions, &more.WeightVersions},
		{&c.choice.RoutedExperts, &more.RoutedExperts}, {&c.choice.MetaInfo, &more.MetaInfo},
	} {
		c.replace(f.kept, *f.more)
	}
	c.countPrompt(more.PromptTokenIDs)
	before := c.kept
	said, err = c.add(more)
	if ended && c.kept > before { // whatever else is wrong with it
		err = errBehind
	}
	return said, err
}

// add joins what there is more of the tokens and of the message.
func (c *chunks) add(more *chunkChoice) (said Delta, err error) {
	if err := c.join(&c.tokenIDs, more.TokenIDs); err != nil {
		return said, fmt.Errorf("token_ids: %w", err)
	}
	if err := c.join(&c.logprobs, more.Logprobs.Content); err != nil {
		return said, fmt.Errorf("logprobs: %w", err)
	}
	return c.say(&more.Delta)
}

// finish takes the server's word for why the answer ended.
func (c *chunks) finish(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	if err := c.word.UnmarshalJSON(raw); err != nil {
		return err
	}
	if c.word != "" {
		c.replace(&c.choice.FinishReason, raw)
	}
	return nil
}

// replace keeps a field, in place of what an earlier chunk has said.
func (c *chunks) replace(kept *json.RawMessage, more json.RawMessage) {
	if !isNull(more) {
		c.kept += int64(len(more) - len(*kept))
		*kept = more
	}
}

func (c *chunks) countPrompt(ids json.RawMessage) {
	if c.prompt == 0 && len(ids) > len("[]") {
		c.prompt = 1 + bytes.Count(ids, []byte{','})
	}
}

// join puts the elements of a list behind those before.
func (c *chunks) join(list *rawList, more json.RawMessage) error {
	if isNull(more) {
		return nil
	}
	if more[0] != '[' {
		return errors.New("want a list")
	}
	inner := bytes.TrimSpace(more[1 : len(more)-1])
	if *list == nil {
		*list = rawList{}
	}
	if len(*list) > 0 && len(inner) > 0 {
		*list = append(*list, ',')
		c.kept++
	}
	*list = append(*list, inner...)
	c.kept += int64(len(inner))
	return nil
}

// say joins what there is more of the message. Thoughts stand in one of two fields, or in both.
func (c *chunks) say(d *chunkDelta) (said Delta, err error) {
	for name, raw := range map[string]json.RawMessage{"function_call": d.FunctionCall,
		fieldThinkingBlocks: d.ThinkingBlocks, fieldReasoningDetails: d.ReasoningDetails} {
		if !isNull(raw) && string(raw) != "[]" {
			return said, fmt.Errorf("%w: %s", errUnjoined, name)
		}
	}
	texts := []struct {
		name string
		raw  json.RawMessage
		into *strings.Builder
		said *string
		text string
	}{
		{fieldContent, d.Content, &c.content, &said.Content, ""},
		{fieldReasoningContent, d.ReasoningContent, &c.reasoningText, &said.Reasoning, ""},
		{fieldReasoning, d.Reasoning, &c.reasoning, &said.Reasoning, ""},
	}
	for i, f := range texts {
		if json.Unmarshal(orNull(f.raw), &texts[i].text) != nil { // a list of parts
			return said, fmt.Errorf("%w: %s is no text", errUnjoined, f.name)
		}
	}
	if d.ToolCalls != nil && d.ToolCalls[MaxToolCalls+1].there {
		return said, fmt.Errorf("a chunk has more than %d parts of calls", MaxToolCalls+1)
	}
	for _, f := range texts {
		text := f.text
		if text == "" {
			continue
		}
		if f.into != &c.content && c.thoughts == nil {
			c.thoughts = f.into
		}
		if f.into == &c.content || f.into == c.thoughts {
			*f.said = text
		}
		f.into.WriteString(text)
		c.kept += int64(len(text))
	}
	if d.ToolCalls == nil {
		return said, nil
	}
	for _, call := range values(d.ToolCalls[:]) {
		if err := c.call(call); err != nil {
			return Delta{}, err
		}
	}
	return said, nil
}

// call joins a part of a call. Those that are more than a turn may have are not
// kept: one too many says it.
func (c *chunks) call(part callPart) error {
	if part.Index != nil && *part.Index >= len(c.calls) && len(c.calls) > MaxToolCalls {
		return nil
	}
	if part.Index == nil || *part.Index < 0 || *part.Index > len(c.calls) {
		return fmt.Errorf("%w: a call's index", errUnjoined)
	}
	if *part.Index == len(c.calls) {
		c.calls = append(c.calls, joinedCall{})
		c.kept += perValue
	}
	call := &c.calls[*part.Index]
	for _, f := range []struct {
		name string
		kept *string
		more string
	}{{"id", &call.id, part.ID}, {"name", &call.name, part.Function.Name}} {
		switch {
		case *f.kept == "":
			*f.kept = f.more
			c.kept += int64(len(f.more))
		case f.more != "" && f.more != *f.kept:
			return fmt.Errorf("%w: a second %s of call %d", errUnjoined, f.name, *part.Index)
		}
	}
	raw := part.Function.Arguments
	if isNull(raw) {
		return nil
	}
	if raw[0] != '"' {
		return fmt.Errorf("%w: arguments that are no text, of call %d", errUnjoined, *part.Index)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	call.arguments = append(call.arguments, text...)
	c.kept += int64(len(text))
	return nil
}

// whole is the body of the answer, in memory of the share; what it was made of is given back.
func (c *chunks) whole(ctx context.Context, url string, share *memory.Share) ([]byte, *Failure) {
	if c.reasoning.Len() > 0 && c.reasoningText.Len() > 0 && c.reasoning.String() != c.reasoningText.String() {
		c.unjoined = true
		return nil, malformed(url, fmt.Errorf("%w: %s and %s differ", errUnjoined,
			fieldReasoning, fieldReasoningContent))
	}
	type message struct {
		Role             string     `json:"role"`
		Content          string     `json:"content"`
		Reasoning        string     `json:"reasoning,omitempty"`
		ReasoningContent string     `json:"reasoning_content,omitempty"`
		ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	}
	type logprobs struct {
		Content json.RawMessage `json:"content"`
	}
	type choice struct {
		choiceFields
		TokenIDs json.RawMessage `json:"token_ids,omitempty"`
		Logprobs *logprobs       `json:"logprobs,omitempty"`
		Message  message         `json:"message"`
	}
	said := choice{choiceFields: c.choice, TokenIDs: c.tokenIDs.json()}
	said.Message = message{Role: roleAssistant, Content: c.content.String(), Reasoning: c.reasoning.String(),
		ReasoningContent: c.reasoningText.String()}
	if content := c.logprobs.json(); content != nil {
		said.Logprobs = &logprobs{content}
	}
	for _, call := range c.calls {
		said.Message.ToolCalls = append(said.Message.ToolCalls,
			ToolCall{ID: call.id, Type: "function", Function: Function{call.name, Arguments(call.arguments)}})
	}
	text, err := Encode(struct {
		chunkFields
		Choices []choice `json:"choices"`
	}{c.fields, []choice{said}})
	if err != nil {
		return nil, malformed(url, err)
	}
	given := perKept * c.kept
	*c = chunks{answer: c.answer, follow: c.follow, told: c.told}
	if err := share.Grow(ctx, int64(cap(text))); err != nil {
		return nil, unread(ctx, url, err)
	}
	share.Shrink(given)
	return text, nil
}

func (l rawList) json() json.RawMessage {
	if l == nil {
		return nil
	}
	return append(append(json.RawMessage{'['}, l...), ']')
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// followed asks for an answer as a stream. again reports that the server does not stream, or not so
// that it can be read: nothing was told, so that it may be asked for the whole answer.
func (c *Client) followed(ctx context.Context, url string, text body, answer *Response,
	share *memory.Share) (again bool, err error) {
	s := chunks{answer: answer, follow: c.Follow}
	last := len(text) - 1
	asking := append(append(body{}, text[:last]...), bytes.TrimSuffix(text[last], []byte("}")), []byte(asStream))
	err = c.ask(ctx, url, asking, &s, share)
	var f *Failure
	if err == nil || !errors.As(err, &f) {
		return false, err
	}
	c.Unstreamed = s.unjoined || !s.told && (refusesStream(f) || f.Class == events.ClassBadResponse && !f.Permanent)
	if c.Unstreamed && !s.told {
		share.End()
		return true, nil
	}
	if s.told { // what goes wrong within an answer says nothing of the request
		f.Permanent, f.Overflow, f.Refusal, f.OnlyOpenAI = false, nil, "", false
	}
	return false, f
}
