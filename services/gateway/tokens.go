package gateway

import (
	"encoding/json"
	"fmt"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/dialects"
)

// byTokens makes the conversation of a call that is asked for, or counted, as tokens: those of
// the turn that it goes on with, up to that turn's own end, are known. Where the tools are
// others, or the run asks for chats, nothing is. Its error says what of the request has no
// place in a prompt of tokens.
func (a *ask) byTokens(ro *rollout, seed int64) (func(model string) inference.Conversation, error) {
	messages, err := a.read()
	if err != nil {
		return nil, err
	}
	tools, err := a.offered()
	if err != nil {
		return nil, err
	}
	conv := inference.Conversation{Chat: a.cfg.EndpointAPI != runfile.APITokens, Request: inference.Request{
		Messages: messages, Tools: tools,
		Sample: inference.NewSample(a.sampling), Seed: inference.NewSeed(a.sampling, seed), Extra: map[string]any{},
		Logprobs: true, ReturnTokenIDs: true, ReturnPromptTokenIDs: true, ReturnMetaInfo: true,
		ReturnWeightVersions: true,
		Columns:              a.cfg.TokenColumns,
	}}
	if want := a.cfg.TokenColumns; want != nil {
		conv.Request.TopLogprobs = want.TopLogprobs
	}
	if conv.Chat { // templates read what they like of messages
		list := a.Forward["messages"]
		conv.Request.Written = inference.Written{Messages: len(messages), JSON: list[1 : len(list)-1]}
	}
	a.Messages = nil // they are as large as what was read of them
	delete(a.Forward, "messages")
	for field, value := range a.Forward {
		if field != "tools" {
			conv.Request.Extra[field] = value
		}
	}
	for field, value := range a.sampling.ExtraBody {
		conv.Request.Extra[field] = value
	}
	if !conv.Chat && a.after >= 0 && ro.Turns[a.after].Root == a.base {
		t := newTree(ro.Turns)
		conv.Known, conv.Samples = t.known(a.after, a.ends)
		if t.tip(t.of[a.after]) == a.after { // what begins a segment has all that is in it
			a.routed = fleet.Routed(t.upTo(a.after))
			conv.Routed = a.routed
		}
	}
	return func(model string) inference.Conversation {
		c := conv
		c.Request.Model = model
		return c
	}, nil
}

// read reads the messages as they go to the server. Fields that no chat template has are left out.
func (a *ask) read() ([]inference.Message, error) {
	messages := make([]inference.Message, len(a.Messages))
	for i, raw := range a.Messages {
		var in struct {
			inference.Message
			Content json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		text, err := dialects.ContentText(in.Content, "thinking")
		if err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		if messages[i] = in.Message; len(in.Content) > 0 && in.Content[0] == '[' {
			messages[i].Parts = in.Content
		}
		messages[i].Content = text
	}
	return messages, nil
}

// offered are the tools of a request, as the client wrote them.
func (a *ask) offered() (tools []inference.Tool, err error) {
	var list []json.RawMessage
	if raw := a.Forward["tools"]; len(raw) > 0 {
		err = json.Unmarshal(raw, &list)
	}
	for _, raw := range list {
		tools = append(tools, inference.Tool{Raw: raw})
	}
	return tools, err
}
